//! `server_name` and `listen`.

use std::net::IpAddr;

use super::{
    super::{
        proxy::{Host, host},
        report::Report,
    },
    parse::Directive,
};

/// Which names a server has.
#[derive(Debug, Default)]
pub(super) struct Names {
    pub(super) hosts: Vec<Host>,
    /// It has no name, or one that no request has: only as the default server it serves.
    pub(super) has_none: bool,
    /// Names that cannot be written, or that usually no request has. Requests for them come to other servers.
    pub(super) lost: Vec<String>,
}

/// It is usually only written because something has to be.
const LOCAL: &str = "localhost";

impl Names {
    /// Of a server that is not the default one: then `localhost` is a name as others.
    pub(super) fn with_local(&mut self) {
        let before = self.lost.len();
        self.lost.retain(|it| it != LOCAL);
        if self.lost.len() < before {
            self.hosts.extend(host(LOCAL));
            self.has_none = false;
        }
    }
}

pub(super) fn names(block: &[Directive], report: &mut Report) -> Names {
    let mut names = Names::default();
    let mut is_named = false;
    for it in block.iter().filter(|it| it.name == "server_name") {
        report.translated(&it.place);
        for name in &it.args {
            if matches!(name.as_str(), "_" | "" | "-" | "*" | LOCAL | "default_server") {
                names.lost.push(name.clone());
                continue;
            }
            is_named = true;
            if let Some(below) = name.strip_prefix('.') {
                let hosts = [host(below), host(&format!("*.{below}"))];
                if hosts.iter().all(Option::is_some) {
                    names.hosts.extend(hosts.into_iter().flatten());
                    continue;
                }
            }
            match host(name) {
                Some(host) => names.hosts.push(host),
                None => {
                    names.lost.push(name.to_ascii_lowercase());
                    let why = "host names of Seaway are shop.example and *.shop.example: requests for other names do not come here";
                    report.left_out(&it.place, why);
                }
            }
        }
    }
    names.hosts.dedup();
    names.has_none = names.hosts.is_empty() && !is_named;
    names
}

/// One `listen`.
#[derive(Clone, Debug, Default)]
pub(super) struct Listen {
    pub(super) port: u16,
    /// Where it is not all addresses of the machine.
    pub(super) address: Option<IpAddr>,
    pub(super) ssl: bool,
    pub(super) udp: bool,
    pub(super) is_default: bool,
    pub(super) proxy_protocol: bool,
}

pub(super) fn listens(block: &[Directive], report: &mut Report) -> Vec<(Listen, Directive)> {
    let all_ssl = block.iter().any(|it| it.name == "ssl" && it.arg(0) == "on");
    let mut listens = Vec::new();
    for it in block.iter().filter(|it| it.name == "listen") {
        let Some(mut listen) = place(it.arg(0)) else {
            report.left_out(
                &it.place,
                "Seaway listens on PORT or ADDRESS:PORT only: no UNIX sockets or port ranges",
            );
            continue;
        };
        listen.ssl = all_ssl;
        report.translated(&it.place);
        let mut is_quic = false;
        for word in it.args.iter().skip(1) {
            match word.as_str() {
                "ssl" => listen.ssl = true,
                "udp" => listen.udp = true,
                "default_server" | "default" => listen.is_default = true,
                "proxy_protocol" => listen.proxy_protocol = true,
                "quic" => is_quic = true,
                _ => {}
            }
        }
        if is_quic {
            report.left_out(&it.place, "Seaway speaks HTTP/1.1 and HTTP/2, and no QUIC");
            continue;
        }
        listens.push((listen, it.clone()));
    }
    if !block.iter().any(|it| it.name == "listen") {
        let place = block.first().map(|it| it.place.clone());
        listens.extend(place.map(|place| {
            let usual =
                Directive { place, name: "listen".to_owned(), args: vec!["80".to_owned()], block: None };
            (Listen { port: 80, ..Listen::default() }, usual)
        }));
    }
    listens
}

/// `80`, `*:80`, `[::]:80`, `192.0.2.1`, `192.0.2.1:80`, `localhost:80`.
fn place(text: &str) -> Option<Listen> {
    if text.starts_with("unix:") {
        return None;
    }
    if let Ok(port) = text.parse() {
        return Some(Listen { port, ..Listen::default() }).filter(|it| it.port > 0);
    }
    let bare = |it: &str| it.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let (address, port) = match (bare(text), text.rsplit_once(':')) {
        (Ok(address), _) => (Some(address), 80),
        (_, Some((name, port))) => {
            let address = match name {
                "*" => None,
                "localhost" => Some(IpAddr::from([127, 0, 0, 1])),
                name => Some(bare(name).ok()?),
            };
            (address, port.parse().ok()?)
        }
        _ => return None,
    };
    let address = address.filter(|it| !it.is_unspecified());
    Some(Listen { port, address, ..Listen::default() }).filter(|it| it.port > 0)
}
