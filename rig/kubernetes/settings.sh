# shellcheck shell=bash
# shellcheck disable=SC2034  # what is set here is used by those who source it
# Where everything is. Sourced by the commands of this folder, never run.

rig=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

say() { printf '%s\n' "$*"; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

# Shared by all checkouts.
cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/seaway

# locate FOLDER: where a cluster in that folder has what.
locate() {
    dir=$(readlink -m "$1")
    certificates=$dir/certificates log=$dir/log run=$dir/run data=$dir/data
}
locate "${SEAWAY_RIG_KUBERNETES:-${TMPDIR:-/tmp}/seaway-kubernetes-$(id -u)}"

# usage: the comment that the command begins with.
usage() { sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'; exit 2; }
