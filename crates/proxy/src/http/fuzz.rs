//! What must hold for any bytes whatever in fields of a request that say who somebody is (`fuzz/README.md`). Each line of
//! the input is one field.

#![allow(clippy::indexing_slicing, clippy::expect_used, reason = "what is wrong ends the fuzz target")]

use std::{net::IpAddr, sync::Arc};

use ipnet::IpNet;
use seaway_model::{
    L4, LbKey, Member, Owner, Pool, PoolId,
    load_balancer::{Affinity, BackendProtocol, Balance, CookieMode, MemberState, PoolHttpOptions},
};
use seaway_wire::http::{Limits, ReadProgress, Request};

use super::{request_id, sticky::StickySession, trusted_client};
use crate::running::RunningPool;

mod filters;

pub use filters::{cors, grpc, rules};

/// A head with a field of that name for each line, read. `None`: nobody would let it in.
fn asked(name: &str, bytes: &[u8]) -> Option<(Vec<u8>, Request)> {
    let mut head = b"GET / HTTP/1.1\r\nHost: a\r\n".to_vec();
    for line in bytes.split(|byte| *byte == b'\n') {
        for part in [name.as_bytes(), b": ", line, b"\r\n"] {
            head.extend_from_slice(part);
        }
    }
    head.extend_from_slice(b"\r\n");
    let mut request = Request::default();
    (request.read(&head, &Limits::default()) == ReadProgress::Whole).then_some((head, request))
}

/// Who the client is, nobody says but proxies of ours: what stands before the first other changes nothing, and neither
/// does one more proxy of ours behind it.
pub fn forwarded(bytes: &[u8]) {
    let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
    let trusted = ["10.0.0.0/8", "::1/128"].map(|it| it.parse::<IpNet>().expect("a range"));
    let found = |peer: &str, bytes: &[u8]| {
        let (head, request) = asked("X-Forwarded-For", bytes)?;
        Some(trusted_client::client(ip(peer), &head, &request, &trusted).ip)
    };
    let Some(client) = found("10.0.0.1", bytes) else { return };
    assert_eq!(client, client.to_canonical());
    assert_eq!(found("192.0.2.9", bytes), Some(ip("192.0.2.9")), "a stranger was believed");
    if client != ip("10.0.0.1") {
        let further = [bytes, b"\n10.0.0.2"].concat();
        assert!(found("10.0.0.1", &further).is_none_or(|it| it == client));
    }
    if !trusted.iter().any(|range| range.contains(&client)) {
        for before in [&b"203.0.113.7\n"[..], b"203.0.113.7, 10.0.0.3,"] {
            let told = [before, bytes].concat();
            assert!(
                found("10.0.0.1", &told).is_none_or(|it| it == client),
                "whoever wrote that was believed"
            );
        }
    }
}

/// A `traceparent` is one if it is written as the recommendation says, and alone.
pub fn trace_parent(bytes: &[u8]) {
    let Some((head, request)) = asked("traceparent", bytes) else { return };
    let text = bytes.trim_ascii();
    let parts: Vec<&[u8]> = text.split(|byte| *byte == b'-').collect();
    let lower = |part: &[u8]| part.iter().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(byte));
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    let expected = lengths.len() >= 4
        && lengths[..4] == [2, 32, 16, 2]
        && parts[..4].iter().all(|part| lower(part))
        && parts[1..3].iter().all(|part| part.iter().any(|byte| *byte != b'0'))
        && parts[0] != b"ff"
        && (parts[0] != b"00" || parts.len() == 4);
    let lines = bytes.split(|byte| *byte == b'\n').count();
    assert_eq!(request_id::is_traced(&head, &request), expected && lines == 1);
}

/// The member that a client had is known by its mark and nothing else, and members see all cookies but ours. `@` in the
/// input stands for the mark.
pub fn cookies(bytes: &[u8]) {
    const NAME: &[u8] = b"SEAT";
    for mode in [CookieMode::Insert, CookieMode::Rewrite] {
        let pool = pool(mode);
        let live = pool.live();
        let mark = live.compiled.mark_of(live.members[0].at).expect("it has one").as_bytes().to_vec();
        let text: Vec<u8> =
            bytes.iter().flat_map(|byte| if *byte == b'@' { mark.clone() } else { vec![*byte] }).collect();
        let Some((head, request)) = asked("Cookie", &text) else { return };
        let sticky = StickySession::of(&pool, &head, &request).expect("the pool keeps clients");
        let (before, mut line) = (pairs(&text), Vec::new());
        sticky.put_cookies(&mut line);
        assert!(line.is_empty() || (line.starts_with(b"Cookie: ") && line.ends_with(b"\r\n")));
        let line = line.strip_prefix(b"Cookie: ").unwrap_or_default();
        let after = if sticky.changes_cookies() { pairs(line) } else { before.clone() };
        let is_ours = |(name, _): &(Vec<u8>, Vec<u8>)| name == NAME;
        let others = |pairs: &[(Vec<u8>, Vec<u8>)]| -> Vec<_> {
            pairs.iter().filter(|pair| !is_ours(pair)).cloned().collect()
        };
        assert_eq!(others(&after), others(&before), "cookies of others are others");
        let marked = |(_, value): &(Vec<u8>, Vec<u8>)| match mode {
            CookieMode::Insert => *value == mark,
            CookieMode::Rewrite => value.starts_with(&[&mark[..], b"~"].concat()),
        };
        let known = before.iter().any(|pair| is_ours(pair) && marked(pair));
        assert_eq!(sticky.mark.is_some(), known);
        match mode {
            CookieMode::Insert => assert!(!after.iter().any(is_ours), "a member sees ours"),
            CookieMode::Rewrite => assert_eq!(after.len(), before.len()),
        }
    }
}

/// Names and values of cookies.
fn pairs(text: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let pairs = text.split(|byte| matches!(byte, b';' | b'\n')).map(<[u8]>::trim_ascii);
    let parted = pairs.filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_at(pair.iter().position(|byte| *byte == b'=').unwrap_or(0));
        (name.trim_ascii().to_vec(), value.get(1..).unwrap_or_default().trim_ascii().to_vec())
    });
    parted.collect()
}

fn pool(mode: CookieMode) -> Arc<RunningPool> {
    let affinity = Some(Affinity::Cookie { name: "SEAT".into(), mode, key: None });
    let pool = Pool { affinity, ..pool_of_one() };
    let running = RunningPool::empty(LbKey::Whole, pool.id.clone());
    running.put(Some(Arc::new(pool)), 0);
    running
}

pub(crate) fn pool_of_one() -> Pool {
    let at = ([127, 0, 0, 1], 80).into();
    Pool {
        id: PoolId("members".into()),
        owner: Owner::Config("fuzz".into()),
        l4: L4::Tcp,
        protocol: BackendProtocol::Http1,
        tls: None,
        balance: Balance::RoundRobin,
        affinity: None,
        health: None,
        passive: None,
        slow_start: None,
        panic_threshold: 0,
        member_limit: None,
        limits: seaway_model::load_balancer::Limits::default(),
        proxy: None,
        transparent: false,
        http: PoolHttpOptions::default(),
        members: vec![Member {
            at,
            host_name: None,
            node: None,
            weight: 1,
            state: MemberState::Ready,
            backup: false,
            name: None,
        }],
    }
}
