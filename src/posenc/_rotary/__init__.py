"""Rotary position embeddings: rotations of queries and keys by their positions."""
