#!/bin/sh
set -e
[ "$1" = remove ] || exit 0
systemctl disable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service 2>/dev/null || :
