"""What a cloud has from the beginning. Looks before it makes anything, so it may be run again.

    seed.py identity            users, projects, roles, catalog                              (needs Keystone)
    seed.py resources FILE      flavors, images, the external network, quotas, and what the amphora provider makes its
                                simulated amphorae from, told in FILE                        (needs every API)
"""
from concurrent.futures import ThreadPoolExecutor
import os
import sys

from cloud import Cloud
from project import ROLES, quotas

CATALOG = [("nova", "compute", "NOVA_PORT", "/v2.1"), ("placement", "placement", "PLACEMENT_PORT", ""),
           ("glance", "image", "GLANCE_PORT", ""), ("neutron", "network", "NEUTRON_PORT", ""),
           ("octavia", "load-balancer", "OCTAVIA_PORT", ""), ("barbican", "key-manager", "BARBICAN_PORT", "")]
OTHER_ROLES = ["service", "creator", "load-balancer_observer", "load-balancer_global_observer", "load-balancer_member",
               "load-balancer_quota_admin", "load-balancer_admin"]
FLAVORS = [("1", "m1.nano", 64, 1, 1), ("2", "m1.small", 2048, 20, 1), ("3", "m1.medium", 4096, 40, 2),
           ("4", "m1.large", 8192, 80, 4)]
OWNERS = ["demo", "alt"]


def identity():
    cloud = Cloud()

    def ids(kind):
        return {it["name"]: it["id"] for it in cloud.all("identity", "/" + kind, kind)}

    def make(kind, one, **what):
        return cloud.call("POST", "identity", "/" + kind, {one: what})[one]["id"]

    roles, projects, users = ids("roles"), ids("projects"), ids("users")
    for name in OTHER_ROLES:
        if name not in roles:
            roles[name] = make("roles", "role", name=name)
    for name in ["service", *OWNERS]:
        if name not in projects:
            projects[name] = make("projects", "project", name=name, domain_id="default")

    def user(name, password, project, grants):
        if name not in users:
            users[name] = make("users", "user", name=name, password=password, domain_id="default")
        elif password:
            cloud.call("PATCH", "identity", "/users/" + users[name], {"user": {"password": password}})
        for role in grants:
            cloud.call("PUT", "identity", f"/projects/{projects[project]}/users/{users[name]}/roles/{roles[role]}")

    for name, *_ in CATALOG:
        user(name, os.environ["SVC_PASSWORD"], "service", ["admin", "service"])
    for name in OWNERS:
        user(name, os.environ["DEMO_PASSWORD"], name, ROLES)
    user("admin", None, "admin", ["load-balancer_admin"])

    services = {it["type"]: it["id"] for it in cloud.all("identity", "/services", "services")}
    endpoints = {(it["service_id"], it["interface"]): it for it in cloud.all("identity", "/endpoints", "endpoints")}
    for name, kind, port, path in CATALOG:
        url = f"http://127.0.0.1:{os.environ[port]}{path}"
        service = services.get(kind) or make("services", "service", name=name, type=kind)
        where = {"url": url, "region_id": os.environ["REGION"]}
        for interface in ["public", "internal", "admin"]:
            old = endpoints.get((service, interface))
            if old is None:
                make("endpoints", "endpoint", service_id=service, interface=interface, **where)
            elif any(old[key] != value for key, value in where.items()):
                cloud.call("PATCH", "identity", "/endpoints/" + old["id"], {"endpoint": where})


def resources(file):
    cloud = Cloud()
    amphorae(cloud, file)
    # Each of these waits for another service most of the time.
    with ThreadPoolExecutor(4) as threads:
        for job in [threads.submit(it, cloud) for it in (flavors, images, external_network, owners)]:
            job.result()


def flavors(cloud, wanted=FLAVORS):
    have = {it["name"] for it in cloud.all("compute", "/flavors", "flavors")}
    for id, name, ram, disk, vcpus in wanted:
        if name not in have:
            cloud.call("POST", "compute", "/flavors", {"flavor": {
                "id": id, "name": name, "ram": ram, "disk": disk, "vcpus": vcpus}})


def images(cloud, name="test-image", tags=()):
    if cloud.named("image", "/v2/images", "images", name):
        return
    image = cloud.call("POST", "image", "/v2/images", {
        "name": name, "disk_format": "raw", "container_format": "bare", "visibility": "public", "tags": list(tags)})
    cloud.upload(f"/v2/images/{image['id']}/file", b"nothing boots from this\n")


def external_network(cloud):
    network = cloud.named("network", "/v2.0/networks", "networks", "public")
    if network is None:
        network = cloud.call("POST", "network", "/v2.0/networks", {"network": {
            "name": "public", "router:external": True, "provider:network_type": "flat",
            "provider:physical_network": "public"}})["network"]
    if cloud.named("network", "/v2.0/subnets", "subnets", "public-subnet") is None:
        cloud.call("POST", "network", "/v2.0/subnets", {"subnet": {
            "name": "public-subnet", "network_id": network["id"], "ip_version": 4, "cidr": os.environ["EXT_CIDR"],
            "gateway_ip": os.environ["EXT_GW"], "enable_dhcp": False,
            "allocation_pools": [{"start": os.environ["EXT_POOL_START"], "end": os.environ["EXT_POOL_END"]}]}})


def owners(cloud):
    for name in OWNERS:
        quotas(cloud, cloud.named("identity", "/projects", "projects", name)["id"])


def amphorae(cloud, file):
    """A management network, a flavor and a tagged image. The worker waits for FILE: it is written as soon as it can be."""
    network = cloud.named("network", "/v2.0/networks", "networks", "lb-mgmt-net")
    if network is None:
        project = cloud.named("identity", "/projects", "projects", "service")["id"]
        network = cloud.call("POST", "network", "/v2.0/networks", {"network": {
            "name": "lb-mgmt-net", "project_id": project}})["network"]
        cloud.call("POST", "network", "/v2.0/subnets", {"subnet": {
            "name": "lb-mgmt-subnet", "network_id": network["id"], "ip_version": 4, "cidr": "192.168.250.0/23",
            "project_id": project}})
    with open(file + ".new", "w") as new:
        new.write(f"[controller_worker]\namp_boot_network_list = {network['id']}\n")
    os.rename(file + ".new", file)
    flavors(cloud, [("amphora", "amphora", 64, 1, 1)])
    images(cloud, "amphora", ["amphora"])


if __name__ == "__main__":
    {"identity": identity, "resources": resources}[sys.argv[1]](*sys.argv[2:])
