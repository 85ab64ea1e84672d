# shellcheck shell=sh
# What a node's container runs before systemd takes over as PID 1. $1 names the node: lab/node.
# Bind mounts of the container engine are undone so that the node finds the tree of a fresh machine.
set -eu

# cgroup v1 host: the engine binds the host's whole systemd hierarchy over the private one, and
# leaves the controllers read-only; docker in the node needs both as a machine has them.
if [ -d /sys/fs/cgroup/systemd ]; then
    umount /sys/fs/cgroup/systemd/release_agent 2>/dev/null || :
    umount /sys/fs/cgroup/systemd 2>/dev/null || :
    for mount in /sys/fs/cgroup/*; do
        [ -L "$mount" ] || mount -o remount,rw,bind "$mount" 2>/dev/null || :
    done
else
    mount -o remount,rw,bind /sys/fs/cgroup 2>/dev/null || :
fi

# The node's own network settings are its own; the rest of /proc/sys stays read-only.
mount --bind /proc/sys/net /proc/sys/net
mount -o remount,rw,bind /proc/sys/net

# This machine's PCI devices and GPUs are not the node's.
for mask in /sys/bus/pci/devices /proc/driver/nvidia; do
    [ ! -d "$mask" ] || mount -t tmpfs -o ro,size=4k,mode=555 masked "$mask"
done

# Simulated GPUs. This boot works on a copy: what is changed for the next one waits for it, as a driver does.
gpus=/usr/lib/lab-gpu
libraries=/usr/lib/$(uname -m)-linux-gnu
for link in "$libraries/libnvidia-ml.so.1" "$libraries/libcuda.so.1" /usr/bin/nvidia-smi; do
    case $(readlink "$link" || :) in /run/lab-gpu/*) rm "$link" ;; esac
done
if [ -d "$gpus" ]; then
    # The kernel's packages, as an installer leaves them.
    if [ ! -e /etc/apt/sources.list.d/lab-kernel.sources ]; then
        cp "$gpus/kernel/lab-kernel.sources" /etc/apt/sources.list.d/
        dpkg --install "$gpus/kernel/image.deb" >/var/log/lab-kernel.log 2>&1 || cat /var/log/lab-kernel.log
    fi
    mkdir -p /run/lab-gpu
    cp -dR "$gpus/state" "$gpus/sys" "$gpus/proc" "$gpus/kernel.log" /run/lab-gpu/
    [ ! -x /usr/bin/python3 ] || "$gpus/bin/lab-gpu-boot"
    mount --bind /run/lab-gpu/sys/bus/pci/devices /sys/bus/pci/devices
    mount --bind /run/lab-gpu/proc/driver /proc/driver
    cat /proc/sys/kernel/random/uuid >/run/lab-gpu/boot_id
    mount --bind /run/lab-gpu/boot_id /proc/sys/kernel/random/boot_id
    [ ! -x "$gpus/bin/lab-gpu-devices" ] || "$gpus/bin/lab-gpu-devices"
    # A driver that the node was started with comes from no package.
    if ! grep -q '^library=$' "$gpus/state" && [ ! -e /usr/bin/nvidia-smi ]; then
        mkdir -p /run/lab-gpu/lib /run/lab-gpu/bin
        cp "$gpus"/lib/* /run/lab-gpu/lib/
        cp "$gpus/bin/nvidia-smi" /run/lab-gpu/bin/
        for library in /run/lab-gpu/lib/*; do
            ln -sf "$library" "$libraries/"
        done
        ln -sf /run/lab-gpu/bin/nvidia-smi /usr/bin/
    fi
fi

# Ordinary files again, so that they can be replaced as on a machine. Written once per node: what
# the node makes of them later survives its reboots.
seen=$(cat /var/lib/lab-node 2>/dev/null || :)
resolv=$(cat /etc/resolv.conf)
for file in hosts hostname resolv.conf; do
    umount "/etc/$file" 2>/dev/null || :
done
if [ "$seen" != "$1" ]; then
    name=${1##*/}
    printf '%s\n' "$resolv" >/etc/resolv.conf
    printf '%s\n' "$name" >/etc/hostname
    printf '127.0.0.1\tlocalhost\n127.0.1.1\t%s\n::1\tlocalhost ip6-localhost ip6-loopback\n' "$name" >/etc/hosts
    printf '%s\n' "$1" >/var/lib/lab-node
    # A node started from another's snapshot is a machine of its own.
    : >/etc/machine-id
    rm -f /etc/ssh/ssh_host_*
fi

exec /lib/systemd/systemd
