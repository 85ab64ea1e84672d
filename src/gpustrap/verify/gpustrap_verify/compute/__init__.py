"""The GPUs themselves: exact products, memory and transfers through the driver's own library, by ctypes."""
