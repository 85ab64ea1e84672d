"""The checks that run on a node: standard library only, Python 3.8; sent over SSH, never installed."""
