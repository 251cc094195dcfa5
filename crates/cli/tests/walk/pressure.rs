//! Too much of everything: connections, datagrams, rubbish, and peers that do nothing.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    thread,
    time::{Duration, Instant},
};

use crate::{
    backends::{Backend, Datagrams, Talk, Web, ask},
    front_door::{self, with_door},
    harness::{Setup, until},
    manifests::Service,
};

/// What a few hundred connections may take, in a build that is not optimized and with an allocator that keeps some.
const A_LITTLE: u64 = 24 << 20;

#[test]
fn out_of_descriptors_it_keeps_what_it_has_says_so_once_and_recovers() {
    let backend = Backend::start("a");
    let service = |port: u16| {
        Service::tcp("shop", port)
            .with("health-check-interval", "50ms")
            .with("health-check-fall", "1")
            // A machine that stands still for a moment is no member's fault either.
            .with("health-check-timeout", "1m")
            .to(backend.at)
            .text()
    };
    let seaway = Setup::new()
        .by(&["sh", "-c", "ulimit -n 160; exec \"$0\" \"$@\""])
        .write("shop.yaml", &service(8080))
        .start();
    let mut kept: Vec<Talk> = (0..10).map(|_| Talk::open(seaway.at(8080)).expect("served")).collect();
    let mut flood = Vec::new();
    let told = || seaway.log().matches("nearly out of file descriptors").count();
    until("it has no descriptor left", || {
        flood.push(TcpStream::connect(seaway.at(8080)).expect("the kernel takes it in"));
        assert!(flood.len() < 2_000, "it does not run out");
        told() > 0
    });
    // Some time, with checks that find no descriptor and a folder that cannot be read.
    seaway.folder.write("shop.yaml", &service(8081));
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(1) {
        for talk in &mut kept {
            talk.echo(b"still here").expect("what it has goes on");
        }
    }
    drop(flood);
    until("newcomers are served, and the change of the folder", || Talk::open(seaway.at(8081)).is_ok());
    for talk in &mut kept {
        talk.echo(b"still here").expect("nothing was lost");
    }
    let log = seaway.log();
    assert_eq!(told(), 1, "{log}");
    assert!(
        !log.contains("to=\"down\"") && !log.contains("to=\"ejected\""),
        "it is no member's fault: {log}"
    );
    until("nothing is wrong any more", || seaway.problems().is_empty());
}

#[test]
fn a_flood_of_connections_beyond_the_limit_takes_no_memory() {
    let backend = Backend::start("a");
    let service = Service::tcp("shop", 8080).with("max-connections", "50").to(backend.at);
    let seaway = Setup::new().write("shop.yaml", &service.text()).start();
    let mut kept: Vec<Talk> = (0..50).map(|_| Talk::open(seaway.at(8080)).expect("served")).collect();
    let before = seaway.resident();
    let at = seaway.at(8080);
    let floods: Vec<_> =
        (0..4).map(|_| thread::spawn(move || (0..500).filter(|_| Talk::open(at).is_ok()).count())).collect();
    let served: usize = floods.into_iter().map(|it| it.join().expect("no panic")).sum();
    assert_eq!(served, 0, "the limit holds");
    assert!(seaway.resident() < before + A_LITTLE, "{before} before, {} now", seaway.resident());
    let refused = || seaway.listener(8080)["refused"]["byLimit"].as_u64();
    until("all are counted", || refused() >= Some(2_000));
    assert_eq!(refused(), Some(2_000));
    for talk in &mut kept {
        talk.echo(b"undisturbed").expect("it goes on");
    }
}

/// The kernel kills who holds more than its control group has: what clients can make the process hold has a bound below that.
#[test]
fn a_process_that_holds_as_much_as_it_may_refuses_newcomers_and_lives_on() {
    const LIMIT: u64 = 16 << 20;
    let web = Web::start("web");
    let seaway =
        with_door("  limits: {head: 64Ki}\ndefaults: {timeouts: {header: 10m}}\nlimits: {memory: 16Mi}\n")
            .write("web.yaml", &Service::web("web").to(web.at).text())
            .start();
    let asked = || front_door::ask(seaway.at(8080), "GET", "any.example/web", "").status;
    assert_eq!(asked(), 200);
    let metric = |name: &str| -> u64 {
        let (_, all) = seaway.get("/metrics").expect("answered");
        let counts = all.lines().filter(|it| it.starts_with(name)).filter_map(|it| it.split(' ').next_back());
        counts.filter_map(|it| it.parse::<f64>().ok()).sum::<f64>() as u64
    };
    assert_eq!(metric("seaway_dataplane_memory_limit_bytes"), LIMIT);
    let before = seaway.resident();
    // Heads that never end: what has come of them has to be held.
    let part = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Padding: {}", "x".repeat(60_000));
    let mut flood: Vec<TcpStream> = Vec::new();
    until("newcomers are refused, or have to go", || {
        for _ in 0..20 {
            // Whoever is refused hears it while it still speaks.
            flood.extend(TcpStream::connect(seaway.at(8080)));
            let _ = flood.last_mut().map(|it| it.write_all(part.as_bytes()));
        }
        assert!(flood.len() < 5_000, "nobody is ever refused");
        metric("seaway_dataplane_memory_refused_total")
            + metric("seaway_dataplane_evictions_total{reason=\"memory\"}")
            > 100
    });
    let now = seaway.resident();
    assert!(now < before + LIMIT + A_LITTLE, "{before} before, {now} now, of {} heads", flood.len());
    drop(flood);
    until("it serves again", || asked() == 200);
}

