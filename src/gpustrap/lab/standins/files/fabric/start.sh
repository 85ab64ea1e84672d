#!/bin/sh
# Stand-in of the gpustrap lab, simulated.
config=/usr/share/nvidia/nvswitch/fabricmanager.cfg
mode=
while [ $# -gt 0 ]; do
    case $1 in
    --mode) mode=$2 && shift ;;
    --fm-config-file) config=$2 && shift ;;
    esac
    shift
done
[ "$mode" = precheck ] || exec /usr/bin/nv-fabricmanager -c "$config"
