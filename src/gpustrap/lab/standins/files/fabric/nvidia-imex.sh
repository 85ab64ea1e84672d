#!/bin/sh
# Stand-in of the gpustrap lab, simulated: one node has nobody to share memory with.
echo "nvidia-imex @version@: simulated" >&2
exec sleep infinity
