use std::{net::Ipv6Addr, thread, time::Duration};

use seaway_proxy::Refusal;

use crate::stage::*;

#[test]
fn only_allowed_sources_come_in() {
    let (stage, backend) = (Stage::new(), Backend::named(b'a'));
    stage.put(pool(&[backend.at]));
    let (at, mut listener) = stage.open(HERE, |listener| {
        listener.sources = vec!["127.0.0.8/29".parse().unwrap()];
    });
    assert!(is_refused(at));
    assert_eq!(name_of(&mut connect_from([127, 0, 0, 9], at)), b'a');
    assert_eq!(stage.listener(at).refused(Refusal::Source), 1);

    listener.sources = Vec::new();
    stage.proxy.retune(&stage.key, HERE, listener.into());
    assert_eq!(greeted(at).0, b'a');
}

#[test]
fn sources_hold_for_ipv6_too() {
    let (stage, backend) = (Stage::new(), Backend::named(b'a'));
    stage.put(pool(&[backend.at]));
    let allow = |range: &'static str| {
        stage
            .open(Ipv6Addr::LOCALHOST.into(), move |listener| listener.sources = vec![range.parse().unwrap()])
    };
    assert!(is_refused(allow("2001:db8::/32").0));
    assert_eq!(greeted(allow("::1/128").0).0, b'a');
}

#[test]
fn connections_beyond_the_limit_are_reset_until_one_ends() {
    let (stage, backend) = (Stage::new(), Backend::named(b'a'));
    stage.put(pool(&[backend.at]));
    let (at, _) = stage.open(HERE, |listener| listener.limits.connections = Some(3));
    let mut held: Vec<_> = (0..3).map(|_| greeted(at)).collect();
    assert!(is_refused(at));
    assert_eq!(stage.listener(at).refused(Refusal::Connections), 1);
    held.pop();
    eventually("one has ended", || stage.listener(at).traffic.current == 2);
    assert_eq!(greeted(at).0, b'a');
    held.iter_mut().for_each(|(_, stream)| echoes(stream));
}

#[test]
fn newcomers_beyond_the_rate_are_reset() {
    let (stage, backend) = (Stage::new(), Backend::named(b'a'));
    stage.put(pool(&[backend.at]));
    let (at, _) = stage.open(HERE, |listener| listener.limits.new_per_second = Some(5));
    let begin = std::time::Instant::now();
    let admitted = (0..20).filter(|_| !is_refused_or_greets(at)).count();
    if begin.elapsed() < Duration::from_millis(400) {
        assert!((5..=8).contains(&admitted), "{admitted}");
        assert_eq!(stage.listener(at).refused(Refusal::Rate) as usize, 20 - admitted);
    }
    eventually("there is room again", || !is_refused_or_greets(at));
}

fn is_refused_or_greets(at: std::net::SocketAddr) -> bool {
    use std::io::Read;
    let mut stream = connect(at);
    stream.read_exact(&mut [0]).is_err()
}

#[test]
fn a_flood_leaves_nothing_behind() {
    let (stage, backend) = (Stage::new(), Backend::echo(HERE));
    let at = stage.serve(&[backend.at]);
    let clients: Vec<_> = (0..8)
        .map(|_| {
            thread::spawn(move || {
                for _ in 0..250 {
                    echoes(&mut connect(at));
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    eventually("all are gone", || stage.proxy.statistics().connections == 0);
    let (listener, member) = (stage.listener(at).traffic, stage.member(backend.at).traffic);
    assert_eq!((listener.current, listener.total), (0, 2000));
    assert_eq!((member.current, member.total, member.bytes_in, member.bytes_out), (0, 2000, 8000, 8000));
}
