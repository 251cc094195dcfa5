# shellcheck shell=bash
# shellcheck disable=SC2154  # settings.sh sets them
# Every configuration file of the cloud. Sourced by `install` and `up`, never run; needs settings.sh.

# put FILE: what comes in, if it is something new.
put() {
    local tmp; tmp=$(mktemp "$etc/.put.XXXXXX")
    cat >"$tmp"
    if cmp -s "$tmp" "$1"; then rm -f "$tmp"; else mkdir -p "$(dirname "$1")"; mv "$tmp" "$1"; fi
}

# auth_section USER: how one service signs in.
auth_section() {
    cat <<E
auth_type = password
auth_url = http://$IP:$KEYSTONE_PORT/v3
username = $1
password = $SVC_PASSWORD
project_name = service
user_domain_name = Default
project_domain_name = Default
region_name = $REGION
E
}

# authtoken USER: how one API checks the tokens of its callers.
authtoken() {
    cat <<E
[keystone_authtoken]
www_authenticate_uri = http://$IP:$KEYSTONE_PORT/v3
memcached_servers = $IP:$MEMCACHED_PORT
service_token_roles = service
service_token_roles_required = true
$(auth_section "$1")
E
}

# What every service has in [DEFAULT].
common() {
    cat <<E
debug = $DEBUG
use_stderr = true
transport_url = rabbit://guest:guest@$IP:$RABBIT_PORT/
E
}

rabbit_section() {
    cat <<E
[oslo_messaging_rabbit]
heartbeat_timeout_threshold = 0
[oslo_messaging_notifications]
driver = noop
[oslo_middleware]
enable_proxy_headers_parsing = true
E
}

db_url() { printf 'mysql+pymysql://root@localhost/%s?unix_socket=%s&charset=utf8mb4' "$1" "$mysql_socket"; }

# database NAME [SECTION]
database() {
    cat <<E
[${2:-database}]
connection = $(db_url "$1")
max_pool_size = 5
# Some calls that Octavia refuses keep their connection for minutes.
max_overflow = 1000
E
}

