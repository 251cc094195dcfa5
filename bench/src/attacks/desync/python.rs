//! A server that many run: `python3 -m http.server`, which reads no body of a GET.

use std::net::{SocketAddrV4, TcpStream};
use std::process::Command;
use std::time::Duration;

use anyhow::Result;

use crate::contender::Running;
use crate::cores::GENERATOR;

pub(super) struct Python(#[expect(dead_code, reason = "it runs as long as this lives")] Running);

impl Python {
    /// `None`: there is no such Python here.
    pub(super) fn start(at: SocketAddrV4) -> Result<Option<Self>> {
        let folder = tempfile::Builder::new().prefix("seaway-bench-").tempdir()?;
        for name in ["attack", "victim"] {
            std::fs::write(folder.path().join(name), format!("/{name}"))?;
        }
        let mut command = Command::new("python3");
        command.args(["-m", "http.server", "--protocol", "HTTP/1.1", "--bind", &at.ip().to_string()]);
        command.arg(at.port().to_string()).current_dir(folder.path());
        let Ok(running) = Running::launch_on(Some(GENERATOR), command, Some(folder)) else { return Ok(None) };
        let serves = running.wait_until(Duration::from_secs(10), || TcpStream::connect(at).is_ok());
        Ok(serves.is_ok().then_some(Self(running)))
    }
}
