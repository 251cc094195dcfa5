//! What is served, at its plainest: one owner, one pool, one listener that gives everything to it.

use std::net::SocketAddr;

use seaway_model::{
    L4, Listener, Member, Owner, Pool, PoolId,
    load_balancer::{
        BackendProtocol, Balance, HttpOptions, Limits, MemberState, PoolHttpOptions, Protocol, Rule, Timeouts,
    },
};

pub fn owner() -> Owner {
    Owner::Config("test".into())
}

pub fn pool_id() -> PoolId {
    PoolId("members".into())
}

/// A ready one.
pub fn member(at: SocketAddr) -> Member {
    Member {
        at,
        host_name: None,
        node: None,
        weight: 1,
        state: MemberState::Ready,
        backup: false,
        name: None,
    }
}

/// TCP in turn, with nothing else asked for; members in the order that a plan has them.
pub fn pool(members: &[SocketAddr]) -> Pool {
    let mut members: Vec<Member> = members.iter().map(|at| member(*at)).collect();
    members.sort();
    Pool {
        id: pool_id(),
        owner: owner(),
        l4: L4::Tcp,
        protocol: BackendProtocol::Opaque,
        tls: None,
        balance: Balance::RoundRobin,
        affinity: None,
        health: None,
        passive: None,
        slow_start: None,
        panic_threshold: 0,
        member_limit: None,
        limits: Limits::default(),
        proxy: None,
        transparent: false,
        http: PoolHttpOptions::default(),
        members,
    }
}

/// TCP, everything to [`pool_id`].
pub fn listener(port: u16) -> Listener {
    Listener {
        owner: owner(),
        name: "test".into(),
        l4: L4::Tcp,
        port,
        protocol: Protocol::Opaque,
        tls: None,
        rules: vec![Rule::forward_all(owner(), pool_id()).into()],
        http: HttpOptions::default(),
        sources: Vec::new(),
        denied: Vec::new(),
        proxy_from: Vec::new(),
        limits: Limits::default(),
        timeouts: Timeouts::default(),
    }
}