# uwsgi_ini NAME PORT MODULE|FILE [LINES]
uwsgi_ini() {
    local app="module = $3" workers="processes = $API_WORKERS
threads = 4"
    case $3 in /*) app="wsgi-file = $3" ;; esac
    # In threads of one process, Keystone refuses now and then what comes at once (seen: 400 `unassigned role`); in
    # processes it does not. The second is for when a client that does not speak holds the first.
    [ "$1" != keystone ] || workers="processes = 2
threads = 1"
    put "$etc/uwsgi-$1.ini" <<E
[uwsgi]
$app
http-socket = $IP:$2
$workers
enable-threads = true
master = true
need-app = true
lazy-apps = true
thunder-lock = true
die-on-term = true
buffer-size = 65535
# uWSGI closes the connection after each answer without saying so: a client that keeps connections would send the next
# request into its end.
add-header = Connection: close
http-chunked-input = true
http-raw-body = true
hook-master-start = unix_signal:15 gracefully_kill_them_all
worker-reload-mercy = 5
log-x-forwarded-for = false
${4:-}
E
}

write_config() {
    mkdir -p "$etc" "$log" "$run" "$ovs_run" "$data"

    # --- Databases and messages. Nothing is flushed: this cloud is thrown away.
    put "$etc/my.cnf" <<E
[mysqld]
user = root
datadir = $data/mysql
socket = $mysql_socket
pid-file = $data/mariadbd.pid
skip-networking
skip-name-resolve
skip-log-bin
default-time-zone = '+00:00'
character-set-server = utf8mb4
collation-server = utf8mb4_general_ci
max_connections = 2000
performance_schema = off
innodb_buffer_pool_size = 256M
innodb_log_file_size = 32M
innodb_flush_log_at_trx_commit = 0
innodb_flush_method = nosync
innodb_doublewrite = 0
# A change that Octavia's worker lost to a deadlock leaves a load balancer in ERROR: mariadbd.log then says with whom.
innodb_print_all_deadlocks = ON
E
    put "$etc/rabbitmq.conf" <<E
listeners.tcp.default = $IP:$RABBIT_PORT
loopback_users = none
log.console = false
log.file.level = warning
disk_free_limit.absolute = 50MB
vm_memory_high_watermark.absolute = 1GB
management_agent.disable_metrics_collector = true
E
    put "$etc/rabbitmq-plugins" <<<"[]."

    # --- Keystone
    put "$etc/keystone/keystone.conf" <<E
[DEFAULT]
use_stderr = true
debug = $DEBUG
max_token_size = 16384
$(database keystone)
[token]
provider = fernet
expiration = 14400
[fernet_tokens]
key_repository = $data/keystone/fernet-keys
# Keystone loads the receipts of multi-factor logins too, and ends without keys for them.
[fernet_receipts]
key_repository = $data/keystone/fernet-keys
[credential]
key_repository = $data/keystone/credential-keys
[cache]
enabled = true
backend = dogpile.cache.memcached
memcache_servers = $IP:$MEMCACHED_PORT
# Tests sign in very often: hashing is cheap.
[identity]
password_hash_algorithm = bcrypt
password_hash_rounds = 4
[oslo_policy]
enforce_scope = true
enforce_new_defaults = true
[oslo_middleware]
enable_proxy_headers_parsing = true
E
    uwsgi_ini keystone "$KEYSTONE_PORT" keystone.wsgi.api:application

    # --- Placement
    put "$etc/placement/placement.conf" <<E
[DEFAULT]
use_stderr = true
[api]
auth_strategy = keystone
$(authtoken placement)
$(database placement placement_database)
E
    uwsgi_ini placement "$PLACEMENT_PORT" placement.wsgi.api:application

    # --- Glance
    put "$etc/glance/glance-api.conf" <<E
[DEFAULT]
$(common)
bind_host = $IP
enabled_backends = files:file
worker_self_reference_url = http://$IP:$GLANCE_PORT
$(database glance)
$(authtoken glance)
[paste_deploy]
flavor = keystone
config_file = $python/etc/glance/glance-api-paste.ini
[glance_store]
default_backend = files
[files]
filesystem_store_datadir = $data/glance/images
[os_glance_staging_store]
filesystem_store_datadir = $data/glance/staging
[os_glance_tasks_store]
filesystem_store_datadir = $data/glance/tasks
[image_format]
disk_formats = ami,ari,aki,vhd,vhdx,vmdk,raw,qcow2,vdi,iso,ploop
[oslo_concurrency]
lock_path = $data/glance/lock
$(rabbit_section)
E
    mkdir -p "$data/glance/"{images,staging,tasks,lock}
    uwsgi_ini glance "$GLANCE_PORT" glance.wsgi.api:application

    # --- Nova
    local nova_db driver
    case $NOVA_DRIVER in
        # The plain FakeDriver forgets who it is, and refuses to start a second time.
        fake) driver=fake.FakeDriverWithoutFakeNodes ;;
        netns) driver=netns.NetnsDriver ;;
        *) die "NOVA_DRIVER is fake or netns, not $NOVA_DRIVER" ;;
    esac
    nova_db=$(database nova_api api_database; database nova_cell1 database)
    nova_conf() { cat <<E
[DEFAULT]
$(common)
host = $CHASSIS
my_ip = $IP
state_path = $data/nova
compute_driver = $driver
vif_plugging_is_fatal = false
vif_plugging_timeout = 0
cpu_allocation_ratio = 16.0
reserved_host_memory_mb = 0
update_resources_interval = 60
osapi_compute_listen = $IP
[api]
auth_strategy = keystone
$(authtoken nova)
$1
[service_user]
send_service_user_token = true
$(auth_section nova)
[placement]
$(auth_section placement)
[neutron]
$(auth_section neutron)
[glance]
$(auth_section glance)
[cinder]
$(auth_section nova)
[vnc]
enabled = false
[spice]
enabled = false
[scheduler]
workers = 1
discover_hosts_in_cells_interval = -1
[conductor]
workers = 1
[oslo_concurrency]
lock_path = $data/nova/lock
[compute]
resource_provider_association_refresh = 0
$(rabbit_section)
E
    }
    nova_conf "$nova_db" | put "$etc/nova/nova.conf"
    # Hosts do not know the databases, as in production.
    nova_conf "" | put "$etc/nova/nova-compute.conf"
    put "$etc/nova/api-paste.ini" <"$python/etc/nova/api-paste.ini"
    mkdir -p "$data/nova/"{lock,instances}
    uwsgi_ini nova-api "$NOVA_PORT" nova.wsgi.osapi_compute:application

    # --- Neutron (ML2/OVN)
    put "$etc/neutron/neutron.conf" <<E
[DEFAULT]
$(common)
host = $CHASSIS
bind_host = $IP
state_path = $data/neutron
auth_strategy = keystone
core_plugin = ml2
service_plugins = ovn-router,segments,port_forwarding,trunk,qos
api_paste_config = $python/etc/neutron/api-paste.ini
rpc_workers = 0
rpc_state_report_workers = 0
notify_nova_on_port_status_changes = true
notify_nova_on_port_data_changes = true
allow_overlapping_ips = true
max_routes = 100
max_allowed_address_pair = 100
$(authtoken neutron)
$(database neutron)
[nova]
$(auth_section nova)
[placement]
$(auth_section placement)
[quotas]
quota_port = -1
[oslo_concurrency]
lock_path = $data/neutron/lock
[ml2]
type_drivers = local,flat,vlan,geneve
tenant_network_types = geneve
mechanism_drivers = ovn
# No DNS extension: Neutron then writes a column that the OVN of Debian 12 does not have yet.
extension_drivers = port_security,qos
overlay_ip_version = 4
[ml2_type_flat]
flat_networks = *
[ml2_type_vlan]
network_vlan_ranges = public:100:199
[ml2_type_geneve]
vni_ranges = 1:65535
max_header_size = 38
[securitygroup]
enable_security_group = true
[ovn]
ovn_nb_connection = unix:$nb_socket
ovn_sb_connection = unix:$sb_socket
ovn_metadata_enabled = false
ovn_emit_need_to_frag = false
enable_distributed_floating_ip = false
$(rabbit_section)
E
    mkdir -p "$data/neutron/lock"
    uwsgi_ini neutron-api "$NEUTRON_PORT" neutron.wsgi.api:application "start-time = %t"

    # --- Barbican (certificates)
    # Barbican looks only into ~/.barbican and /etc/barbican: `up` gives it a HOME.
    put "$etc/barbican/.barbican/barbican.conf" <<E
[DEFAULT]
$(common)
host_href = http://$IP:$BARBICAN_PORT
db_auto_create = false
$(database barbican)
$(authtoken barbican)
[secretstore]
enabled_secretstore_plugins = store_crypto
[crypto]
enabled_crypto_plugins = simple_crypto
[simple_crypto_plugin]
kek = dGhpcnR5X3R3b19ieXRlX2tleWJsYWhibGFoYmxhaGg=
[queue]
enable = false
$(rabbit_section)
E
    put "$etc/barbican/wsgi.py" <<E
from paste import deploy
application = deploy.loadapp("config:$python/etc/barbican/barbican-api-paste.ini")
E
    uwsgi_ini barbican "$BARBICAN_PORT" "$etc/barbican/wsgi.py"

    # --- Octavia
    put "$etc/octavia/octavia.conf" <<E
[DEFAULT]
$(common)
host = $CHASSIS
octavia_plugins = hot_plug_plugin
# Where a request of OVN's provider ends in an exception, its load balancer stays PENDING: the report of a test that failed has
# what the provider logged.
default_log_levels = ovn_octavia_provider=DEBUG,amqp=WARN,amqplib=WARN,sqlalchemy=WARN,oslo.messaging=INFO,oslo_messaging=INFO,iso8601=WARN,requests.packages.urllib3.connectionpool=WARN,urllib3.connectionpool=WARN,websocket=WARN,keystonemiddleware=WARN,routes.middleware=WARN,stevedore=WARN,taskflow=WARN,keystoneauth=WARN,oslo.cache=INFO,dogpile.core.dogpile=INFO
[api_settings]
bind_host = $IP
bind_port = $OCTAVIA_PORT
api_base_uri = http://$IP:$OCTAVIA_PORT
auth_strategy = keystone
enabled_provider_drivers = ovn:Layer 4 load balancing in OVN (real),amphora:Layer 7 control plane with simulated amphorae,noop_driver:Accepts everything and never reports back
default_provider_driver = ovn
allow_tls_terminated_listeners = true
allow_ping_health_monitors = true
allow_prometheus_listeners = true
$(database octavia)
$(authtoken octavia)
[service_auth]
$(auth_section octavia)
[neutron]
$(auth_section octavia)
[glance]
$(auth_section octavia)
[nova]
$(auth_section octavia)
[certificates]
cert_manager = barbican_cert_manager
barbican_auth = barbican_acl_auth
endpoint_type = publicURL
region_name = $REGION
cert_generator = local_cert_generator
ca_certificate = $etc/octavia/ca.pem
ca_private_key = $etc/octavia/ca.key
ca_private_key_passphrase = unused
server_certs_key_passphrase = insecure-key-do-not-use-this-key
[haproxy_amphora]
client_cert = $etc/octavia/client.pem
server_ca = $etc/octavia/ca.pem
[controller_worker]
# The amphora provider is real towards Neutron, Nova and Glance; only what it would say to the software inside of the
# amphora is not (amphora_noop_driver): objects of layer 7 end ACTIVE, and nothing forwards their traffic.
workers = 1
client_ca = $etc/octavia/ca.pem
amphora_driver = amphora_noop_driver
compute_driver = compute_nova_driver
network_driver = allowed_address_pairs_driver
image_driver = image_glance_driver
volume_driver = volume_noop_driver
distributor_driver = distributor_noop_driver
loadbalancer_topology = SINGLE
amp_flavor_id = amphora
amp_image_tag = amphora
amp_active_retries = 120
amp_active_wait_sec = 1
# amp_boot_network_list is in worker.conf, by seed.py.
[health_manager]
bind_ip = $IP
heartbeat_key = insecure
[oslo_messaging]
topic = octavia_prov
rpc_thread_pool_size = 2
[driver_agent]
enabled_provider_agents = ovn
# octavia-lib has these three paths built in on the side that connects.
status_socket_path = /var/run/octavia/status.sock
stats_socket_path = /var/run/octavia/stats.sock
get_socket_path = /var/run/octavia/get.sock
[ovn]
ovn_nb_connection = unix:$nb_socket
ovn_sb_connection = unix:$sb_socket
$(rabbit_section)
E
    # The amphora provider wants a certificate authority even where amphorae are simulated.
    if [ ! -s "$etc/octavia/client.pem" ]; then
        (
            cd "$etc/octavia" || exit
            openssl req -x509 -newkey rsa:2048 -passout pass:unused -days 3650 -subj /CN=seaway-rig-ca -keyout ca.key -out ca.pem
            openssl req -newkey rsa:2048 -nodes -subj /CN=seaway-rig-client -keyout client.key -out client.csr
            openssl x509 -req -in client.csr -CA ca.pem -CAkey ca.key -passin pass:unused -CAcreateserial -days 3650 \
                -out client.crt
            cat client.crt client.key >client.pem
        ) >"$log/openssl.log" 2>&1
    fi
    uwsgi_ini octavia-api "$OCTAVIA_PORT" octavia.wsgi.api:application "pyargv = --config-file $etc/octavia/octavia.conf"
}

# What users and catalog in the database depend on.
identity_stamp() {
    printf '%s ' "$REGION" "$KEYSTONE_PORT" "$PLACEMENT_PORT" "$GLANCE_PORT" "$NOVA_PORT" "$NEUTRON_PORT" \
        "$OCTAVIA_PORT" "$BARBICAN_PORT" "$ADMIN_PASSWORD" "$DEMO_PASSWORD" "$SVC_PASSWORD" | sha256sum | cut -d' ' -f1
}

# What `keystone-manage fernet_setup` and `credential_setup` make, two keys each.
keystone_keys() {
    local kind key
    (
        umask 077
        for kind in fernet-keys credential-keys; do
            mkdir -p "$data/keystone/$kind"
            for key in 0 1; do openssl rand -base64 32 | tr -d '\n' | tr '+/' '-_' >"$data/keystone/$kind/$key"; done
        done
    )
}

keystone_bootstrap() {
    "$bin/keystone-manage" --config-file "$etc/keystone/keystone.conf" bootstrap \
        --bootstrap-password "$ADMIN_PASSWORD" --bootstrap-region-id "$REGION" \
        --bootstrap-admin-url "http://$IP:$KEYSTONE_PORT/v3" \
        --bootstrap-internal-url "http://$IP:$KEYSTONE_PORT/v3" \
        --bootstrap-public-url "http://$IP:$KEYSTONE_PORT/v3"
}

# By these each service finds its configuration, and seed.py its settings.
export_config_env() {
    export REGION KEYSTONE_PORT PLACEMENT_PORT GLANCE_PORT NOVA_PORT NEUTRON_PORT OCTAVIA_PORT BARBICAN_PORT \
        ADMIN_PASSWORD DEMO_PASSWORD SVC_PASSWORD EXT_CIDR EXT_GW EXT_POOL_START EXT_POOL_END CHASSIS
    export OS_KEYSTONE_CONFIG_DIR=$etc/keystone OS_KEYSTONE_CONFIG_FILES=keystone.conf
    export OS_PLACEMENT_CONFIG_DIR=$etc/placement
    export OS_GLANCE_CONFIG_DIR=$etc/glance OS_GLANCE_CONFIG_FILES=glance-api.conf
    export OS_NOVA_CONFIG_DIR=$etc/nova
    export OS_NEUTRON_CONFIG_DIR=$etc/neutron OS_NEUTRON_CONFIG_FILES=neutron.conf
}
