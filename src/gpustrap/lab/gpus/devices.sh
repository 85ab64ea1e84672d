#!/bin/sh
# What a node's boot makes of its driver beside the files: device nodes, modules in sysfs and /proc, the kernel's log.
# Runs before systemd. What is not there is left out: a host kernel may have no modules, a node no Python.
set -eu
here=/run/lab-gpu
uvm=511 # dynamic on a machine; /proc/devices says which
value() { sed -n "s/^$1=//p" "$here/state"; }
module=$(value module)

# journald takes the kernel's log from /dev/kmsg, which containers do not have. A pipe does: someone has to hold it,
# so that nobody who writes early waits for a reader.
rm -f /dev/kmsg
mkfifo -m 600 /dev/kmsg
(exec 9<>/dev/kmsg && exec sleep infinity) >/dev/null 2>&1 </dev/null &
[ ! -x /usr/bin/python3 ] || /usr/lib/lab-gpu/bin/lab-gpu-log <"$here/kernel.log"

# The modules of this machine, without drivers of GPUs, and those of the node.
mkdir -p "$here/modules"
mount --bind /sys/module "$here/modules"
mount -t tmpfs -o size=256k,mode=755 modules /sys/module
for path in "$here"/modules/*; do
    case ${path##*/} in nvidia* | nouveau | nova_core) ;; *) ln -s "$path" /sys/module/ ;; esac
done
for path in "$here"/sys/module/*; do
    [ ! -d "$path" ] || ln -s "$path" /sys/module/
done

rm -f /dev/nvidia*
[ -n "$module" ] || exit 0
node() { mknod -m 666 "/dev/$1" c "$2" "$3"; }
sed -n 's/^\([0-9]*\)\.minor=.*/\1/p' "$here/state" | while read -r index; do
    node "nvidia$index" 195 "$index"
done
node nvidiactl 195 255
node nvidia-modeset 195 254
node nvidia-uvm $uvm 0
node nvidia-uvm-tools $uvm 1

# The open() of these nodes fails: there is no driver, and the node's rules for devices do not allow it either.
front='195 nvidia\n195 nvidia-modeset\n195 nvidiactl'
[ "${module%%.*}" -ge 550 ] || front='195 nvidia-frontend'
sed "s/^\$/$front\n$uvm nvidia-uvm\n/; t done; b; :done; n; b done" /proc/devices >"$here/devices"
mount --bind "$here/devices" /proc/devices
if [ -e /proc/modules ]; then
    {
        printf '%s 98304 %s - Live 0x0000000000000000 (OE)\n' nvidia_uvm 0 nvidia_drm 0 nvidia_modeset 1 nvidia 2
        grep -v '^nvidia\|^nouveau ' /proc/modules || :
    } >"$here/proc-modules"
    mount --bind "$here/proc-modules" /proc/modules
fi
