"""project.py create|delete NAME: see `project`."""
import json
import os
import pathlib
import re
import shutil
import sys

from cloud import Cloud, Refused

ROLES = ["member", "creator", "load-balancer_member"]


def create(name, folder):
    cloud = Cloud()
    if cloud.named("identity", "/projects", "projects", name):
        sys.exit(f"project: {name} exists already")
    project = cloud.call("POST", "identity", "/projects", {"project": {"name": name, "domain_id": "default"}})["project"]["id"]
    password = name + "-pw"
    user = cloud.call("POST", "identity", "/users", {"user": {
        "name": name, "password": password, "domain_id": "default", "default_project_id": project}})["user"]["id"]
    roles = {role["name"]: role["id"] for role in cloud.all("identity", "/roles", "roles")}
    for role in ROLES:
        cloud.call("PUT", "identity", f"/projects/{project}/users/{user}/roles/{roles[role]}")
    quotas(cloud, project)
    own = Cloud(name, password, name)
    credential = own.call("POST", "identity", f"/users/{user}/application_credentials", {
        "application_credential": {"name": name, "roles": [{"name": role} for role in ROLES[:1] + ROLES[2:]]}})
    credential = credential["application_credential"]

    def entry(**auth):
        return {"auth": {"auth_url": cloud.identity, **auth}, "region_name": os.environ["REGION"], "identity_api_version": 3}

    def with_password(user, password):
        return entry(username=user, password=password, project_name=user, user_domain_id="default",
                     project_domain_id="default")
    clouds = {
        name: with_password(name, password),
        name + "-credential": {"auth_type": "v3applicationcredential", **entry(
            application_credential_id=credential["id"], application_credential_secret=credential["secret"])},
        "admin": with_password("admin", os.environ["ADMIN_PASSWORD"]),
    }
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    file = folder / "clouds.yaml"
    file.touch(mode=0o600)
    # JSON is YAML too.
    file.write_text(json.dumps({"clouds": clouds}, indent=1) + "\n")
    print(folder)


def quotas(cloud, project):
    """As if somebody had asked an administrator for them."""
    put(cloud, "network", f"/v2.0/quotas/{project}", {"quota": {
        "network": 1000, "subnet": 1000, "port": 5000, "router": 500, "floatingip": 500, "security_group": 1000,
        "security_group_rule": 10000}})
    put(cloud, "compute", f"/os-quota-sets/{project}", {"quota_set": {
        "instances": 1000, "cores": 4000, "ram": 8192000, "force": True}})
    put(cloud, "load-balancer", f"/v2/lbaas/quotas/{project}", {"quota": {
        "load_balancer": 1000, "listener": 5000, "pool": 5000, "member": 50000, "health_monitor": 5000}})


def put(cloud, service, path, body):
    """Octavia answers 500 to some of those who ask for quotas at once: its database sees a deadlock."""
    for attempt in range(5):
        try:
            return cloud.call("PUT", service, path, body)
        except Refused as refused:
            if refused.status != 500 or attempt == 4:
                raise


def delete(name, folder):
    cloud = Cloud()
    project = cloud.named("identity", "/projects", "projects", name)
    user = cloud.named("identity", "/users", "users", name)
    for service, path in [("network", "/v2.0/quotas/"), ("compute", "/os-quota-sets/"), ("load-balancer", "/v2/lbaas/quotas/")]:
        try:
            cloud.call("DELETE", service, path + project["id"])
        except Refused as refused:
            if refused.status != 404:
                raise
    if user:
        cloud.call("DELETE", "identity", "/users/" + user["id"])
    if project:
        cloud.call("DELETE", "identity", "/projects/" + project["id"])
    shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    name = sys.argv[2]
    if not re.fullmatch("[a-z0-9][a-z0-9-]{0,40}", name):
        sys.exit(f"project: {name} is no name: small letters, digits and hyphens")
    if name in ("admin", "service", "demo", "alt"):
        sys.exit(f"project: {name} belongs to the cloud itself")
    {"create": create, "delete": delete}[sys.argv[1]](name, pathlib.Path(os.environ["CLOUD"]) / "projects" / name)
