//! The cases in which HTTP is asked, beside peers that do the same work and add the same fields.

use anyhow::Result;

use super::{Bench, Case, held};
use crate::contender::{CALLS, Contender, POLICIES, SECURE, SPLICED, STREAMS, WEB};
use crate::load::exchange::{Exchanges, Shape};
use crate::load::streams::{StreamOptions, Streams};
use crate::load::web::{RequestOptions, Web};
use crate::load::{Clients, Rig};
use crate::message::http;
use crate::metric::Metric;
use crate::target::{Against, Bound, Target};

const BULK_CONNECTIONS: usize = 16;
/// Opened at once.
const STEP: usize = 500;
/// At a time, over each connection of HTTP/2.
const STREAMS_EACH: usize = 32;
/// Requests that come at once: one for each stream of the 16 connections.
pub const BURST: u32 = 512;

/// None of them first: it is what the others are compared with.
const POLICIES_AND_NONE: [Contender; 6] = {
    let [unmeasured, rates, passwords, asking, compress] = POLICIES;
    [Contender::Seaway, unmeasured, rates, passwords, asking, compress]
};
/// What a request without policies has to cost of one with them: one with them costs 5 % more at most.
const OF_ONE_WITH_POLICIES: f64 = 1.0 / 1.05;

pub fn contenders(case: Case) -> &'static [Contender] {
    use Contender::{
        Caddy, Envoy, Haproxy, HaproxyNewer, HaproxySplice, Nginx, Pingora, Seaway, SeawayFew, Traefik,
    };
    match case {
        Case::Proxies => &[Seaway, HaproxyNewer, Haproxy, Nginx, Envoy, Pingora, Traefik, Caddy],
        Case::Policies => &POLICIES_AND_NONE,
        Case::HttpBulk => &[Seaway, Haproxy, HaproxySplice, Nginx],
        // Peers would need twice the descriptors, for connections to members that nobody asks for.
        Case::HttpIdle | Case::Http2Idle | Case::TlsIdle => &[Seaway],
        Case::Routes | Case::Certificates => &[Seaway, SeawayFew],
        _ => &[Seaway, Haproxy, Nginx],
    }
}

pub fn targets(case: Case) -> Vec<Target> {
    use Contender::{Haproxy, HaproxySplice, SeawayAsking, SeawayFew, SeawayUnmeasured};
    let busy = |peer, at_most| Target::beside(Metric::BusyPerRequest, peer, at_most);
    let alone = Target::alone;
    let each = |at_most| alone(Metric::MemoryPerConnection, at_most);
    match case {
        Case::HttpBulk => vec![busy(Haproxy, 0.6), busy(HaproxySplice, 1.0)],
        Case::HttpConnect | Case::TlsHandshake | Case::Http2Bursts => Target::at_rate(),
        Case::Proxies => {
            let peers = contenders(case).iter().copied().filter(|it| *it != Contender::Seaway);
            peers.flat_map(|it| Target::at_any_rate_beside(Against::Peer(it))).collect()
        }
        Case::Policies => {
            let mut targets = vec![busy(SeawayUnmeasured, 1.05)];
            // Forward auth is measured without a target: it makes a second request for each one, which no
            // proxy has for 5 % unless it caches the answers.
            let with = |it: &&Contender| !matches!(it, SeawayUnmeasured | SeawayAsking);
            targets.extend(POLICIES.iter().filter(with).map(|it| Target {
                metric: Metric::BusyPerRequest,
                against: Some(Against::Peer(*it)),
                bound: Bound::AtLeast(OF_ONE_WITH_POLICIES),
            }));
            targets
        }
        Case::HttpIdle => vec![each(12.0)],
        Case::Http2Idle => vec![each(32.0)],
        Case::TlsIdle => vec![each(40.0)],
        Case::Routes | Case::Certificates => {
            vec![busy(SeawayFew, 1.1), alone(Metric::Resident, 100.0), alone(Metric::UntilChanged, 20.0)]
        }
        _ => Target::at_any_rate(),
    }
}

pub fn rate(case: Case) -> Option<f64> {
    Some(match case {
        Case::HttpBulk => 400.0,
        Case::HttpConnect => 4_000.0,
        Case::Grpc => 8_000.0,
        Case::Websocket => 30_000.0,
        Case::Http2Bursts => 4_800.0,
        Case::TlsHandshake | Case::Certificates => 800.0,
        Case::TlsKeepalive => 10_000.0,
        // What the slowest of them holds on one core.
        Case::Proxies => 4_000.0,
        Case::HttpIdle | Case::Http2Idle | Case::TlsIdle => return None,
        _ => 12_000.0,
    })
}

