//! As little of an HTTP client as these tests need: one connection a request, nothing retried.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use seaway_testkit::cloud::Cloud;
use serde_json::{Value, json};

pub(crate) struct Client {
    address: String,
    token: String,
}

#[derive(Debug)]
pub(crate) struct Got {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: Value,
}

impl Got {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(it, _)| it.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }
}

impl Client {
    pub(crate) fn signed_in(cloud: &Cloud, user: &str) -> Client {
        let got = Client::sign_in(cloud, user, if user == "admin" { "adminpw" } else { "demopw" });
        let token = got.header("x-subject-token").expect("a token").to_owned();
        Client { token, ..Client::nobody(cloud) }
    }

    pub(crate) fn signed_in_by_v2(cloud: &Cloud, user: &str) -> Client {
        let nobody = Client::nobody(cloud);
        let password = json!({"username": user, "password": "demopw"});
        let body = json!({"auth": {"tenantName": user, "passwordCredentials": password}});
        let got = nobody.send("POST", "/identity/v2.0/tokens", Some(body)).expect("a reply");
        let token = got.body["access"]["token"]["id"].as_str().expect("a token").to_owned();
        Client { token, ..nobody }
    }

    pub(crate) fn sign_in(cloud: &Cloud, user: &str, password: &str) -> Got {
        let domain = json!({"id": "default"});
        let body = json!({"auth": {
            "identity": {
                "methods": ["password"],
                "password": {"user": {"name": user, "domain": domain, "password": password}},
            },
            "scope": {"project": {"name": user, "domain": domain}},
        }});
        Client::nobody(cloud).send("POST", "/identity/v3/auth/tokens", Some(body)).expect("a reply")
    }

    fn nobody(cloud: &Cloud) -> Client {
        Client { address: cloud.url().trim_start_matches("http://").to_owned(), token: String::new() }
    }

    /// Expects success, and tells the body.
    pub(crate) fn get(&self, path: &str) -> Value {
        let got = self.send("GET", path, None).expect("a reply");
        assert_eq!(got.status, 200, "{got:?}");
        got.body
    }

    /// Expects success, and tells the id.
    pub(crate) fn create(&self, path: &str, body: Value, name: &str) -> String {
        let got = self.send("POST", path, Some(body)).expect("a reply");
        assert_eq!(got.status, 201, "{got:?}");
        got.body[name]["id"].as_str().expect("an id").to_owned()
    }

    /// The words of the error are those that the reply lacks.
    pub(crate) fn send(&self, method: &str, path: &str, body: Option<Value>) -> Result<Got, String> {
        let raw = self.raw(method, path, body);
        let (head, body) = raw.split_once("\r\n\r\n").ok_or("no head")?;
        let status = head.split(' ').nth(1).and_then(|it| it.parse().ok()).ok_or("no status")?;
        let body = serde_json::from_str(body).unwrap_or_default();
        Ok(Got { status, head: head.to_owned(), body })
    }

    /// All that came until the connection ended.
    pub(crate) fn raw(&self, method: &str, path: &str, body: Option<Value>) -> String {
        let mut stream = TcpStream::connect(&self.address).expect("a connection");
        let body = body.map(|it| it.to_string()).unwrap_or_default();
        let (token, length) = (&self.token, body.len());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: fake\r\nx-auth-token: {token}\r\ncontent-length: {length}\r\n\
             content-type: application/json\r\nconnection: close\r\n\r\n"
        );
        stream.write_all((head + &body).as_bytes()).expect("a connection");
        let mut raw = Vec::new();
        // A connection that is broken on purpose ends as an error here.
        _ = stream.read_to_end(&mut raw);
        String::from_utf8(raw).expect("text")
    }
}
