"""Simulated GPUs: PCI devices, NVML and nvidia-smi of a lab node, with faults. All that rests on them is simulated."""
