"""Dated, sourced compatibility data."""
