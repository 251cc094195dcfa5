//! HAProxy and nginx from the system's packages, with the configurations in `bench/peers`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::{Role, first_line};

pub(super) fn haproxy(peers: &Path, role: Role) -> Command {
    let mut command = Command::new("haproxy");
    // -db: stay in the foreground, one process.
    command.args(["-db", "-f"]).arg(peers.join(match role {
        Role::Stream => "haproxy.cfg",
        Role::Web => "haproxy-web.cfg",
    }));
    command
}

pub(super) fn nginx(peers: &Path, role: Role) -> Command {
    let mut command = Command::new("/usr/sbin/nginx");
    let file = match role {
        Role::Stream => "nginx.conf",
        Role::Web => "nginx-web.conf",
    };
    command.arg("-c").arg(peers.join(file));
    command
}

pub(super) fn haproxy_version() -> Result<String> {
    let line = first_line(Path::new("haproxy"), &["-v"]).context("apt-get install haproxy")?;
    // "HAProxy version 2.6.12-1+deb12u4 2026/10/17 - https://haproxy.org/"
    Ok(format!("HAProxy {}", line.split_whitespace().nth(2).unwrap_or("of unknown version")))
}

pub(super) fn nginx_version() -> Result<String> {
    let line = first_line(Path::new("/usr/sbin/nginx"), &["-v"])
        .context("apt-get install nginx-light libnginx-mod-stream")?;
    // "nginx version: nginx/1.22.1"
    Ok(format!("nginx {}", line.rsplit('/').next().unwrap_or("of unknown version")))
}
