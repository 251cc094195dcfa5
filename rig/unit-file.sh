#!/usr/bin/env bash
# rig/unit-file.sh SEAWAY: whether systemd takes deploy/seaway.service, with SEAWAY in the place of the installed
# program, and thinks it closed enough.
set -eu
seaway=$(readlink -f "$1")
unit=$(dirname "$0")/../deploy/seaway.service
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
sed "s|/usr/local/bin/seaway|$seaway|" "$unit" >"$folder/seaway.service"

# Warnings are told with exit 0: any word about our unit is a fault.
told=$(systemd-analyze verify --man=no "$folder/seaway.service" 2>&1) || { echo "$told"; exit 1; }
if grep -F seaway.service <<<"$told"; then exit 1; fi

# Exposure from 0 (closed) to 100 (a plain root service has 96): what is left is the network, and CAP_NET_ADMIN.
systemd-analyze security --offline=true --threshold=25 "$folder/seaway.service" >"$folder/told" 2>&1 \
    || { cat "$folder/told"; exit 1; }
tail -n 1 "$folder/told"
