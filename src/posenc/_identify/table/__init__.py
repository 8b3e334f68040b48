"""Identify the convention of a sinusoidal table."""
