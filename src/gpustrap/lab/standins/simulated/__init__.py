"""What is in the wheels of stand-in frameworks: they import, find the node's simulated GPUs, and calculate in Python.

A wheel holds the framework's directory, ``_lab`` (the modules here) in it, and ``_lab/build.py`` with what the build
is: made by `gpustrap.lab.standins.frameworks_data`. They run on a node: standard library, syntax of Python 3.8.
"""
