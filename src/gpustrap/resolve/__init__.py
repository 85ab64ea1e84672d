"""Decides what each node gets: pure functions of facts, request and catalog."""
