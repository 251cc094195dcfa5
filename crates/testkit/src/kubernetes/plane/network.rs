//! The network of a control plane: a bridge into which tests plug nodes and neighbours.

use std::{ops::Range, process::Command};

use crate::topology::{Namespace, command};

pub(in crate::kubernetes) const BRIDGE: &str = "bridge";

/// With nothing plugged in. What it had learnt of whoever was there is forgotten.
pub(super) fn unplug(control: &Namespace) {
    let links = control.ip(&["-o", "link", "show", "master", BRIDGE]);
    for port in links.lines().filter_map(|line| line.split([':', '@']).nth(1)) {
        // Its other end may be gone, or going, and it with that.
        let _ = quietly(control, &["link", "delete", port.trim()]);
    }
    for family in ["-4", "-6"] {
        let _ = quietly(control, &[family, "route", "flush", "proto", "boot"]);
        let _ = quietly(control, &[family, "neigh", "flush", "dev", BRIDGE]);
    }
}

/// Links, addresses, routes, rules and nftables, to be compared.
pub(super) fn shown(control: &Namespace) -> String {
    let told = |arguments: &[&str]| control.ip(arguments);
    // Whether a link has a carrier shows in all that is told of it, and is no one's doing here.
    let words = |line: &str, which: Range<usize>| {
        let words = line.split_whitespace().skip(which.start).take(which.len());
        words.collect::<Vec<_>>().join(" ")
    };
    let links = told(&["-o", "link"]);
    let addresses = told(&["-o", "address"]);
    let routes = ["-4", "-6"].map(|it| told(&[it, "route", "show", "table", "all"])).concat();
    let rules = ["-4", "-6"].map(|it| told(&[it, "rule"])).concat();
    let filters = control.run(|| command("nft", &["list", "ruleset"]));
    let mut lines: Vec<String> = links.lines().map(|it| words(it, 1..2)).collect();
    lines.extend(addresses.lines().map(|it| words(it, 1..4)));
    lines.extend(routes.lines().map(|it| it.replace(" linkdown", "").trim_end().to_owned()));
    // What the kernel adds of itself once something is plugged in, and keeps.
    let is_kernels = |it: &String| ["fe80:", "ff00:", "table local"].iter().any(|word| it.contains(word));
    lines.retain(|it| !is_kernels(it));
    lines.extend(rules.lines().chain(filters.lines()).map(|it| it.trim_end().to_owned()));
    lines.sort_unstable();
    lines.join("\n")
}

fn quietly(control: &Namespace, arguments: &[&str]) -> std::io::Result<std::process::Output> {
    Command::new("ip").args(["-n", control.name()]).args(arguments).output()
}
