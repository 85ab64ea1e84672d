"""vLLM, simulated: a stand-in of the gpustrap lab."""

from ._lab.build import VERSION

__version__ = VERSION
simulated = True
