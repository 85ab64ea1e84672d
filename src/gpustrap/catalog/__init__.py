"""Dated, sourced compatibility data and its loader."""
