"""A driver of Nova whose servers are network namespaces: Nova's fake driver, and for each server

    a namespace   rig-<first 8 digits of its id>, an interface for each port (see ../plug) and a default route
    a folder      servers/<id>/ of the cloud's folder: meta.json (namespace, name, metadata, flavor, interfaces),
                  user_data as it was sent, console.log

Where RUN_USER_DATA is 1, user data that begins with "#!" runs in the namespace at each start of the server, as root and on
this machine's own files; what it prints is the server's console. To stop a server ends the namespace and all that runs in
it; to start it makes it anew, and so does a start of nova-compute for servers that should run.
"""
import base64
import json
import os
import pathlib
import shutil
import subprocess

from nova.compute import power_state
from nova import exception
from nova.virt import fake
from oslo_log import log as logging

LOG = logging.getLogger(__name__)
PLUG = os.environ.get("RIG_PLUG")
SERVERS = pathlib.Path(os.environ.get("SEAWAY_RIG_OPENSTACK", ".")) / "servers"
RUN_USER_DATA = os.environ.get("RUN_USER_DATA") == "1"


def namespace(instance):
    return "rig-" + instance.uuid[:8]


def folder(instance):
    return SERVERS / instance.uuid


def plug(*args):
    done = subprocess.run([PLUG, *args], capture_output=True, text=True, timeout=360)
    if done.returncode:
        raise exception.VirtualInterfacePlugException(f"plug {' '.join(args)}: {done.stderr}")


def addresses(vif):
    """One ADDRESS/PREFIX,GATEWAY (or - for none) for each address."""
    return ["{}/{},{}".format(ip["address"], subnet["cidr"].split("/")[1],
                              (subnet["gateway"] or {}).get("address") or "-")
            for subnet in vif["network"]["subnets"] for ip in subnet["ips"]]


def plug_vif(instance, vif):
    if vif["type"] in ("binding_failed", "unbound"):
        raise exception.VirtualInterfacePlugException(f"port {vif['id']}: {vif['type']}")
    plug("--vif", namespace(instance), vif["id"], vif["address"],
         str(vif["network"].get_meta("mtu") or 1500), *addresses(vif))


class NetnsDriver(fake.FakeDriverWithoutFakeNodes):

    def __init__(self, virtapi, read_only=False):
        super().__init__(virtapi, read_only)
        # By server: its interfaces by port, and the process of its user data.
        self.vifs = {}
        self.boots = {}

    # --- Life of a server

    def spawn(self, context, instance, *args, network_info=None, power_on=True, **kwargs):
        super().spawn(context, instance, *args, network_info=network_info, power_on=power_on,
                      **kwargs)
        if network_info is not None:
            self.vifs[instance.uuid] = {vif["id"]: vif for vif in network_info}
        user_data = base64.b64decode(instance.user_data or "")
        folder(instance).mkdir(parents=True, exist_ok=True)
        (folder(instance) / "user_data").write_bytes(user_data)
        self._describe(instance)
        if power_on:
            try:
                self._start(instance)
            except Exception:
                self._stop(instance)
                raise

    def destroy(self, context, instance, network_info, *args, **kwargs):
        self._stop(instance)
        for port in self.vifs.pop(instance.uuid, {}):
            # The fake driver forgets this, and would refuse the port to the next server.
            self._interfaces.pop(port, None)
        shutil.rmtree(folder(instance), ignore_errors=True)
        super().destroy(context, instance, network_info, *args, **kwargs)

    def power_off(self, instance, *args, **kwargs):
        super().power_off(instance, *args, **kwargs)
        self._stop(instance)

    def power_on(self, context, instance, network_info, *args, **kwargs):
        super().power_on(context, instance, network_info, *args, **kwargs)
        self._start(instance)

    def reboot(self, context, instance, network_info, *args, **kwargs):
        self._stop(instance)
        super().reboot(context, instance, network_info, *args, **kwargs)

    def plug_vifs(self, instance, network_info):
        """nova-compute begins, and finds a server of its own."""
        self.instances.setdefault(
            instance.uuid, fake.FakeInstance(instance.name, instance.power_state, instance.uuid))
        self.resources.claim(vcpus=instance.flavor.vcpus, mem=instance.flavor.memory_mb,
                             disk=instance.flavor.root_gb)
        self.vifs[instance.uuid] = {vif["id"]: vif for vif in network_info}
        self._interfaces.update(self.vifs[instance.uuid])
        if instance.power_state == power_state.RUNNING:
            self._start(instance)

    def _start(self, instance):
        ns, here = namespace(instance), folder(instance)
        plug("--namespace", ns)
        for vif in self.vifs.get(instance.uuid, {}).values():
            plug_vif(instance, vif)
        script = here / "user_data"
        if RUN_USER_DATA and script.exists() and script.read_bytes()[:2] == b"#!":
            script.chmod(0o700)
            with (here / "console.log").open("ab") as console:
                self.boots[instance.uuid] = subprocess.Popen(
                    ["ip", "netns", "exec", ns, str(script)], cwd=here, start_new_session=True,
                    stdin=subprocess.DEVNULL, stdout=console, stderr=subprocess.STDOUT,
                    env={"PATH": os.environ["PATH"], "HOME": str(here), "LANG": "C.UTF-8",
                         "RIG_SERVER": instance.uuid, "RIG_META": str(here / "meta.json")})

    def _stop(self, instance):
        plug("--remove", namespace(instance))
        boot = self.boots.pop(instance.uuid, None)
        if boot:
            boot.kill()
            boot.wait()

    # --- Interfaces, metadata, console

    def attach_interface(self, context, instance, image_meta, vif):
        super().attach_interface(context, instance, image_meta, vif)
        self.vifs.setdefault(instance.uuid, {})[vif["id"]] = vif
        self._describe(instance)
        if self.instances[instance.uuid].state == power_state.RUNNING:
            plug_vif(instance, vif)

    def detach_interface(self, context, instance, vif):
        super().detach_interface(context, instance, vif)
        self.vifs.get(instance.uuid, {}).pop(vif["id"], None)
        self._describe(instance)
        plug("--unvif", namespace(instance), vif["id"])

    def change_instance_metadata(self, context, instance, diff):
        self._describe(instance)

    def get_console_output(self, context, instance):
        log = folder(instance) / "console.log"
        return log.read_bytes() if log.exists() else b""

    def _describe(self, instance):
        vifs = self.vifs.get(instance.uuid, {}).values()
        meta = {
            "uuid": instance.uuid, "name": instance.display_name, "hostname": instance.hostname,
            "namespace": namespace(instance), "project_id": instance.project_id,
            "user_id": instance.user_id, "availability_zone": instance.availability_zone,
            "flavor": instance.flavor.name, "image": instance.image_ref,
            "key_name": instance.key_name, "public_key": instance.key_data,
            "metadata": dict(instance.metadata or {}),
            "interfaces": [{"port": vif["id"], "mac": vif["address"],
                            "network": vif["network"]["id"],
                            "addresses": [a.split(",")[0] for a in addresses(vif)]}
                           for vif in vifs],
        }
        # Neutron may tell a port's end after its server's.
        if folder(instance).is_dir():
            new = folder(instance) / ".meta.json"
            new.write_text(json.dumps(meta, indent=1) + "\n")
            new.rename(folder(instance) / "meta.json")
