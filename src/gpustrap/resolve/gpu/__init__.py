"""Decides the GPU stack: driver first, then what stands on it."""
