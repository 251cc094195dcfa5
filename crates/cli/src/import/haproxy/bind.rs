//! `bind`: ports, addresses, certificates.

use std::{net::IpAddr, path::PathBuf};

use super::{
    super::proxy::Certificate,
    Context,
    sections::{Line, Section},
};

#[derive(Clone, Debug)]
pub(super) struct Bind<'s> {
    pub(super) line: &'s Line,
    pub(super) port: u16,
    pub(super) address: Option<IpAddr>,
    pub(super) ssl: bool,
    pub(super) proxy_protocol: bool,
    pub(super) certificates: Vec<Certificate>,
    /// Clients must, or may, show a certificate of these authorities.
    pub(super) clients: Option<(PathBuf, bool)>,
    /// A word that is not understood: it may say who can connect.
    pub(super) closed: Option<String>,
}

/// Words that say nothing about who may connect, with a value and without.
const WITH_VALUE: &str = "alpn backlog ciphers ciphersuites curves ecdhe mss name nice npn process thread shards tcp-ut tls-ticket-keys \
    ssl-min-ver ssl-max-ver sigalgs client-sigalgs user group mode uid gid id label idle-ping ocsp-update cc guid-prefix proto ca-ignore-err \
    crt-ignore-err ca-sign-file ca-sign-pass";
/// Words with a value that restrict who may connect.
const RESTRICT: &str = "interface namespace crl-file ca-verify-file";
const ALONE: &str = "allow-0rtt defer-accept force-sslv3 force-tlsv10 force-tlsv11 force-tlsv12 force-tlsv13 no-alpn no-ca-names no-sslv3 \
    no-tls-tickets no-tlsv10 no-tlsv11 no-tlsv12 no-tlsv13 prefer-client-ciphers tfo v4v6 ktls";

pub(super) fn binds<'s>(section: &'s Section, context: &mut Context<'_>) -> Vec<Bind<'s>> {
    let mut binds = Vec::new();
    if section.has_address() {
        context.report.left_out(
            &section.place,
            "an address after the name of the section is not read: write it as a bind line",
        );
    }
    for line in section.with("bind") {
        let mut common = Bind {
            line,
            port: 0,
            address: None,
            ssl: false,
            proxy_protocol: false,
            certificates: Vec::new(),
            clients: None,
            closed: None,
        };
        options(&mut common, context);
        for place in line.word(1).split(',') {
            match at(place) {
                Some((port, address)) => binds.push(Bind { port, address, ..common.clone() }),
                None => context.report.left_out(
                    &line.place,
                    "Seaway listens on ADDRESS:PORT only: no UNIX sockets, host names or port ranges",
                ),
            }
        }
    }
    binds
}

fn options(bind: &mut Bind<'_>, context: &mut Context<'_>) {
    let mut authorities = None;
    let mut verify = "none";
    let line = bind.line;
    let has = |list: &str, word: &str| list.split_whitespace().any(|it| it == word);
    let mut words = line.after(2).iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "ssl" => bind.ssl = true,
            "accept-proxy" => bind.proxy_protocol = true,
            "accept-netscaler-cip" => {
                words.next();
                bind.proxy_protocol = true;
            }
            "crt" => {
                let named = words.next().unwrap_or_default();
                let found = certificates(context.certificate(named));
                if found.is_empty() {
                    context.report.left_out(&line.place, &format!("crt {named}: this folder is not here, or has no file: name each file in `frontDoor.certificates`"));
                }
                bind.certificates.extend(found);
            }
            "crt-list" => {
                words.next();
                let why = "crt-list: it may require client certificates: name each of its files in crt";
                context.report.closed(&line.place, why);
                bind.closed.get_or_insert_with(|| why.to_owned());
            }
            "ca-file" => authorities = words.next().map(|it| context.path(it)),
            "verify" => verify = words.next().unwrap_or_default(),
            "ssl-min-ver" => context.proxy.door.modern |= words.next() == Some("TLSv1.3"),
            "maxconn" => {
                words.next();
                context.report.left_out(
                    &line.place,
                    "maxconn: `limits.memory` in seaway.yaml bounds what all clients together can take",
                );
            }
            "v6only" => {
                context.report.differs(&line.place, "v6only is ignored: the listener accepts IPv4, too")
            }
            "strict-sni" => context.report.left_out(
                &line.place,
                "strict-sni: the first certificate is shown to clients that request another name",
            ),
            word if has(WITH_VALUE, word) => drop(words.next()),
            word if has(ALONE, word) => {}
            word => {
                if has(RESTRICT, word) {
                    words.next();
                }
                let why = format!("{word}: Seaway has no such setting, and it may restrict who can connect");
                context.report.closed(&line.place, &why);
                bind.closed.get_or_insert(why);
            }
        }
    }
    if matches!(verify, "required" | "optional") {
        bind.clients = Some((authorities.unwrap_or_default(), verify == "required"));
    }
}

/// A file, or all files of a folder.
fn certificates(path: PathBuf) -> Vec<Certificate> {
    let with_key = |cert: PathBuf| {
        let key = PathBuf::from(format!("{}.key", cert.display()));
        Certificate { key: key.is_file().then_some(key), cert }
    };
    let Ok(entries) = std::fs::read_dir(&path) else {
        // One that is not here yet is a file, unless it is written as a folder.
        let is_folder = path.as_os_str().to_string_lossy().ends_with('/');
        return if is_folder { Vec::new() } else { vec![with_key(path)] };
    };
    let skipped = ["key", "ocsp", "issuer", "sctl"];
    let mut files: Vec<PathBuf> = entries.flatten().map(|it| it.path()).filter(|it| it.is_file()).collect();
    files.retain(|it| !it.extension().is_some_and(|it| skipped.iter().any(|of| it == *of)));
    files.sort();
    files.into_iter().take(100).map(with_key).collect()
}

/// `*:80`, `:80`, `192.0.2.1:80`, `[::]:80`, `:::80`, `ipv4@:80`.
fn at(text: &str) -> Option<(u16, Option<IpAddr>)> {
    let text = ["ipv4@", "ipv6@", "tcp@"].iter().find_map(|it| text.strip_prefix(it)).unwrap_or(text);
    let (host, port) = text.rsplit_once(':')?;
    let port: u16 = port.parse().ok().filter(|it| *it > 0)?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let address = match host {
        "" | "*" => None,
        "localhost" => Some(IpAddr::from([127, 0, 0, 1])),
        host => Some(host.parse::<IpAddr>().ok()?),
    };
    Some((port, address.filter(|it| !it.is_unspecified())))
}
