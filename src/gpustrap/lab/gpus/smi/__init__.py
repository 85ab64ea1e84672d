"""The lab's nvidia-smi: standard library only, in the syntax of the oldest Python of a node, 3.8."""
