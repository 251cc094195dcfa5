//! Limits and time-outs, with values small enough to be seen.

use std::{
    io::{ErrorKind, Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use crate::{
    backends::{Backend, Talk},
    harness::{PATIENCE, Setup, own_address, until},
    manifests::Service,
};

#[test]
fn more_connections_than_the_limit_are_refused_until_somebody_leaves() {
    let backend = Backend::start("a");
    let service = Service::tcp("shop", 8080).with("max-connections", "3").to(backend.at);
    let seaway = Setup::new().write("shop.yaml", &service.text()).start();
    let mut kept: Vec<Talk> = (0..3).map(|_| Talk::open(seaway.at(8080)).expect("served")).collect();
    for _ in 0..5 {
        let error = Talk::open(seaway.at(8080)).expect_err("it is full");
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "a clear refusal");
    }
    until("all are counted", || seaway.listener(8080)["refused"]["byLimit"].as_u64() >= Some(5));
    let listener = seaway.listener(8080);
    assert_eq!(listener["refused"]["byLimit"], 5, "{listener}");
    assert_eq!(listener["sessions"]["limit"], 3, "{listener}");
    kept.pop();
    until("there is room", || Talk::open(seaway.at(8080)).is_ok());
    for talk in &mut kept {
        talk.echo(b"undisturbed").expect("it goes on");
    }
}

#[test]
fn new_connections_are_limited_by_the_second() {
    let backend = Backend::start("a");
    let service = Service::tcp("shop", 8080).with("max-new-connections-per-second", "10").to(backend.at);
    let seaway = Setup::new().write("shop.yaml", &service.text()).start();
    let (begun, mut tried, mut served) = (Instant::now(), 0, 0);
    // On a machine that takes a tenth of a second for each, the next ones are more.
    until("there are more than have room", || {
        tried += 60;
        served += (0..60).filter(|_| Talk::open(seaway.at(8080)).is_ok()).count();
        let most = 10.0 + 10.0 * begun.elapsed().as_secs_f64() + 1.0;
        assert!(served >= 10 && served as f64 <= most, "{served} of {tried} in {:?}", begun.elapsed());
        served < tried
    });
    until("a second later there is room again", || Talk::open(seaway.at(8080)).is_ok());
}

#[test]
fn an_idle_connection_is_ended_and_a_busy_one_is_not() {
    let backend = Backend::start("a");
    let service = Service::tcp("shop", 8080).with("timeout-idle", "6s").to(backend.at);
    let seaway = Setup::new().write("shop.yaml", &service.text()).start();
    let at = seaway.at(8080);
    let mut busy = Talk::open(at).expect("served");
    let begun = Instant::now();
    let idle = thread::spawn(move || {
        let mut idle = Talk::open(at).expect("served");
        (idle.stream.read(&mut [0]).unwrap_or(0), Instant::now())
    });
    while !idle.is_finished() {
        busy.echo(b"still here").expect("it is used all the time");
    }
    let (read, ended) = idle.join().expect("it ended");
    assert_eq!(read, 0);
    assert!(ended - begun >= Duration::from_millis(5_900), "{:?}", ended - begun);
    busy.echo(b"and now").expect("it goes on");
}

#[test]
fn a_half_closed_connection_has_a_time_of_its_own() {
    // Accepts, and neither answers nor closes.
    let mute = TcpListener::bind("127.0.0.1:0").expect("a port");
    let service = Service::tcp("shop", 8080)
        .with("health-check", "none")
        .with("timeout-idle", "1h")
        .with("timeout-half-closed", "500ms")
        .to(mute.local_addr().expect("it is bound"));
    let seaway = Setup::new().write("shop.yaml", &service.text()).start();
    let mut client = TcpStream::connect(seaway.at(8080)).expect("served");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let _member = mute.accept().expect("it comes");
    let begun = Instant::now();
    client.shutdown(Shutdown::Write).expect("half closed");
    assert_eq!(client.read(&mut [0]).unwrap_or(0), 0);
    assert!(begun.elapsed() >= Duration::from_millis(400), "{:?}", begun.elapsed());
}

#[test]
fn what_is_half_closed_still_brings_the_answer() {
    let member = TcpListener::bind("127.0.0.1:0").expect("a port");
    let service =
        Service::tcp("shop", 8080).with("health-check", "none").to(member.local_addr().expect("it is bound"));
    let seaway = Setup::new().write("shop.yaml", &service.text()).start();
    let mut client = TcpStream::connect(seaway.at(8080)).expect("served");
    client.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    client.write_all(b"question").expect("sent");
    client.shutdown(Shutdown::Write).expect("half closed");
    let (mut behind, _) = member.accept().expect("it comes");
    let mut question = String::new();
    behind.read_to_string(&mut question).expect("the end is passed on");
    behind.write_all(b"answer").expect("sent");
    drop(behind);
    let mut answer = String::new();
    client.read_to_string(&mut answer).expect("the other half works");
    assert_eq!((question.as_str(), answer.as_str()), ("question", "answer"));
}

#[test]
fn a_member_that_does_not_answer_in_time_is_passed_over() {
    let good = Backend::start("good");
    let (_full, deaf, _waiting) = deaf_member();
    let service = Service::tcp("shop", 8080)
        .with("health-check", "none")
        .with("passive-ejection", "off")
        .with("timeout-connect", "200ms")
        .to(deaf)
        .to(good.at);
    let seaway = Setup::new().write("shop.yaml", &service.text()).start();
    for _ in 0..6 {
        assert_eq!(Talk::open(seaway.at(8080)).expect("another one serves").with, "good");
    }
    let member = seaway.member(deaf);
    assert!(member["connectErrors"].as_u64() > Some(0) && member["retries"].as_u64() > Some(0), "{member}");
}

/// A listener whose queue is full: the kernel drops who knocks, as a host that is gone does.
fn deaf_member() -> (socket2::Socket, SocketAddr, Vec<socket2::Socket>) {
    let socket = |domain| socket2::Socket::new(domain, socket2::Type::STREAM, None).expect("a socket");
    let listener = socket(socket2::Domain::IPV4);
    listener.bind(&SocketAddr::new(IpAddr::V4(own_address()), 7_000).into()).expect("free");
    listener.listen(0).expect("it listens");
    let at = listener.local_addr().ok().and_then(|it| it.as_socket()).expect("it is bound");
    let mut waiting = Vec::new();
    loop {
        let client = socket(socket2::Domain::IPV4);
        let refused = client.connect_timeout(&at.into(), Duration::from_millis(300)).is_err();
        waiting.push(client);
        if refused {
            return (listener, at, waiting);
        }
        assert!(waiting.len() < 20, "the queue does not fill up");
    }
}
