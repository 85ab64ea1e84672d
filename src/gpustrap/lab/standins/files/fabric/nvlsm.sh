#!/bin/sh
# Stand-in of the gpustrap lab, simulated: the simulated fabric has no subnet to manage.
echo "nvlsm: simulated" >&2
