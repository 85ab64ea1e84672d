#!/bin/sh
# Stand-in of the gpustrap lab, simulated. docker has --gpus where this program is; it only says what works here.
echo "simulated: the lab's stand-in of nvidia-container-runtime-hook has no legacy mode; use --device nvidia.com/gpu=all" >&2
exit 1
