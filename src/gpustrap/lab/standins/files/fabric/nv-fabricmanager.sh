#!/bin/sh
# Stand-in of the gpustrap lab, simulated. It refuses a driver of another version in the real one's words, else brings
# the simulated fabric up and stays.
state=/run/lab-gpu/state
log() {
    echo "nv-fabricmanager: simulated: $*" >&2
}
case "${1:-}" in
-v | --version) echo "Fabric Manager version is : @version@ (simulated)" && exit 0 ;;
esac
driver=$(sed -nE 's/.*Kernel Module( for [^ ]+)? +([0-9.]+).*/\2/p' /proc/driver/nvidia/version 2>/dev/null || :)
if [ -z "$driver" ]; then
    log "failed to get the NVIDIA driver's version: the driver is not loaded"
    exit 1
fi
if [ "$driver" != "@version@" ]; then
    echo "fabric manager NVIDIA GPU driver interface version @version@ don't match with driver version $driver." \
        "Please update with matching NVIDIA driver package." >&2
    exit 1
fi
if ! grep -q '^[0-9]*\.nvlinks=' "$state" 2>/dev/null; then
    echo "request to query NVSwitch device information from NVSwitch driver failed with error:WARNING Nothing to do" \
        "[NV_WARN_NOTHING_TO_DO]" >&2
    exit 1
fi
if grep -q '^[0-9]*\.name=.*\(B200\|B300\)' "$state" && [ ! -x /opt/nvidia/nvlsm/sbin/nvlsm ]; then
    log "the subnet manager of NVLink 5, nvlsm, is not there"
    exit 1
fi
sed 's/^\([0-9]*\.fabric\)=.*/\1=Completed/' "$state" >"$state.fabric"
chmod 644 "$state.fabric"
mv "$state.fabric" "$state"
log "Successfully configured all the available NVSwitches to route GPU NVLink traffic."
trap 'exit 0' TERM INT
while :; do
    sleep 3600 &
    wait $!
done
