#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
/usr/bin/nvidia-ctk --quiet config --config-file=/etc/nvidia-container-runtime/config.toml --in-place
case $(systemctl is-system-running 2>/dev/null || :) in
running | degraded)
    systemctl daemon-reload
    systemctl enable --now nvidia-cdi-refresh.path nvidia-cdi-refresh.service ||
        echo "Warning: Failed to enable nvidia-cdi-refresh" >&2
    ;;
esac
