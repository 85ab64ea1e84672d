"""SSH by paramiko: host keys, sessions, enrolling, and the fan-out of the probe."""
