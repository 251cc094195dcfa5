"""port.py PORT: binds a port of Neutron to this host if it has none, and tells what `plug` gives to its interface: MAC
and MTU, then a line `ADDRESS/PREFIX,GATEWAY` for each address."""
import os
import sys

from cloud import Cloud

cloud = Cloud()
port = cloud.call("GET", "network", "/v2.0/ports/" + sys.argv[1])["port"]
if not port["binding:host_id"]:
    cloud.call("PUT", "network", "/v2.0/ports/" + port["id"], {"port": {"binding:host_id": os.environ["CHASSIS"]}})
print(port["mac_address"], cloud.call("GET", "network", "/v2.0/networks/" + port["network_id"])["network"]["mtu"])
for address in port["fixed_ips"]:
    subnet = cloud.call("GET", "network", "/v2.0/subnets/" + address["subnet_id"])["subnet"]
    print(address["ip_address"] + "/" + subnet["cidr"].split("/")[1] + "," + (subnet["gateway_ip"] or "-"))