pub fn describe(bench: &Bench, case: Case) -> String {
    let (connections, answer) = size(bench, case);
    match case {
        Case::HttpConnect => {
            "HTTP/1.1, 1 KiB, new client connection per request, those to the backend kept".into()
        }
        Case::TlsHandshake => {
            "TLS 1.3, new client connection with a full handshake per request, 1 KiB".into()
        }
        Case::TlsKeepalive => {
            format!("HTTP/1.1 through TLS 1.3, {answer} B, keep-alive, {connections} connections")
        }
        Case::Http2Bursts => {
            format!(
                "HTTP/2, {connections} connections × {STREAMS_EACH} streams, all of them asked at once, {answer} B"
            )
        }
        Case::Http2Crowd => format!("HTTP/2, {connections} connections, one stream each, {answer} B"),
        Case::Http2 | Case::Http2Many => {
            format!(
                "HTTP/2, {connections} connections × {STREAMS_EACH} streams, to HTTP/1.1 backends, {answer} B"
            )
        }
        Case::Grpc => {
            format!("gRPC, unary, {answer} B each way, {connections} connections × {STREAMS_EACH} streams")
        }
        Case::Websocket => {
            format!("WebSocket over HTTP/1.1, {answer} B each way, {connections} connections")
        }
        Case::HttpTwoWorkers => {
            format!(
                "HTTP/1.1, answers of {answer} B, keep-alive, {connections} connections, two workers on both cores"
            )
        }
        Case::HttpBulk => format!("HTTP/1.1, answers of 1 MiB, keep-alive, {connections} connections"),
        Case::Policies => {
            format!(
                "HTTP/1.1 with a user's name, answers of {answer} B, keep-alive, {connections} connections"
            )
        }
        _ => format!("HTTP/1.1, answers of {answer} B, keep-alive, {connections} connections"),
    }
}

/// How many connections, and how long the answers are.
fn size(bench: &Bench, case: Case) -> (usize, usize) {
    match case {
        Case::Http100 => (64, 100),
        Case::HttpMany100 => (512, 100),
        Case::HttpMany1k => (512, 1 << 10),
        Case::HttpBulk => (BULK_CONNECTIONS, 1 << 20),
        Case::HttpCrowd | Case::Http2Crowd => {
            (held::connections(bench, Case::IdleConnections) as usize, 1 << 10)
        }
        Case::Http2Many => (512, 1 << 10),
        Case::Http2 | Case::Http2Bursts | Case::Grpc => (16, 1 << 10),
        _ => (64, 1 << 10),
    }
}

/// How many are opened at once, so that no queue of new connections overflows.
pub fn steps(connections: usize) -> impl Iterator<Item = usize> {
    (0..connections).step_by(STEP).map(move |opened| STEP.min(connections - opened))
}

/// Opens so many connections, asks once on each, and keeps them.
pub fn idle(rig: &mut Rig, case: Case, count: usize) -> Result<Box<dyn Clients>> {
    if case == Case::Http2Idle {
        let mut clients =
            Streams::new(StreamOptions { to: STREAMS, streams: 1, answer: 1 << 10, calls: false });
        steps(count).try_for_each(|step| clients.open(rig, step))?;
        return Ok(Box::new(clients));
    }
    let secure = case == Case::TlsIdle;
    let to = if secure { SECURE } else { WEB };
    let mut clients = Web::new(RequestOptions {
        to,
        answer: 1 << 10,
        inspect: true,
        anew: false,
        secure,
        hosts: None,
        fields: "",
    });
    steps(count).try_for_each(|step| clients.open(rig, step))?;
    Ok(Box::new(clients))
}

pub fn clients(bench: &mut Bench, case: Case, contender: Contender) -> Result<Box<dyn Clients>> {
    let (connections, answer) = size(bench, case);
    let rig = &mut bench.rig;
    let secure = matches!(case, Case::TlsHandshake | Case::TlsKeepalive | Case::TlsIdle);
    let to = match contender {
        Contender::HaproxySplice => SPLICED,
        _ if secure => SECURE,
        _ => WEB,
    };
    let fields = if case == Case::Policies { http::AS_A_USER } else { "" };
    let question = RequestOptions { to, answer, inspect: true, anew: false, secure, hosts: None, fields };
    Ok(match case {
        Case::HttpConnect | Case::TlsHandshake => {
            let mut clients = Web::new(RequestOptions { anew: true, ..question });
            rig.prove(&mut clients, 8)?;
            Box::new(clients)
        }
        Case::Http2 | Case::Http2Many | Case::Http2Crowd | Case::Http2Bursts | Case::Grpc => {
            let calls = case == Case::Grpc;
            let to = if calls { CALLS } else { STREAMS };
            let streams = if case == Case::Http2Crowd { 1 } else { STREAMS_EACH };
            let mut clients = Streams::new(StreamOptions { to, streams, answer, calls });
            steps(connections).try_for_each(|step| clients.open(rig, step))?;
            Box::new(clients)
        }
        Case::Websocket => {
            let shape = Shape { request: 1024, answer, inspect: true, upgrade: true };
            let mut clients = Exchanges::new(WEB, shape);
            steps(connections).try_for_each(|step| clients.open(rig, step))?;
            Box::new(clients)
        }
        Case::HttpBulk => {
            // Byte for byte once, before the counting begins.
            Web::new(question.clone()).open(rig, 4)?;
            let mut clients = Web::new(RequestOptions { inspect: false, ..question });
            clients.open(rig, connections)?;
            Box::new(clients)
        }
        _ => {
            let mut clients = Web::new(question);
            steps(connections).try_for_each(|step| clients.open(rig, step))?;
            Box::new(clients)
        }
    })
}
