"""Encoding, the functions encode, add_to and stream, presets, and positions of padded batches."""
