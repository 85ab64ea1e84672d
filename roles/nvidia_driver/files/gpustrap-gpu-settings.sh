#!/bin/sh
# Managed by gpustrap (role nvidia_driver); the next apply undoes local changes.
#
# gpustrap-gpu-settings [--persistence] [ADDRESS=WATTS]...
#
# At boot and by gpustrap apply: device files for CUDA, persistence mode, power limits. The driver forgets both when it
# is unloaded. A GPU's limit before the first one of ours is put down in $record; one that no argument names any more
# gets it back. One that does not answer never keeps the others from theirs.
set -u
record=/var/lib/gpustrap/gpu-power-limits # lines of: UUID WATTS
failed=0 named=''

smi() { timeout 120 nvidia-smi "$@"; } # it wakes sleeping GPUs, and hangs on a broken one

say() { echo "gpustrap-gpu-settings: $*" >&2; }

number() { case ${1:-x} in *[!0-9.]*) false ;; esac; }

# limit ADDRESS WATTS - within what the board can take: at boot nobody is there to read a refusal
limit() {
    if ! found=$(smi -i "$1" --query-gpu=uuid,power.limit,power.min_limit,power.max_limit --format=csv,noheader,nounits)
    then
        say "GPU $1: $found"
        failed=1
        return
    fi
    IFS=', ' read -r uuid now least most <<EOF
$found
EOF
    named="$named $uuid"
    if ! number "$now" || ! number "$least" || ! number "$most"; then
        say "GPU $1: its power limit cannot be set"
        return
    fi
    watts=$2
    [ "$watts" -le "${most%.*}" ] || { watts=${most%.*}; say "GPU $1: $watts W, its most, instead of $2 W"; }
    [ "$watts" -ge "${least%.*}" ] || { watts=${least%.*}; say "GPU $1: $watts W, its least, instead of $2 W"; }
    grep -qs "^$uuid " "$record" || { mkdir -p "${record%/*}" && echo "$uuid $now" >>"$record"; } || failed=1
    smi -i "$1" -pl "$watts" || failed=1
}

# restore - the recorded limit, for those that no argument named
restore() {
    [ -s "$record" ] || return 0
    while read -r uuid watts; do
        case " $named " in *" $uuid "*) echo "$uuid $watts"; continue ;; esac
        smi -i "$uuid" -pl "${watts%.*}" >&2 || echo "$uuid $watts" # not there now: kept for when it is
    done <"$record" >"$record.new"
    mv "$record.new" "$record"
}

# /dev/nvidia-uvm: without it cuInit says 999 to whoever may not make it
if command -v nvidia-modprobe >/dev/null; then nvidia-modprobe -c 0 -u || say "no /dev/nvidia-uvm"; fi
for word; do
    case $word in
        --persistence) smi -pm 1 || failed=1 ;;
        *) limit "${word%=*}" "${word##*=}" ;;
    esac
done
restore
exit "$failed"
