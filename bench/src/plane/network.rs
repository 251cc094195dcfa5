//! A network for each host, at the bridge of the control plane, as machines of their own would have it.

use std::fs;
use std::net::Ipv4Addr;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use super::{ADDRESS, LINK, said};
use crate::cores;

/// Gives the network of its process a way to the bridge as soon as the cable is there, and becomes the program.
const ENTRANCE: &str = "ip link set lo up
until ip address add \"$1/16\" dev eth0 2>/dev/null; do sleep 0.02; done
ip link set eth0 up
ip route add default via \"$2\"
shift 2
exec \"$@\"";

pub fn address(host: usize) -> Ipv4Addr {
    let index = host as u16 + 1;
    let [high, low] = index.to_be_bytes();
    Ipv4Addr::new(10, 10, 128 + high, low)
}

/// The command in a network of its own, which ends with it. It waits for its cable: see `plug`.
pub fn alone(command: &Command, host: usize) -> Command {
    let mut inside = Command::new("unshare");
    inside.args(["--net", "--", "sh", "-c", ENTRANCE, "host", &address(host).to_string(), ADDRESS]);
    inside.arg(command.get_program()).args(command.get_args());
    inside
}

/// A cable from the bridge to the network of that process.
pub fn plug(process: u32, host: usize) -> Result<()> {
    let network = |of: &str| fs::read_link(format!("/proc/{of}/ns/net"));
    let begin = Instant::now();
    while network(&process.to_string())? == network("self")? {
        ensure!(begin.elapsed() < Duration::from_secs(10), "the host {host} has no network of its own");
        ensure!(!cores::has_ended(process), "the host {host} has ended");
        thread::sleep(Duration::from_millis(1));
    }
    // By the process: the network of an earlier one may not be gone yet.
    let ours = format!("host{process}");
    for line in [
        format!("link add {ours} type veth peer name eth0 netns {process}"),
        format!("link set {ours} master {LINK} up"),
    ] {
        said(Command::new("ip").args(line.split(' ')))?;
    }
    Ok(())
}

/// From now on, what is sent to the address of a Service goes to that host.
pub fn lead(service: Ipv4Addr, host: usize) -> Result<()> {
    let line = format!("route replace {service}/32 via {}", address(host));
    said(Command::new("ip").args(line.split(' '))).map(drop)
}
