#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
getent passwd nvidia-persistenced >/dev/null ||
    useradd --system --no-create-home --home-dir /nonexistent --shell /usr/sbin/nologin nvidia-persistenced
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
systemctl enable --quiet nvidia-persistenced.service
systemctl restart nvidia-persistenced.service || echo "nvidia-persistenced does not start yet" >&2
