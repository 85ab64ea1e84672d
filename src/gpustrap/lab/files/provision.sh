# shellcheck shell=sh
# Makes a minimal Debian or Ubuntu tree look like a freshly installed server. Runs as root inside it.
set -eu

if ! id ubuntu >/dev/null 2>&1; then
    useradd --create-home --shell /bin/bash --comment Ubuntu ubuntu
fi
usermod --append --groups sudo ubuntu
passwd --lock ubuntu >/dev/null
passwd --lock root >/dev/null

# Every node makes its own at its first boot, and keeps them.
rm -f /etc/ssh/ssh_host_* /etc/machine-id /var/lib/dbus/machine-id
: >/etc/machine-id
systemctl enable lab-ssh-host-keys.service >/dev/null 2>&1
systemctl set-default multi-user.target >/dev/null 2>&1

update-ca-certificates >/dev/null 2>&1
rm -rf /var/lib/apt/lists/* /var/log/apt /var/log/*.log /var/cache/apt/*.bin /var/cache/apt/archives/*.deb
