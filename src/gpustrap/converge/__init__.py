"""Runs the roles. The only room that imports ansible_runner."""
