# shellcheck shell=bash
# shellcheck disable=SC2154  # settings.sh sets them
# A data folder of MariaDB with every schema migrated, and with users and catalog: migrating takes minutes, copying
# less than a second. Sourced by `install`, never run.

# make_databases FOLDER
make_databases() {
    local folder=$1 name nova one two port
    rm -rf "$folder" "$folder.work"
    locate "$folder.work"
    write_config
    export_config_env
    # Beside a cloud that runs: at another port than its Keystone, and not with what it remembers.
    port=$(/usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
    sed -i "s/^http-socket = .*/http-socket = $IP:$port/" "$etc/uwsgi-keystone.ini"
    sed -i '/^\[cache\]/,/^\[/s/^enabled = true/enabled = false/' "$etc/keystone/keystone.conf"
    mariadb-install-db --no-defaults --user=root --datadir="$data/mysql" \
        --auth-root-authentication-method=normal --skip-test-db >"$log/mysql-install.log" 2>&1
    trap 'stop_all 30 $(started); rm -rf "$cloud"' EXIT
    start mariadbd mariadbd --defaults-file="$etc/my.cnf"
    wait_for 60 MariaDB sql -e 'select 1'
    for name in keystone placement glance neutron octavia barbican nova_api nova_cell0 nova_cell1; do
        sql -e "create database if not exists $name"
    done
    nova="$bin/nova-manage --config-file $etc/nova/nova.conf"
    {
        $nova api_db sync &&
            $nova cell_v2 map_cell0 --database_connection "$(db_url nova_cell0)" &&
            $nova cell_v2 create_cell --name cell1 --database_connection "$(db_url nova_cell1)" \
                --transport-url "rabbit://guest:guest@$IP:$RABBIT_PORT/" &&
            $nova db sync
    } >"$log/nova.log" 2>&1 &
    one=$!
    {
        "$bin/neutron-db-manage" --config-file "$etc/neutron/neutron.conf" upgrade heads &&
            "$bin/placement-manage" --config-file "$etc/placement/placement.conf" db sync &&
            "$bin/keystone-manage" --config-file "$etc/keystone/keystone.conf" db_sync &&
            "$bin/glance-manage" --config-file "$etc/glance/glance-api.conf" db_sync &&
            HOME=$etc/barbican "$bin/barbican-manage" db upgrade &&
            "$bin/octavia-db-manage" --config-file "$etc/octavia/octavia.conf" upgrade head
    } >"$log/others.log" 2>&1 &
    two=$!
    wait $one || cut_short nova
    wait $two || cut_short others
    # Users, roles and catalog too, for the default ports and passwords, by a Keystone that runs for a moment.
    keystone_keys
    keystone_bootstrap >"$log/bootstrap.log" 2>&1 || cut_short bootstrap
    start keystone "$bin/uwsgi" --ini "$etc/uwsgi-keystone.ini"
    sed -i '/^\[cache\]/,/^\[/s/^enabled = true/enabled = false/' "$etc/keystone/keystone.conf"
    wait_for 60 Keystone answers "http://$IP:$port/v3"
    KEYSTONE_PORT=$port /usr/bin/python3 "$rig/seed.py" identity >"$log/seed.log" 2>&1 || cut_short seed
    identity_stamp >"$data/mysql/.identity"
    stop_all 60 keystone mariadbd
    trap - EXIT
    mv "$data/mysql" "$folder"
    touch "$folder/.whole"
    rm -rf "$cloud"
    locate "$SEAWAY_RIG_OPENSTACK"
}

cut_short() {
    tail -n 20 "$log/$1.log" >&2
    die "the databases could not be made ($1)"
}
