"""Throw-away nodes in containers on this machine, reached over real SSH."""
