# shellcheck shell=bash
# shellcheck disable=SC2154  # settings.sh sets them
# Processes of the cloud, and how to ask them. Sourced, never run; needs settings.sh.
. "$rig/../processes.sh"

is_open() { (exec 3<>"/dev/tcp/$IP/$1") 2>/dev/null; }
answers() { case $(curl -s -o /dev/null -m 5 -w '%{http_code}' "$1") in 2?? | 3?? | 4??) ;; *) return 1 ;; esac; }

sql() { mariadb --no-defaults --socket="$mysql_socket" -uroot "$@"; }
northbound() { ovn-nbctl --db="unix:$nb_socket" "$@"; }
southbound() { ovn-sbctl --db="unix:$sb_socket" "$@"; }
vswitch() { ovs-vsctl --db="unix:$ovs_run/db.sock" "$@"; }
