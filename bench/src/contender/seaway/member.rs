//! Seaway as a part of a cluster.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::contender::Programs;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    Controller,
    Node,
}

/// As many log lines as there are Services would be measured, too. All else is as usual.
const CONFIG: &str =
    "dataPlane:\n  workers: 1\ndefaultDriver: native\npools:\n  perNamespace: 0\nlog:\n  level: warn\n";

/// Where their Leases are.
pub const NAMESPACE: &str = "seaway-system";

impl Part {
    pub const BOTH: [Self; 2] = [Self::Controller, Self::Node];

    /// Who it is in the cluster, and the role that it needs.
    pub fn user(self) -> &'static str {
        match self {
            Self::Controller => "seaway-controller",
            Self::Node => "seaway-node",
        }
    }

    pub fn admin(self) -> SocketAddrV4 {
        SocketAddrV4::new(
            Ipv4Addr::LOCALHOST,
            if self == Self::Controller { 1937 } else { super::ADMIN.port() },
        )
    }

    pub fn command(
        self,
        programs: &Programs,
        host: &str,
        folder: &Path,
        kubeconfig: &Path,
    ) -> Result<Command> {
        let config = folder.join("seaway.yaml");
        let mut text = format!("{CONFIG}admin:\n  listen: [\"{}\"]\n", self.admin());
        if self == Self::Node {
            text += &format!("snapshot: {}\n", folder.join("snapshot").display());
        }
        fs::write(&config, text)?;
        let mut command = Command::new(&programs.seaway);
        command.arg(if self == Self::Controller { "controller" } else { "node" });
        command.arg("--config").arg(config).arg("--kubeconfig").arg(kubeconfig);
        command.args(["--host", host, "--namespace", NAMESPACE]);
        Ok(command)
    }

    /// How many Units changes have marked so far.
    pub fn marked(self) -> Result<u64> {
        let mut admin = TcpStream::connect(self.admin())?;
        admin.set_read_timeout(Some(Duration::from_secs(30)))?;
        admin.write_all(b"GET /metrics HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        admin.read_to_string(&mut text)?;
        ensure!(text.starts_with("HTTP/1.1 200"), "no metrics: {text}");
        let line = text.lines().find_map(|it| it.strip_prefix("seaway_units_marked_total "));
        Ok(line.context("seaway_units_marked_total is missing")?.trim().parse()?)
    }
}
