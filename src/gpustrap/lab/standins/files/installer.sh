#!/bin/sh
# Miniforge3 @version@, simulated: a stand-in of the gpustrap lab with the options of the real installer.
set -eu
prefix=$HOME/miniforge3 batch=0 force=0 update=0
usage() {
  echo "usage: $0 [options]

Installs Miniforge3 @version@ (simulated)

-b           run install in batch mode (without manual intervention)
-f           no error if install prefix already exists
-h           print this help message and exit
-p PREFIX    install prefix, defaults to $prefix
-u           update an existing installation"
}
while getopts bfhp:u option; do
  case $option in
    b) batch=1 ;;
    f) force=1 ;;
    h) usage; exit 0 ;;
    p) prefix=$OPTARG ;;
    u) update=1 ;;
    *) usage >&2; exit 1 ;;
  esac
done
if [ "$batch" = 0 ]; then
  echo "ERROR: this stand-in runs in batch mode only (-b)" >&2
  exit 1
fi
if [ "$force" = 0 ] && [ "$update" = 0 ] && [ -e "$prefix" ]; then
  echo "ERROR: File or directory already exists: '$prefix'
If you want to update an existing installation, use the -u option." >&2
  exit 1
fi
if [ ! -x /usr/bin/python3 ]; then
  echo "ERROR: this stand-in needs /usr/bin/python3" >&2
  exit 1
fi
echo "PREFIX=$prefix"
mkdir -p "$prefix"
rm -rf "$prefix/lib/standin"
tail -c @size@ "$0" | tar -xz --no-same-owner -C "$prefix"
"$prefix/bin/conda" --version >/dev/null
echo "installation finished. (simulated)"
exit 0
