"""The terminal: one file per verb, which parses, calls a use-case, renders, and picks the exit code."""
