//! The proxies that users would choose today, as `rig/peers/install` has them: one job, HTTP/1.1 without TLS.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{Contender, Programs, Role, WEB, peers};
use crate::backend;

pub(super) fn command(contender: Contender, programs: &Programs, folder: &Path) -> Result<Command> {
    if contender == Contender::HaproxyNewer {
        return peers::haproxy_of(&program(contender, programs)?, programs, Role::Web, folder);
    }
    let mut command = Command::new(program(contender, programs)?);
    let copy = |file: &str| -> Result<PathBuf> {
        let (from, to) = (programs.peers.join(file), folder.join(file));
        fs::copy(&from, &to).with_context(|| from.display().to_string())?;
        Ok(to)
    };
    match contender {
        Contender::Envoy => {
            command.args(["--concurrency", "1", "--disable-hot-restart", "--log-level", "error", "-c"]);
            command.arg(copy("envoy.yaml")?);
        }
        Contender::Caddy => {
            command.args(["run", "--adapter", "caddyfile", "--config"]).arg(copy("Caddyfile")?);
        }
        Contender::Traefik => {
            copy("traefik-routes.yaml")?;
            command.arg(format!("--configfile={}", copy("traefik.yaml")?.display()));
        }
        _ => {
            command.arg(WEB.to_string());
            command.args(backend::MEMBERS.map(|ip| format!("{ip}:{}", backend::WEB_PORT)));
        }
    }
    // What any of them keeps goes with the folder.
    let home = ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"];
    command.current_dir(folder).envs(home.map(|it| (it, folder)));
    Ok(command)
}

/// Traefik listens before it knows its routes, and answers 404 until then.
pub(super) fn knows_its_routes() -> bool {
    let ask = || -> io::Result<bool> {
        let mut stream = TcpStream::connect(WEB)?;
        stream.set_read_timeout(Some(Duration::from_secs(1)))?;
        stream.write_all(b"GET /known HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")?;
        let mut answer = [0; 12];
        stream.read_exact(&mut answer)?;
        Ok(answer == *b"HTTP/1.1 302")
    };
    ask().unwrap_or(false)
}

/// As `rig/peers/install` noted it: most of them do not know it themselves.
pub(super) fn version(contender: Contender, programs: &Programs) -> Result<String> {
    let (name, path) = (name(contender), folder(contender, programs)?.join("versions"));
    let noted = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let version = noted.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    Ok(format!("{contender} {}", version.unwrap_or("of unknown version")))
}

fn program(contender: Contender, programs: &Programs) -> Result<PathBuf> {
    Ok(folder(contender, programs)?.join(name(contender)))
}

fn folder(contender: Contender, programs: &Programs) -> Result<&Path> {
    let folder = programs.proxies.as_deref();
    folder.with_context(|| format!("--proxies names no folder with {contender}. Type: rig/peers/install"))
}

fn name(contender: Contender) -> &'static str {
    match contender {
        Contender::HaproxyNewer => "haproxy",
        Contender::Envoy => "envoy",
        Contender::Caddy => "caddy",
        Contender::Traefik => "traefik",
        _ => "pingora",
    }
}
