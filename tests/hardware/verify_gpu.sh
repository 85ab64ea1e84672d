#!/bin/sh
# Checks the GPUs of a real machine with what gpustrap verify sends to a node: about three minutes.
# Needs a driver and python3 (3.8 or later); cuBLAS is measured where an environment, a toolkit or ldconfig has it.
#
#   tests/hardware/verify_gpu.sh [DIRECTORY]    # reports go there; without it into the current one
set -eu

root=$(cd "$(dirname "$0")/../.." && pwd)
reports=${1:-.}
mkdir -p "$reports"
reports=$(cd "$reports" && pwd)

# What the machine is: for docs/verify-method.md, and as cases for tests.
timeout 60 nvidia-smi -q -x >"$reports/nvidia-smi.xml" || echo "nvidia-smi -q -x ended with $?" >&2
timeout 60 nvidia-smi topo -m >"$reports/topology.txt" || echo "nvidia-smi topo -m ended with $?" >&2

PYTHONDONTWRITEBYTECODE=1 \
PYTHONPATH="$root/src/gpustrap/verify:$root/src/gpustrap/ansible_plugins/module_utils" \
  exec python3 -m gpustrap_verify.gpu_main --report "$reports/verify-gpu.json"
