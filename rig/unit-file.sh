#!/usr/bin/env bash
# rig/unit-file.sh SEAWAY: whether systemd takes the units of deploy/, with SEAWAY in the place of the installed program,
# and thinks them closed enough.
set -eu
seaway=$(readlink -f "$1")
deploy=$(dirname "$0")/../deploy
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

for unit in seaway.service seaway-node.service; do
    # An account that is made before it is installed is stood in for by one that is everywhere.
    sed -e "s|/usr/local/bin/seaway|$seaway|" -e 's/^User=seaway$/User=daemon/' "$deploy/$unit" >"$folder/$unit"

    # Warnings are told with exit 0: any word about our unit is a fault.
    told=$(systemd-analyze verify --man=no "$folder/$unit" 2>&1) || { echo "$told"; exit 1; }
    if grep -F "$unit" <<<"$told"; then exit 1; fi

    # Exposure from 0 (closed) to 100 (a plain root service has 96): what is left is the network, and CAP_NET_ADMIN.
    systemd-analyze security --offline=true --threshold=25 "$folder/$unit" >"$folder/told" 2>&1 \
        || { cat "$folder/told"; exit 1; }
    tail -n 1 "$folder/told"
done
