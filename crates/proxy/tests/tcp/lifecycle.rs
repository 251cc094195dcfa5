use std::{
    net::{IpAddr, Ipv4Addr, TcpListener},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use seaway_proxy::{DrainResult, OpenError};
use seaway_testkit::balancing::pool_id;

use crate::stage::*;

/// The clock of workers ticks with the kernel.
const COARSE: Duration = Duration::from_millis(20);

#[test]
fn a_swap_of_the_pool_moves_no_connection() {
    let (stage, backends) = (Stage::new(), [b'a', b'b', b'c'].map(Backend::named));
    let all = backends.each_ref().map(|backend| backend.at);
    let at = stage.serve(&all);
    let mut held: Vec<_> = (0..9).map(|_| greeted(at)).collect();
    for round in 0..200 {
        stage.put(pool(&all[round % 3..]));
        echoes(&mut held[round % 9].1);
    }
    held.iter_mut().for_each(|(_, stream)| echoes(stream));
    let accepted: usize = backends.iter().map(Backend::accepted).sum();
    assert_eq!(accepted, 9);
}

/// Longer than any machine takes for a test.
const FOR_EVER: Duration = Duration::from_secs(24 * 3_600);

#[test]
fn connections_of_a_removed_member_go_on_during_the_drain() {
    let (stage, backends) = (Stage::new(), [b'a', b'b'].map(Backend::named));
    let all = backends.each_ref().map(|backend| backend.at);
    stage.put(pool(&all));
    let (at, _) = stage.open(HERE, |listener| listener.timeouts.drain = FOR_EVER);
    let mut held: Vec<_> = (0..6).map(|_| greeted(at)).collect();
    assert!(held.iter().any(|(name, _)| *name == b'a'));
    stage.put(pool(&all[1..]));
    // Workers have heard of the removal once newcomers are sent to the other alone.
    for _ in 0..20 {
        assert_eq!(greeted(at).0, b'b');
    }
    for (_, stream) in &mut held {
        echoes(stream);
    }
    assert_eq!(stage.member(all[0]).state, None, "it is shown as long as it has connections");
}

#[test]
fn connections_of_a_removed_member_end_when_the_drain_is_over() {
    let (stage, backends) = (Stage::new(), [b'a', b'b'].map(Backend::named));
    let all = backends.each_ref().map(|backend| backend.at);
    stage.put(pool(&all));
    let (at, _) = stage.open(HERE, |listener| listener.timeouts.drain = Duration::from_secs(2));
    let mut held: Vec<_> = (0..6).map(|_| greeted(at)).collect();
    let removed = Instant::now();
    stage.put(pool(&all[1..]));
    for (name, stream) in &mut held {
        if *name == b'a' {
            assert_eq!(ending(stream), Ending::End);
            assert!(removed.elapsed() >= Duration::from_secs(2) - COARSE);
        }
    }
    for (name, stream) in &mut held {
        if *name == b'b' {
            echoes(stream);
        }
    }
    eventually("it is forgotten", || {
        stage
            .proxy
            .statistics()
            .pools
            .iter()
            .all(|pool| pool.members.iter().all(|member| member.at != all[0]))
    });
}

#[test]
fn a_member_that_comes_back_in_time_keeps_its_connections() {
    let (stage, backend) = (Stage::new(), Backend::named(b'a'));
    stage.put(pool(&[backend.at]));
    let (at, _) = stage.open(HERE, |listener| listener.timeouts.drain = Duration::from_secs(2));
    let (_, mut held) = greeted(at);
    stage.put(pool(&[]));
    stage.put(pool(&[backend.at]));
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(2_500) {
        echoes(&mut held);
    }
    assert_eq!(stage.member(backend.at).traffic.total, 1, "its counters went on");
}

#[test]
fn a_closed_listener_lets_connections_finish() {
    let (stage, backend) = (Stage::new(), Backend::named(b'a'));
    stage.put(pool(&[backend.at]));
    let (at, listener) = stage.open(HERE, |listener| listener.timeouts.drain = FOR_EVER);
    let mut held = greeted(at).1;
    stage.proxy.close(&stage.key, HERE, listener.id());
    eventually("nobody comes in", || std::net::TcpStream::connect(at).is_err());
    assert!(stage.listener(at).closed);
    // Workers have had many turns since.
    (0..500).for_each(|_| echoes(&mut held));
}

#[test]
fn connections_of_a_closed_listener_end_when_the_drain_is_over() {
    let (stage, backend) = (Stage::new(), Backend::named(b'a'));
    stage.put(pool(&[backend.at]));
    let (at, listener) = stage.open(HERE, |listener| listener.timeouts.drain = Duration::from_secs(2));
    let mut held = greeted(at).1;
    let closed = Instant::now();
    stage.proxy.close(&stage.key, HERE, listener.id());
    assert_eq!(ending(&mut held), Ending::End);
    assert!(closed.elapsed() >= Duration::from_secs(2) - COARSE);

    stage.proxy.open(&stage.key, HERE, Arc::new(listener)).unwrap();
    assert_eq!(greeted(at).0, b'a');
}

#[test]
fn what_was_closed_can_be_opened_again_at_once() {
    // No client's own port is drawn at this address: nobody else takes the port while it is closed.
    const ALONE: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 13, 0, 1));
    let (stage, backend) = (Stage::new(), Backend::named(b'a'));
    stage.put(pool(&[backend.at]));
    let (at, listener) = stage.open(ALONE, |_| {});
    for _ in 0..50 {
        stage.proxy.close(&stage.key, ALONE, listener.id());
        stage.proxy.open(&stage.key, ALONE, Arc::new(listener.clone())).unwrap();
        assert_eq!(greeted(at).0, b'a');
    }
}

