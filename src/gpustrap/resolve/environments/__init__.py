"""Environments for frameworks: which build, whose Python, for which GPUs."""
