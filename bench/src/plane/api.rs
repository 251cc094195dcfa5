//! A client of the API server: one connection, one question at a time, and watches.

use std::io::{self, BufRead, BufReader, Read, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, pem::PemObject as _};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

/// A watch that says nothing for so long, or an answer that takes so long, is an error.
const PATIENCE: Duration = Duration::from_secs(60);

type Stream = BufReader<StreamOwned<ClientConnection, TcpStream>>;

pub struct Api {
    terms: Arc<ClientConfig>,
    at: SocketAddr,
    open: Option<Stream>,
}

impl Api {
    /// As the administrator whose certificate is in that folder.
    pub fn new(address: &str, certificates: &Path) -> Result<Self> {
        let mut trusted = RootCertStore::empty();
        trusted.add(CertificateDer::from_pem_file(certificates.join("ca.crt"))?)?;
        let own = CertificateDer::from_pem_file(certificates.join("admin.crt"))?;
        let key = PrivateKeyDer::from_pem_file(certificates.join("admin.key"))?;
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let terms = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(trusted)
            .with_client_auth_cert(vec![own], key)?;
        Ok(Self { terms: Arc::new(terms), at: format!("{address}:6443").parse()?, open: None })
    }

    /// The answer; a PATCH merges.
    pub fn ask(&mut self, method: &str, path: &str, object: Option<&Value>) -> Result<Value> {
        let mut stream = match self.open.take() {
            Some(stream) => stream,
            None => self.connect()?,
        };
        let body = read_whole(&mut self.send(&mut stream, method, path, object)?)?;
        self.open = Some(stream);
        Ok(serde_json::from_slice(&body)?)
    }

    /// What a watch tells, one event after the other.
    pub fn follow(&self, path: &str) -> Result<impl Iterator<Item = Result<Value>> + use<>> {
        let mut stream = self.connect()?;
        let answer = self.send(&mut stream, "GET", path, None)?;
        ensure!(answer.length.is_none(), "a watch has no length");
        let lines = BufReader::new(Chunks { stream, left: 0 }).lines();
        Ok(lines.map(|line| Ok(serde_json::from_str(&line?)?)))
    }

    fn connect(&self) -> Result<Stream> {
        let tcp = TcpStream::connect(self.at)?;
        tcp.set_nodelay(true)?;
        tcp.set_read_timeout(Some(PATIENCE))?;
        let tls = ClientConnection::new(self.terms.clone(), ServerName::from(self.at.ip()))?;
        Ok(BufReader::new(StreamOwned::new(tls, tcp)))
    }

    fn send<'a>(
        &self,
        stream: &'a mut Stream,
        method: &str,
        path: &str,
        object: Option<&Value>,
    ) -> Result<Answer<'a>> {
        let body = object.map(Value::to_string).unwrap_or_default();
        let kind = if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
            self.at,
            body.len()
        );
        stream.get_mut().write_all(&[head.as_bytes(), body.as_bytes()].concat())?;
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let code = line.split(' ').nth(1).unwrap_or_default().to_owned();
        let mut length = None;
        loop {
            line.clear();
            ensure!(stream.read_line(&mut line)? > 0, "the answer of the API server ended early");
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            if name.eq_ignore_ascii_case("content-length") {
                length = Some(value.parse()?);
            }
        }
        let mut answer = Answer { stream, length };
        if !code.starts_with('2') {
            let said = read_whole(&mut answer)?;
            anyhow::bail!("{method} {path}: {code}: {}", String::from_utf8_lossy(&said));
        }
        Ok(answer)
    }
}

struct Answer<'a> {
    stream: &'a mut Stream,
    /// Nothing: it comes in chunks.
    length: Option<usize>,
}

fn read_whole(answer: &mut Answer<'_>) -> Result<Vec<u8>> {
    let mut body = vec![0; answer.length.unwrap_or_default()];
    match answer.length {
        Some(_) => answer.stream.read_exact(&mut body)?,
        None => {
            Chunks { stream: &mut *answer.stream, left: 0 }.read_to_end(&mut body)?;
        }
    }
    Ok(body)
}

/// What comes in chunks, without their frames.
struct Chunks<S> {
    stream: S,
    left: usize,
}

impl<S: BufRead> Read for Chunks<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.left == 0 {
            let mut line = String::new();
            self.stream.read_line(&mut line)?;
            let size = line.trim_end();
            self.left = usize::from_str_radix(size, 16).map_err(io::Error::other)?;
            if self.left == 0 {
                line.clear();
                self.stream.read_line(&mut line)?;
                return Ok(0);
            }
        }
        let most = self.left.min(buffer.len());
        let count = self.stream.read(&mut buffer[..most])?;
        self.left -= count;
        if self.left == 0 || count == 0 {
            let mut end = [0; 2];
            self.stream.read_exact(&mut end)?;
        }
        Ok(count)
    }
}

/// How many objects a path lists, without reading them.
pub fn count(api: &mut Api, path: &str) -> Result<usize> {
    let list = api.ask("GET", &format!("{path}?limit=1"), None)?;
    let here = list["items"].as_array().context("a list")?.len();
    let rest = list["metadata"]["remainingItemCount"].as_u64().unwrap_or_default();
    Ok(here + rest as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_read_without_their_frames() {
        let mut chunks = Chunks { stream: &b"4\r\nabcd\r\n2\r\nef\r\n0\r\n\r\nnext"[..], left: 0 };
        let mut text = String::new();
        chunks.read_to_string(&mut text).unwrap();
        assert_eq!((&*text, chunks.stream), ("abcdef", &b"next"[..]));
    }
}
