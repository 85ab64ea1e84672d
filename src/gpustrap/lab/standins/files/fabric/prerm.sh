#!/bin/sh
set -e
[ "$1" = remove ] || exit 0
systemctl disable --now nvidia-fabricmanager.service 2>/dev/null || :
