"""The use-cases: plan, apply, verify, drift and the rest. No terminal, no Typer types."""
