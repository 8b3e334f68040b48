"""Encoding, the functions that use it, presets and positions of padded batches."""
