"""Identify a rotary embedding, and name its differences from an expected one."""
