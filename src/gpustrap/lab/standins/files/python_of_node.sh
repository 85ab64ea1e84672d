#!/bin/bash
# Simulated: the lab's channel has no Python of its own. By the name it is called with, it is the prefix's.
if [ ! -x /usr/bin/python@version@ ]; then
  echo "the lab's channel has no Python of its own (simulated), and this node has no /usr/bin/python@version@" >&2
  exit 127
fi
exec -a "$0" /usr/bin/python@version@ "$@"
