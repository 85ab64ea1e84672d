#!/bin/sh
# The tour: what ./run demo does. Every command it prints is one you can type yourself.
# Two throw-away nodes are enrolled, inspected, planned, provisioned, verified, broken on purpose and repaired.
set -eu
cd "$(dirname "$0")/.."
PATH=$PWD/.venv/bin:$PATH
TOUR=${1:-$PWD/.demo} # a directory of its own: what an earlier tour left there is removed
MARK=$TOUR/.made-by-the-tour
LAB=${2:-demo}
SITE=$TOUR/site
export GPUSTRAP_SITE="$SITE"
# What to type after the tour, from this directory. Whoever came through sudo or is no root needs it then, too.
if [ -n "${SUDO_USER:-}" ] || [ "$(id -u)" != 0 ]; then sudo="sudo "; else sudo=""; fi
TYPE="${sudo}.venv/bin/gpustrap"
if [ -e "$TOUR" ] && [ ! -e "$MARK" ]; then
    echo "$TOUR is there and was not made by this tour, so it is left alone. Move it away, or name another directory." >&2
    exit 2
fi
started=$(date +%s)
step=0 steps=11

say() {
    step=$((step + 1))
    printf '\n\033[1m[%d/%d] %s\033[0m\n' "$step" "$steps" "$1"
}
[ -t 1 ] || say() { step=$((step + 1)); printf '\n[%d/%d] %s\n' "$step" "$steps" "$1"; }

# expect CODE COMMAND... - show the command, run it, and stop the tour if it ends with another code
expect() {
    want=$1 got=0
    shift
    echo "\$ $*"
    "$@" || got=$?
    [ "$got" = "$want" ] && return 0
    echo "This command ended with exit code $got instead of $want; the tour stops here." >&2
    echo "The nodes are left up. Look: $TYPE lab shell --lab $LAB node1" >&2
    echo "Remove them: $TYPE lab down --lab $LAB" >&2
    exit 1
}

on() { # on NODE COMMAND... - do something on a node behind gpustrap's back
    echo "  on $1: $2"
    echo "$2" | gpustrap lab shell --lab "$LAB" "$1"
}

trap 'printf "\nStopped. Run ./run demo again whenever you like, or remove the nodes: %s\n" "$TYPE lab down --lab $LAB"
    exit 130' INT TERM

say "A site, and two fresh lab nodes (Debian 13 and 12; the first time, building their images takes two minutes)"
gpustrap lab down --lab "$LAB" >/dev/null 2>&1 || true
rm -rf "$TOUR"
mkdir -p "$TOUR"
touch "$MARK"
echo "\$ gpustrap init $SITE"
said=$(gpustrap init "$SITE" 2>&1) || { echo "$said" >&2; exit 1; }
echo "$said" | sed -e '/^Next/,$d' -e '/^$/d' # what comes next, the tour shows
expect 0 gpustrap lab up node1:debian13 node2:debian12 --lab "$LAB" --site "$SITE" --standins

printf '# The demo removes it to show drift.\ngpustrap_packages: [jq]\n' >"$SITE/inventory/group_vars/lab.yml"

say "Enrol: take the host keys knowingly, install the site's SSH key, find out about sudo"
exec 3<"$(gpustrap lab password-file --lab "$LAB")"
expect 0 gpustrap enroll --accept-new --passwordless-sudo --password-fd 3
exec 3<&-

say "Inspect: what the nodes are; changes nothing"
expect 0 gpustrap inspect

say "Plan: what each node gets, and why; written to gpustrap.lock.yml"
expect 0 gpustrap plan

say "Apply: the roles run, then every node is verified"
expect 0 gpustrap apply

say "Apply again: nothing changes"
expect 0 gpustrap apply

say "Three people break node1: a package removed, a configuration edited, a service stopped"
on node1 'DEBIAN_FRONTEND=noninteractive apt-get -qq remove -y jq >/dev/null'
on node1 'sed -i s/json-file/none/ /etc/docker/daemon.json'
on node1 'systemctl stop docker.socket docker.service'

say "Drift: found in one round trip, without Ansible (exit code 10)"
expect 10 gpustrap drift

say "Apply: repaired and verified"
expect 0 gpustrap apply

say "Drift: in sync again"
expect 0 gpustrap drift

say "The report"
expect 0 gpustrap report --html
cat <<EOF

Done in $(($(date +%s) - started)) seconds. What rests on a stand-in of the lab is marked "simulated" above.
From $PWD:
  look around:   $TYPE lab shell --lab $LAB node1
  ask again:     $TYPE drift --site '$SITE'
  tear down:     $TYPE lab down --lab $LAB
To type the commands as they stand above:
EOF
[ -z "$sudo" ] || echo "  sudo -s"
echo "  . .venv/bin/activate; export GPUSTRAP_SITE='$SITE'"
