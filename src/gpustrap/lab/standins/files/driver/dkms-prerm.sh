#!/bin/sh
# As debhelper's dh_dkms writes it.
set -e
case "$1" in
remove | upgrade | deconfigure)
    [ ! -d /var/lib/dkms/nvidia/@version@ ] || dkms remove -m nvidia -v @version@ --all
    ;;
esac
