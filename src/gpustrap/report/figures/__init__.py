"""Figures of a certificate: what is where, in numbers that a template only has to write down."""