#[test]
fn clients_that_never_send_or_never_read_hold_little_and_disturb_nobody() {
    let backend = Backend::start("a");
    // Writes for as long as somebody takes it.
    let hose = TcpListener::bind("127.0.0.1:0").expect("a port");
    let hose_at = hose.local_addr().expect("it is bound");
    thread::spawn(move || {
        for mut stream in hose.incoming().map_while(Result::ok) {
            thread::spawn(move || while stream.write_all(&[7; 65_536]).is_ok() {});
        }
    });
    let seaway = Setup::new()
        .config("defaults: {healthCheck: off}\n")
        .write("shop.yaml", &Service::tcp("shop", 8080).to(backend.at).text())
        .write("hose.yaml", &Service::tcp("hose", 8081).to(hose_at).text())
        .start();
    let before = seaway.resident();
    let silent: Vec<TcpStream> =
        (0..200).map(|_| TcpStream::connect(seaway.at(8080)).expect("accepted")).collect();
    let deaf: Vec<TcpStream> =
        (0..40).map(|_| TcpStream::connect(seaway.at(8081)).expect("accepted")).collect();
    until("all are connected", || seaway.listener(8081)["sessions"]["current"] == 40);
    // They are full when nothing moves any more.
    let mut last = serde_json::Value::Null;
    let mut since = Instant::now();
    until("nothing moves any more", || {
        let now = seaway.listener(8081)["bytes"]["out"].clone();
        if now != last {
            (last, since) = (now, Instant::now());
        }
        since.elapsed() > Duration::from_millis(300)
    });
    let mut talk = Talk::open(seaway.at(8080)).expect("served");
    talk.echo(&[1; 100_000]).expect("undisturbed");
    assert!(seaway.resident() < before + A_LITTLE, "{before} before, {} now", seaway.resident());
    // One of them begins to read after all.
    let mut some = vec![0; 1 << 20];
    let mut reads = deaf.into_iter().next().expect("there are 40");
    reads.set_read_timeout(Some(crate::harness::PATIENCE)).expect("a timeout");
    reads.read_exact(&mut some).expect("it gets what it asks for");
    assert!(some.iter().all(|it| *it == 7));
    drop(silent);
}

#[test]
fn rubbish_by_udp_is_carried_like_anything_else_and_held_by_nobody() {
    let backend = Datagrams::start("u");
    let service = Service::udp("dns", 5353).with("timeout-udp", "1s").to(backend.at);
    let seaway = Setup::new().write("dns.yaml", &service.text()).start();
    let at = seaway.at(5353);
    let client = UdpSocket::bind("127.0.0.1:0").expect("a port");
    assert_eq!(ask(&client, at, b"before").expect("answered"), b"u before");
    let before = seaway.resident();
    let mut seed = 1_u64;
    for _ in 0..400 {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        for _ in 0..5 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let length = [0, 1, 100, 1_472, 9_000, 65_507][(seed >> 33) as usize % 6];
            // The kernel may have no room for it; that is what a flood is.
            let _ = socket.send_to(&vec![(seed >> 40) as u8; length], at);
        }
    }
    until("a client among them is answered", || answered(&client, at));
    until("flows end when they are idle", || {
        seaway.listener(5353)["sessions"]["current"].as_u64().is_some_and(|it| it <= 1)
    });
    assert!(seaway.resident() < before + A_LITTLE, "{before} before, {} now", seaway.resident());
    until("the client is answered still", || answered(&client, at));
}

/// Datagrams may be lost in a flood, so it asks anew, and passes over answers of before.
fn answered(client: &UdpSocket, at: SocketAddr) -> bool {
    client.connect(at).expect("an address");
    client.set_read_timeout(Some(Duration::from_millis(500))).expect("a timeout");
    client.send(b"now").is_ok() && client.recv(&mut [0; 64]).is_ok()
}
