//! A bare TCP relay on one worker, to be measured: `relay 127.0.0.1:9101,127.0.0.1:9102 127.0.0.2:9201 …`.
//!
//! Where to listen comes first, then the members. With `--pin` its worker runs on processor 0 only.

use std::{error::Error, net::SocketAddr, sync::Arc};

use seaway_model::{
    L4, LbKey, Listener, Member, Pool, PoolId,
    load_balancer::{
        BackendProtocol, Balance, HealthCheck, HttpOptions, Limits, MemberState, PassiveHealthCheck,
        PoolHttpOptions, Protocol, Rule, Timeouts,
    },
    name::Owner,
};
use seaway_proxy::{Proxy, Settings};

fn main() -> Result<(), Box<dyn Error>> {
    let mut addresses: Vec<String> = std::env::args().skip(1).collect();
    let pin =
        addresses.iter().position(|argument| argument == "--pin").map(|at| addresses.remove(at)).is_some();
    let (places, members) = addresses.split_first().ok_or("say where to listen, then the members")?;
    let places = places.split(',').map(str::parse).collect::<Result<Vec<SocketAddr>, _>>()?;
    let mut members = members.iter().map(|text| text.parse()).collect::<Result<Vec<SocketAddr>, _>>()?;
    members.sort_unstable();

    seaway_proxy::raise_descriptor_limit()?;
    let proxy = Proxy::start(Settings { workers: 1, pin })?;
    let owner = Owner::Config("relay".into());
    let (key, pool) = (LbKey::Of(owner.clone()), PoolId("members".into()));
    proxy.put_pool(&key, Arc::new(relay_pool(owner.clone(), pool.clone(), &members)));
    for at in places {
        let listener = Listener {
            owner: owner.clone(),
            name: "relay".into(),
            l4: L4::Tcp,
            port: at.port(),
            protocol: Protocol::Opaque,
            tls: None,
            rules: vec![Rule::forward_all(owner.clone(), pool.clone()).into()],
            http: HttpOptions::default(),
            sources: Vec::new(),
            denied: Vec::new(),
            proxy_from: Vec::new(),
            limits: Limits::default(),
            timeouts: Timeouts::default(),
        };
        proxy.open(&key, at.ip(), Arc::new(listener))?;
    }
    loop {
        std::thread::park();
    }
}

fn relay_pool(owner: Owner, id: PoolId, members: &[SocketAddr]) -> Pool {
    let member = |at: &SocketAddr| Member {
        at: *at,
        host_name: None,
        node: None,
        weight: 1,
        state: MemberState::Ready,
        backup: false,
        name: None,
    };
    Pool {
        id,
        owner,
        l4: L4::Tcp,
        protocol: BackendProtocol::Opaque,
        tls: None,
        balance: Balance::RoundRobin,
        affinity: None,
        health: Some(HealthCheck::default()),
        passive: Some(PassiveHealthCheck::default()),
        slow_start: None,
        panic_threshold: 0,
        member_limit: None,
        limits: Limits::default(),
        proxy: None,
        transparent: false,
        http: PoolHttpOptions::default(),
        members: members.iter().map(member).collect(),
    }
}
