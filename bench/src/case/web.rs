//! The cases in which HTTP is asked, beside peers that do the same work and add the same fields.

use anyhow::Result;

use super::{Case, Metric, Target};
use crate::contender::{CALLS, Contender, SPLICED, STREAMS, WEB};
use crate::load::streams::{Manner, Streams};
use crate::load::web::{Question, Web};
use crate::load::{Clients, Rig};

const BULK_CONNECTIONS: usize = 16;
/// At a time, over each connection of HTTP/2.
const STREAMS_EACH: usize = 32;

pub fn contenders(case: Case) -> &'static [Contender] {
    use Contender::{Haproxy, HaproxySplice, Nginx, Seaway};
    match case {
        Case::HttpBulk => &[Seaway, Haproxy, HaproxySplice, Nginx],
        _ => &[Seaway, Haproxy, Nginx],
    }
}

pub fn targets(case: Case) -> Vec<Target> {
    use Contender::{Haproxy, HaproxySplice, Nginx};
    let busy = |against, at_most| Target { metric: Metric::BusyPerRequest, against: Some(against), at_most };
    match case {
        Case::HttpBulk => vec![busy(Haproxy, 0.6), busy(HaproxySplice, 1.0)],
        Case::HttpConnect | Case::Http2 | Case::Grpc => vec![busy(Haproxy, 0.9)],
        // The better of the two is meant, so it is both.
        _ => vec![busy(Haproxy, 0.85), busy(Nginx, 0.85)],
    }
}

pub fn rate(case: Case) -> Option<f64> {
    Some(match case {
        Case::HttpBulk => 400.0,
        Case::HttpConnect => 4_000.0,
        Case::Grpc => 8_000.0,
        _ => 12_000.0,
    })
}

pub fn describe(case: Case) -> String {
    let (connections, answer) = size(case);
    match case {
        Case::HttpConnect => {
            "HTTP/1.1, 1 KiB, new client connection per request, those to the backend kept".into()
        }
        Case::Http2 => {
            format!(
                "HTTP/2, {connections} connections × {STREAMS_EACH} streams, to HTTP/1.1 backends, {answer} B"
            )
        }
        Case::Grpc => {
            format!("gRPC, unary, {answer} B each way, {connections} connections × {STREAMS_EACH} streams")
        }
        Case::HttpBulk => format!("HTTP/1.1, answers of 1 MiB, keep-alive, {connections} connections"),
        _ => format!("HTTP/1.1, answers of {answer} B, keep-alive, {connections} connections"),
    }
}

/// How many connections, and how long the answers are.
fn size(case: Case) -> (usize, usize) {
    match case {
        Case::Http100 => (64, 100),
        Case::HttpMany100 => (512, 100),
        Case::HttpMany1k => (512, 1 << 10),
        Case::HttpBulk => (BULK_CONNECTIONS, 1 << 20),
        Case::Http2 | Case::Grpc => (16, 1 << 10),
        _ => (64, 1 << 10),
    }
}

pub fn clients(rig: &mut Rig, case: Case, contender: Contender) -> Result<Box<dyn Clients>> {
    let (connections, answer) = size(case);
    let to = if contender == Contender::HaproxySplice { SPLICED } else { WEB };
    let question = Question { to, answer, inspect: true, anew: false };
    Ok(match case {
        Case::HttpConnect => {
            let mut clients = Web::new(Question { anew: true, ..question });
            rig.prove(&mut clients, 8)?;
            Box::new(clients)
        }
        Case::Http2 | Case::Grpc => {
            let calls = case == Case::Grpc;
            let to = if calls { CALLS } else { STREAMS };
            let mut clients = Streams::new(Manner { to, streams: STREAMS_EACH, answer, calls });
            clients.open(rig, connections)?;
            Box::new(clients)
        }
        Case::HttpBulk => {
            // Byte for byte once, before the counting begins.
            Web::new(question.clone()).open(rig, 4)?;
            let mut clients = Web::new(Question { inspect: false, ..question });
            clients.open(rig, connections)?;
            Box::new(clients)
        }
        _ => {
            let mut clients = Web::new(question);
            clients.open(rig, connections)?;
            Box::new(clients)
        }
    })
}
