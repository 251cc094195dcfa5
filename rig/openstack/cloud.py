"""The cloud's APIs as its administrator sees them, by the standard library alone: a command that needs no more than a
few requests is done before openstacksdk is loaded."""
import http.client
import json
import os
import urllib.parse


class Refused(Exception):
    def __init__(self, method, path, status, body):
        super().__init__(f"{method} {path}: {status} {body[:500]}")
        self.status = status


class Cloud:
    """Signed in. Paths are below what the catalog has for a type of service."""

    def __init__(self, user="admin", password=None, project="admin"):
        domain = {"id": "default"}
        auth = {"identity": {"methods": ["password"], "password": {"user": {
                    "name": user, "password": password or os.environ["ADMIN_PASSWORD"], "domain": domain}}},
                "scope": {"project": {"name": project, "domain": domain}}}
        self.token = None
        self.identity = f"http://127.0.0.1:{os.environ['KEYSTONE_PORT']}/v3"
        answer, headers = self._request("POST", self.identity + "/auth/tokens", {"auth": auth})
        self.token = headers["X-Subject-Token"]
        self.user_id = answer["token"]["user"]["id"]
        self.endpoints = {service["type"]: next(e["url"] for e in service["endpoints"] if e["interface"] == "public")
                          for service in answer["token"]["catalog"]}
        self.endpoints["identity"] = self.identity

    def call(self, method, service, path, body=None, **query):
        query = {name: value for name, value in query.items() if value is not None}
        url = self.endpoints[service] + path + ("?" + urllib.parse.urlencode(query) if query else "")
        return self._request(method, url, body)[0]

    def upload(self, path, content):
        """The bytes of an image."""
        self._request("PUT", self.endpoints["image"] + path, content)

    def all(self, service, path, key, **query):
        return self.call("GET", service, path, **query)[key]

    def named(self, service, path, key, name, **query):
        """The one object of that name, or nothing."""
        found = self.all(service, path, key, name=name, **query)
        return found[0] if found else None

    def _request(self, method, url, body):
        where = urllib.parse.urlsplit(url)
        path = where.path + ("?" + where.query if where.query else "")
        raw = isinstance(body, bytes)
        headers = {"Content-Type": "application/octet-stream" if raw else "application/json"}
        if self.token:
            headers["X-Auth-Token"] = self.token
        connection = http.client.HTTPConnection(where.hostname, where.port, timeout=60)
        try:
            connection.request(method, path, body if raw or body is None else json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        if response.status >= 400:
            raise Refused(method, path, response.status, text)
        return json.loads(text) if text else None, response.headers
