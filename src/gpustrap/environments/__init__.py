"""Locks environments: every package of one, with its version and hash, in a file of the site."""
