#!/bin/sh
# As debhelper's dh_dkms writes it.
set -e
if [ "$1" = configure ] && [ -x /usr/lib/dkms/common.postinst ]; then
    /usr/lib/dkms/common.postinst nvidia @version@ /usr/share/nvidia "" "${2:-}"
fi
