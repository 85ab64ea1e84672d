#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
exec /usr/bin/python3 -I "$here/../lib/standin/conda_program.py" "$@"
