# shellcheck shell=bash
# shellcheck disable=SC2034  # what is set here is used by those who source it
# Where everything is, and every setting. Sourced by the commands of this folder, never run.

rig=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# What `install` makes, shared by all checkouts: each folder carries in its name what it was made from.
cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/seaway/openstack

# There is one cloud at a time on a machine (octavia-lib has its sockets in one place). This leads to the running one.
running_cloud=/run/seaway-openstack

# The folder of the cloud: credentials, configuration, databases, logs, process ids, sockets.
if [ -z "${SEAWAY_RIG_OPENSTACK:-}" ]; then
    SEAWAY_RIG_OPENSTACK=$(readlink -e "$running_cloud") || SEAWAY_RIG_OPENSTACK=$cache/cloud
fi
SEAWAY_RIG_OPENSTACK=$(readlink -m "$SEAWAY_RIG_OPENSTACK")

# locate FOLDER: where a cloud in that folder has what.
locate() {
    cloud=$1 etc=$1/etc log=$1/log run=$1/run data=$1/data
    mysql_socket=$run/mysql.sock
    ovs_run=$run/ovs
    nb_socket=$ovs_run/ovnnb_db.sock
    sb_socket=$ovs_run/ovnsb_db.sock
    export OVS_RUNDIR=$ovs_run OVN_RUNDIR=$ovs_run
}
locate "$SEAWAY_RIG_OPENSTACK"

# setting NAME DEFAULT: RIG_NAME of the environment, else what the cloud was started with, else the default.
declare -A remembered=()
settings=
setting() {
    local given=RIG_$1
    declare -g "$1=${!given:-${remembered[$1]:-$2}}"
    settings="$settings $1"
}
# shellcheck disable=SC1091
[ ! -f "$cloud/settings" ] || . "$cloud/settings"

# Everything listens here, and only here.
IP=127.0.0.1
setting KEYSTONE_PORT 5000
setting PLACEMENT_PORT 8778
setting GLANCE_PORT 9292
setting NOVA_PORT 8774
setting NEUTRON_PORT 9696
setting OCTAVIA_PORT 9876
setting BARBICAN_PORT 9311
setting RABBIT_PORT 5672
setting RABBIT_DIST_PORT 25672
setting EPMD_PORT 4369
setting MEMCACHED_PORT 11211

# What a server of Nova is: `netns`, a network namespace (nova/netns.py), or `fake`, a row in a database.
setting NOVA_DRIVER netns
# 1: user data that begins with "#!" runs in the server's namespace, as root on this machine.
setting RUN_USER_DATA 0
# uWSGI processes for each API.
setting API_WORKERS 1
# true: much longer logs.
setting DEBUG false

# Namespaces of the cloud itself: where ovs-vswitchd and its bridges are, and the internet, which owns EXT_GW.
setting NS_OVS rig-ovs
setting NS_EXT rig-ext
setting EXT_CIDR 172.24.4.0/24
setting EXT_GW 172.24.4.1
setting EXT_POOL_START 172.24.4.10
setting EXT_POOL_END 172.24.4.250

# A cloud on loopback that is thrown away: nothing here is a secret.
setting REGION RegionOne
setting ADMIN_PASSWORD adminpw
setting DEMO_PASSWORD demopw
setting SVC_PASSWORD svcpw
# The host as Nova, Neutron and OVN know it.
setting CHASSIS rig

# Proxies are for the way out: loopback is none of it.
export no_proxy="127.0.0.1,localhost" NO_PROXY="127.0.0.1,localhost" LC_ALL=C.UTF-8
# A checkout is not written to.
export PYTHONDONTWRITEBYTECODE=1

say() { printf '%s %s\n' "$(date +%H:%M:%S)" "$*"; }
die() { printf '%s: %s\n' "$(basename "$0")" "$*" >&2; exit 1; }

need_root() { [ "$(id -u)" = 0 ] || die "it needs root (network namespaces, Open vSwitch). Type: sudo $0"; }

# hash_of FILE...: short, of all that they hold.
hash_of() { cat "$@" | sha256sum | cut -c1-12; }

# What `install` makes. A folder is whole when it has a file `.whole`, which is written last.
python=$cache/python-$(hash_of "$rig"/requirements{,-build}.txt <(/usr/bin/python3 --version 2>&1))
bin=$python/bin
# Databases with every schema in place: they depend on who migrated them, and on what filled them.
databases=$cache/databases-$(hash_of "$rig"/{requirements.txt,databases.sh,config.sh,seed.py,cloud.py,project.py} \
    <(dpkg-query -W mariadb-server 2>/dev/null))

# For the Python beside this, which reads no file of settings.
export_settings() {
    # shellcheck disable=SC2163  # their names, as meant
    for name in $settings; do export "$name"; done
    export CLOUD=$cloud MYSQL_SOCKET=$mysql_socket RIG_PLUG=$rig/plug
}
