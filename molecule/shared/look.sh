#!/bin/sh
# What the node says of itself, one name=value per line.
set -u
echo "state=$(systemctl is-system-running)"
echo "docker=$(systemctl is-active docker.service)"
echo "driver=$(docker info --format '{{.LoggingDriver}}')"
echo "zone=$(readlink /etc/localtime)"
echo "self=$(getent hosts node)"
echo "timesync=$(systemctl is-enabled systemd-timesyncd.service)"
echo "upgrades=$(dpkg-query -Wf '${db:Status-Status}' unattended-upgrades)"
echo "periodic=$(apt-config dump APT::Periodic::Unattended-Upgrade --format '%v')"
echo "conda=$(/opt/conda/bin/conda --version)"
echo "daemon=$(tr -d '\n' </etc/docker/daemon.json)"
