"""reset.py PROJECT...: deletes what these projects own, as fast as the APIs allow (see `reset`)."""
from concurrent.futures import ThreadPoolExecutor
import os
import pathlib
import subprocess
import sys
import time

from cloud import Cloud, Refused

cloud = Cloud()
threads = ThreadPoolExecutor(6)
BALANCERS = "/v2/lbaas/loadbalancers"
PLUGGED = pathlib.Path(os.environ["CLOUD"]) / "run" / "plugged"
PATIENCE = 300


def owned(service, path, key, **query):
    return [it for project in projects for it in cloud.all(service, path, key, project_id=project, **query)]


def neutron(kind, key=None):
    return owned("network", f"/v2.0/{kind}", key or kind.replace("-", "_"))


def each(remove, objects):
    """Who is gone, or busy, is looked at again by the caller."""
    def one(it):
        try:
            remove(it)
        except Refused as refused:
            if refused.status not in (404, 409):
                raise
    list(threads.map(one, objects))


def delete(service, path, **query):
    return lambda it: cloud.call("DELETE", service, f"{path}/{it['id']}", **query)


def sql(statement):
    mine = "project_id in ('" + "','".join(projects) + "')"
    subprocess.run(["mariadb", "--no-defaults", "--socket=" + os.environ["MYSQL_SOCKET"], "-uroot", "octavia", "-e",
                    statement.format(mine=mine)], check=True)


def balancers_and_servers():
    begin, force = time.time(), 8
    while True:
        balancers = owned("load-balancer", BALANCERS, "loadbalancers")
        servers = owned("compute", "/servers/detail", "servers", all_tenants=1)
        if not balancers and not servers or time.time() > begin + PATIENCE:
            return
        each(delete("load-balancer", BALANCERS, cascade="true"),
             [it for it in balancers if not it["provisioning_status"].startswith("PENDING")])
        each(delete("compute", "/servers"), [it for it in servers if it["OS-EXT-STS:task_state"] != "deleting"])
        # A provider that died half-way leaves it PENDING for ever. Amphorae are slow, and get more time.
        if time.time() > begin + force:
            sql("update load_balancer set provisioning_status='ERROR' where {mine} and provisioning_status "
                "like 'PENDING%'" + (" and provider <> 'amphora'" if force == 8 else ""))
            force += 30
        time.sleep(0.2)


def drop_router(router):
    path = f"/v2.0/routers/{router['id']}"
    cloud.call("PUT", "network", path, {"router": {"routes": []}})
    for port in cloud.all("network", "/v2.0/ports", "ports", device_id=router["id"]):
        if port["device_owner"] != "network:router_gateway":
            cloud.call("PUT", "network", path + "/remove_router_interface", {"port_id": port["id"]})
    cloud.call("DELETE", "network", path)


def unplug():
    """Namespaces on ports that are no more."""
    for file in PLUGGED.iterdir() if PLUGGED.is_dir() else []:
        ports = [line.split()[1] for line in file.read_text().splitlines() if not line.startswith("foreign")]
        if ports and not any(exists(port) for port in ports):
            subprocess.run([os.environ["RIG_PLUG"], "--remove", file.name], check=True)


def exists(port):
    return cloud.all("network", "/v2.0/ports", "ports", id=port)


names = sys.argv[1:]
projects = [it["id"] for it in cloud.all("identity", "/projects", "projects") if it["name"] in names]
if len(projects) != len(set(names)):
    sys.exit("reset: there is no such project: " + ", ".join(names))
# noop_driver never reports back, so that the API would wait for ever.
sql("update load_balancer set provisioning_status='DELETED' where {mine} and provider='noop_driver'")
balancers_and_servers()
begin = time.time()
while True:
    each(delete("network", "/v2.0/floatingips"), neutron("floatingips"))
    each(drop_router, neutron("routers"))
    each(delete("network", "/v2.0/ports"), neutron("ports"))
    unplug()
    each(delete("network", "/v2.0/networks"), neutron("networks"))
    # What was busy is not for long.
    if not neutron("ports") + neutron("networks") or time.time() > begin + PATIENCE:
        break
    time.sleep(0.2)
# A new `default` appears by itself.
each(delete("network", "/v2.0/security-groups"), neutron("security-groups"))
# What noop_driver had.
for table in ["listener", "pool", "member", "health_monitor", "l7policy", "l7rule"]:
    sql(f"update {table} set provisioning_status='DELETED' where {{mine}}")
    sql(f"update quotas set in_use_load_balancer=0, in_use_{table}=0 where {{mine}}")
left = (owned("load-balancer", BALANCERS, "loadbalancers") + neutron("ports") + neutron("networks")
        + owned("compute", "/servers/detail", "servers", all_tenants=1))
sys.exit("reset: still there: " + ", ".join(it["name"] or it["id"] for it in left) if left else 0)
