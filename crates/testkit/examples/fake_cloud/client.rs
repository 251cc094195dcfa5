//! A client of the fake cloud for programs that fill it.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
};

use seaway_testkit::cloud::Cloud;
use serde_json::{Value, json};

/// Speaks HTTP/1.1 over one connection.
#[allow(dead_code, reason = "each program has its own questions")]
pub(crate) struct Client {
    stream: BufReader<TcpStream>,
    token: String,
    pub(crate) project: String,
}

#[allow(dead_code, reason = "each program has its own questions")]
impl Client {
    pub(crate) fn sign_in(cloud: &Cloud, user: &str, password: &str) -> Client {
        let at = cloud.url().trim_start_matches("http://");
        let stream = BufReader::new(TcpStream::connect(at).expect("it listens"));
        let mut client = Client { stream, token: String::new(), project: String::new() };
        let domain = json!({"id": "default"});
        let body = json!({"auth": {
            "identity": {"methods": ["password"],
                "password": {"user": {"name": user, "password": password, "domain": domain}}},
            "scope": {"project": {"name": user, "domain": domain}},
        }});
        let (token, answer) = client.ask("POST", "/identity/v3/auth/tokens", &body);
        client.token = token.expect("a sign-in is answered with a token");
        client.project = answer["token"]["project"]["id"].as_str().expect("it has a project").to_owned();
        client
    }

    pub(crate) fn get(&mut self, path: &str) -> Value {
        self.ask("GET", path, &Value::Null).1
    }

    pub(crate) fn post(&mut self, path: &str, body: &Value) -> Value {
        self.ask("POST", path, body).1
    }

    pub(crate) fn put(&mut self, path: &str, body: &Value) {
        self.ask("PUT", path, body);
    }

    /// The token in the answer's head, and its body.
    fn ask(&mut self, method: &str, path: &str, body: &Value) -> (Option<String>, Value) {
        let body = body.to_string();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: crowd\r\nX-Auth-Token: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n",
            self.token,
            body.len()
        );
        self.stream.get_mut().write_all(format!("{head}{body}").as_bytes()).expect("it reads");
        let (mut status, mut length, mut token) = (String::new(), 0, None);
        self.stream.read_line(&mut status).expect("it answers");
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).expect("it answers");
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            match name.to_ascii_lowercase().as_str() {
                "content-length" => length = value.parse().expect("a number"),
                "x-subject-token" => token = Some(value.to_owned()),
                _ => {}
            }
        }
        let mut answer = vec![0; length];
        self.stream.read_exact(&mut answer).expect("as long as it said");
        let answer = String::from_utf8(answer).expect("JSON is UTF-8");
        assert!(status.contains(" 20"), "{method} {path}: {status}{answer}");
        (token, serde_json::from_str(&answer).unwrap_or_default())
    }
}
