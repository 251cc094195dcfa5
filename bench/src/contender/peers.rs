//! HAProxy and nginx from the system's packages, with the configurations in `bench/peers`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::{Programs, Role, first_line};

pub(super) fn haproxy(programs: &Programs, role: Role, workers: usize, folder: &Path) -> Result<Command> {
    let command = haproxy_of(Path::new("haproxy"), programs, role, folder)?;
    if workers > 1 {
        let path = configuration(folder, role, "haproxy", "cfg");
        replace(&path, "nbthread 1\n", &format!("nbthread {workers}\n"))?;
        // Each thread has descriptors of its own beside those of connections.
        replace(&path, "    maxconn 99", "    maxconn 90")?;
    }
    Ok(command)
}

/// Of another version, with the same configuration.
pub(super) fn haproxy_of(program: &Path, programs: &Programs, role: Role, folder: &Path) -> Result<Command> {
    let mut command = Command::new(program);
    // -db: stay in the foreground, one process.
    command.args(["-db", "-f"]).arg(configured(programs, folder, role, "haproxy", "cfg")?);
    Ok(at_home(command, folder))
}

pub(super) fn nginx(programs: &Programs, role: Role, workers: usize, folder: &Path) -> Result<Command> {
    let mut command = Command::new("/usr/sbin/nginx");
    let path = configured(programs, folder, role, "nginx", "conf")?;
    if workers > 1 {
        replace(&path, "worker_processes 1;", &format!("worker_processes {workers};"))?;
        replace(&path, "worker_cpu_affinity 01;", "worker_cpu_affinity 01 10;")?;
    }
    command.arg("-c").arg(path);
    Ok(at_home(command, folder))
}

/// The configuration in the contender's own folder, with the certificate beside it.
fn configured(programs: &Programs, folder: &Path, role: Role, name: &str, kind: &str) -> Result<PathBuf> {
    let path = configuration(folder, role, name, kind);
    let file = path.file_name().unwrap_or_default();
    for file in [file, OsStr::new("openssl.cnf")] {
        let from = programs.peers.join(file);
        fs::copy(&from, folder.join(file)).with_context(|| from.display().to_string())?;
    }
    fs::write(folder.join("certificate.pem"), programs.certificate.pem())?;
    Ok(path)
}

fn configuration(folder: &Path, role: Role, name: &str, kind: &str) -> PathBuf {
    folder.join(match role {
        Role::Stream => format!("{name}.{kind}"),
        Role::Web => format!("{name}-web.{kind}"),
        Role::Attacked => format!("{name}-attacks.{kind}"),
    })
}

fn replace(path: &Path, from: &str, to: &str) -> Result<()> {
    let text = fs::read_to_string(path)?;
    ensure!(text.contains(from), "{}: has no {from:?}", path.display());
    Ok(fs::write(path, text.replacen(from, to, 1))?)
}

fn at_home(mut command: Command, folder: &Path) -> Command {
    command.current_dir(folder).env("OPENSSL_CONF", folder.join("openssl.cnf"));
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
