"""gpustrap turns bare machines into verified GPU nodes and keeps them that way."""

__version__ = "0.1.0"
