"""What `check` asks of Octavia as $OS_CLOUD. A path is below the service's root.

    api.py METHOD PATH [JSON]          one request; prints `STATUS BODY`
    api.py twice METHOD PATH JSON JSON two requests at once; prints both statuses
    api.py wait PATH KEY SECONDS       until the object settles; prints its last provisioning_status, or `gone` at a 404
    api.py gone PATH SECONDS           until a 404: the OVN provider shows what it deletes as ACTIVE for a moment
"""
import json
import os
import sys
import time

from keystoneauth1 import session
from keystoneauth1.identity import v3
import yaml

with open(os.environ["OS_CLIENT_CONFIG_FILE"]) as file:
    auth = yaml.safe_load(file)["clouds"][os.environ["OS_CLOUD"]]["auth"]
signed_in = session.Session(auth=v3.Password(**auth))
octavia = f"http://127.0.0.1:{os.environ['OCTAVIA_PORT']}"


def call(method, path, body=None):
    return signed_in.request(octavia + path, method, raise_exc=False, json=body)


if sys.argv[1] == "wait":
    deadline = time.time() + float(sys.argv[4])
    while True:
        answer = call("GET", sys.argv[2])
        state = "gone" if answer.status_code == 404 else answer.json()[sys.argv[3]]["provisioning_status"]
        if not state.startswith("PENDING_") or time.time() > deadline:
            break
        time.sleep(0.1)
    print(state)
elif sys.argv[1] == "gone":
    deadline = time.time() + float(sys.argv[3])
    while call("GET", sys.argv[2]).status_code != 404 and time.time() < deadline:
        time.sleep(0.1)
    print("gone" if time.time() < deadline else "still there")
elif sys.argv[1] == "twice":
    print(*[call(sys.argv[2], sys.argv[3], json.loads(body)).status_code for body in sys.argv[4:6]])
else:
    answer = call(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]) if len(sys.argv) > 3 else None)
    print(answer.status_code, answer.text)
