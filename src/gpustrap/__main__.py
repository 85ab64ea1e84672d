"""``python -m gpustrap``."""

from gpustrap.cli.app import main

main()
