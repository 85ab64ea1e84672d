"""Scripts that an environment's own Python runs: they use the framework on every GPU, as its users will.

Standard library, syntax of Python 3.8, and the one framework. Each is a process of its own, prints one line of JSON on
standard output, and says on standard error what it is at, so that one that hangs is known by its last step.
"""
