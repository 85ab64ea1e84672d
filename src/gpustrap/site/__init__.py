"""The site: a directory with an inventory, and what gpustrap writes beside it."""
