#!/bin/sh
# What a node with GPUs says of itself, one name=value per line.
set -u
echo "state=$(systemctl is-system-running)"
echo "gpus=$(nvidia-smi -L | wc -l)"
echo "set=$(nvidia-smi --query-gpu=persistence_mode,power.limit --format=csv,noheader | sort -u)"
echo "record=$(wc -l </var/lib/gpustrap/gpu-power-limits)"
echo "rivals=$(grep -c '^blacklist' /etc/modprobe.d/gpustrap-nvidia.conf)"
echo "loads=$(grep -v '^#' /etc/modules-load.d/gpustrap-nvidia.conf | xargs)"
echo "unit=$(systemctl is-enabled gpustrap-gpu-settings) $(systemctl is-active gpustrap-gpu-settings)"
echo "device_files=$(grep -o 'NVreg_DeviceFileGID.*' /etc/modprobe.d/gpustrap-nvidia.conf)"
echo "nvcc=$(/usr/local/cuda/bin/nvcc --version 2>&1 | grep release)"
echo "cdi=$(nvidia-ctk cdi list 2>/dev/null | grep all)"
echo "docker=$(systemctl is-active docker.service)"
