"""Frozen data that the other rooms pass around."""