#[test]
fn what_runs_is_told_by_load_balancer() {
    let stage = Stage::new();
    assert_eq!(stage.proxy.running(&stage.key), None);
    let desired = pool(&[nobody()]);
    stage.put(desired.clone());
    let (_, listener) = stage.open(HERE, |_| {});
    let running = stage.proxy.running(&stage.key).unwrap();
    assert_eq!(running.sockets, [((HERE, listener.id()), Arc::new(listener.clone()))].into());
    assert_eq!(running.pools, [(pool_id(), Arc::new(desired))].into());
    assert_eq!(stage.proxy.keys(), std::slice::from_ref(&stage.key));

    stage.proxy.close(&stage.key, HERE, listener.id());
    stage.proxy.remove_pool(&stage.key, &pool_id());
    assert_eq!(stage.proxy.running(&stage.key), None);
    assert_eq!(stage.proxy.keys(), []);
}

#[test]
fn a_foreign_listener_is_named_and_not_joined() {
    let port = free_port();
    let foreign = TcpListener::bind((HERE, port)).unwrap();
    let stage = Stage::new();
    let wanted = Arc::new(listener(port));
    let error = stage.proxy.open(&stage.key, HERE, wanted.clone()).unwrap_err();
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
    drop(foreign);
    stage.proxy.open(&stage.key, HERE, wanted).unwrap();
}

/// SO_REUSEPORT would let both listen, and half of the clients go astray.
#[test]
fn a_foreign_listener_that_would_share_is_named_and_not_joined() {
    use socket2::{Domain, Socket, Type};
    let foreign = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    foreign.set_reuse_port(true).unwrap();
    foreign.set_reuse_address(true).unwrap();
    foreign.bind(&std::net::SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    foreign.listen(8).unwrap();
    let port = foreign.local_addr().unwrap().as_socket().unwrap().port();
    let stage = Stage::new();
    let error = stage.proxy.open(&stage.key, HERE, Arc::new(listener(port))).unwrap_err();
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
}

#[test]
fn all_workers_share_a_port() {
    let (stage, backend) = (Stage::new(), Backend::named(b'a'));
    let at = stage.serve(&[backend.at]);
    // With two sockets on the port the kernel chooses by the client's port.
    let held: Vec<_> = (0..200).map(|_| greeted(at)).collect();
    assert_eq!(stage.listener(at).traffic.current, 200);
    drop(held);
}

#[test]
fn addresses_that_are_not_here_yet_can_be_opened() {
    let stage = Stage::new();
    for ip in ["192.0.2.77", "2001:db8::77"] {
        let (at, _) = stage.open_anywhere(ip.parse().unwrap());
        assert_eq!(stage.listener(at).traffic.total, 0);
    }
}

#[test]
fn a_clean_stop_waits_for_connections() {
    let (stage, backend) = (Stage::new(), Backend::named(b'a'));
    let at = stage.serve(&[backend.at]);
    let (_, mut held) = greeted(at);
    stage.proxy.stop_accepting();
    eventually("nobody comes in", || std::net::TcpStream::connect(at).is_err());
    let proxy = stage.proxy.clone();
    let draining = thread::spawn(move || proxy.drain(Instant::now() + PATIENCE));
    echoes(&mut held);
    drop(held);
    assert_eq!(draining.join().unwrap(), DrainResult { cut: 0 });
}

#[test]
fn a_clean_stop_cuts_what_goes_on_too_long() {
    let (stage, backend) = (Stage::new(), Backend::named(b'a'));
    let at = stage.serve(&[backend.at]);
    let (_, mut held) = greeted(at);
    stage.proxy.stop_accepting();
    let begin = Instant::now();
    assert_eq!(stage.proxy.drain(begin + Duration::from_millis(100)), DrainResult { cut: 1 });
    assert!(begin.elapsed() >= Duration::from_millis(100));
    assert_eq!(ending(&mut held), Ending::End);
}

#[test]
fn thousands_of_listeners_open_fast() {
    let stage = Stage::new();
    let begin = Instant::now();
    let mut opened = 0;
    let port = free_port();
    for number in 0..1000 {
        let ip = std::net::Ipv4Addr::from(0x7f20_0000 + number).into();
        opened += usize::from(stage.proxy.open(&stage.key, ip, Arc::new(listener(port))).is_ok());
    }
    assert_eq!(opened, 1000);
    assert!(begin.elapsed() < Duration::from_secs(15), "{:?}", begin.elapsed());
}

#[test]
fn dropping_the_proxy_ends_everything() {
    let (stage, backend) = (Stage::new(), Backend::named(b'a'));
    let at = stage.serve(&[backend.at]);
    let (_, mut held) = greeted(at);
    drop(stage);
    let _ = ending(&mut held);
    assert!(std::net::TcpStream::connect(at).is_err());
}
