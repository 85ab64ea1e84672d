"""Acceptance checks and the payload that runs on the node."""
