#!/bin/sh
# Simulated: nvidia-persistenced of the gpustrap lab. Persistence mode is on while it runs.
set -eu
if [ ! -e /proc/driver/nvidia/version ]; then
    echo "nvidia-persistenced failed to initialize. Check syslog for more details." >&2
    exit 1
fi
mkdir -p /run/nvidia-persistenced
nvidia-smi -pm 1 >/dev/null || :
sleep infinity >/dev/null 2>&1 &
echo "$!" >/run/nvidia-persistenced/nvidia-persistenced.pid
