#!/bin/sh
# Simulated: the lab's channel has no Python of its own; this is the node's.
exec /usr/bin/python3 "$@"
