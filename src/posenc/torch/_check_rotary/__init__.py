"""Compare the rotations in a model with those of its configuration."""
