#!/bin/sh
# Simulated: a docker CLI plugin of the lab, by name only.
if [ "${1:-}" = docker-cli-plugin-metadata ]; then
  echo '{"SchemaVersion": "0.1.0", "Vendor": "gpustrap lab (simulated)", "Version": "@version@", "ShortDescription": "simulated"}'
  exit 0
fi
echo "simulated: this plugin does nothing" >&2
exit 1
