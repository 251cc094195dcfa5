use std::{io::Read, net::Ipv6Addr, thread, time::Instant};

use seaway_proxy::RefusalReason;

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
    assert_eq!(stage.listener(at).refused(RefusalReason::Source), 1);

    listener.sources = Vec::new();
    stage.proxy.retune(&stage.key, HERE, listener.into());
    assert_eq!(greeted(at).0, b'a');
}

#[test]
fn denied_sources_stay_out_even_where_they_are_allowed() {
    let (stage, backend) = (Stage::new(), Backend::named(b'a'));
    stage.put(pool(&[backend.at]));
    let (at, mut listener) = stage.open(HERE, |listener| {
        listener.denied = vec!["127.0.0.9/32".parse().unwrap()];
    });
    assert_eq!(greeted(at).0, b'a');
    let stays_out = |at| matches!(connect_from([127, 0, 0, 9], at).read(&mut [0]), Ok(0) | Err(_));
    assert!(stays_out(at));
    assert_eq!(stage.listener(at).refused(RefusalReason::Source), 1);

    listener.sources = vec!["127.0.0.8/29".parse().unwrap()];
    stage.proxy.retune(&stage.key, HERE, listener.into());
    assert!(stays_out(at) && is_refused(at));
    assert_eq!(name_of(&mut connect_from([127, 0, 0, 10], at)), b'a');
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
    assert_eq!(stage.listener(at).refused(RefusalReason::Connections), 1);
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
    let (begin, mut admitted, mut turned_away) = (Instant::now(), 0, 0);
    // All knock before anybody is answered; where the machine is so slow that all of these have room, the next are more.
    eventually("there are more than have room", || {
        let mut newcomers: Vec<_> = (0..20).map(|_| connect(at)).collect();
        let greeted = newcomers.iter_mut().filter_map(|it| it.read_exact(&mut [0]).ok()).count();
        admitted += greeted;
        turned_away += newcomers.len() - greeted;
        // A second's worth at once, and then as many as seconds have.
        let most = 5.0 * (1.0 + begin.elapsed().as_secs_f64()) + 1.0;
        assert!(admitted >= 5 && admitted as f64 <= most, "{admitted} in {:?}", begin.elapsed());
        turned_away > 0
    });
    assert_eq!(stage.listener(at).refused(RefusalReason::Rate) as usize, turned_away);
    eventually("there is room again", || connect(at).read_exact(&mut [0]).is_ok());
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
