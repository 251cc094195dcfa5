//! The wall clock jumps; nobody who is served notices.

use std::{
    net::{SocketAddr, UdpSocket},
    os::unix::fs::FileExt,
    path::PathBuf,
    process::Command,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use seaway_testkit::topology::until_within;

use crate::{
    backends::{Backend, Datagrams, Talk, Web, ask},
    harness::{Seaway, Setup, own_address, until},
    manifests::Service,
    tls::{Pair, with_door},
};

const DAY: i64 = 86_400;
/// The process looks at its clock once a minute.
const THREE_LOOKS: Duration = Duration::from_secs(180);

/// A clock of its own for one process: the C compiler that Rust needs anyway makes it.
struct Clock {
    folder: tempfile::TempDir,
    offset: std::fs::File,
}

impl Clock {
    fn made() -> Clock {
        let folder = tempfile::tempdir().expect("a folder");
        let offset =
            std::fs::OpenOptions::new().create_new(true).write(true).open(folder.path().join("offset"));
        let clock = Clock { folder, offset: offset.expect("a file") };
        clock.jump(0);
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/walk/clock.c");
        let made = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(clock.library())
            .arg(source)
            .output();
        let made = made.expect("a C compiler");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        clock
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join("clock.so")
    }

    /// To so many seconds from the true time.
    fn jump(&self, seconds: i64) {
        self.offset.write_all_at(&seconds.to_ne_bytes(), 0).expect("is written");
    }

    fn given_to(&self, setup: Setup) -> Seaway {
        let seaway = setup.launch(|command| {
            command.env("LD_PRELOAD", self.library()).env("CLOCK_OFFSET", self.folder.path().join("offset"));
        });
        until("it is ready", || seaway.get("/ready").is_ok_and(|(status, _)| status == 200));
        seaway
    }
}

/// Seconds between the true time and what the process told last of a member.
fn told(seaway: &Seaway, member: SocketAddr) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis() as i64;
    let changed = seaway.member(member)["lastChange"].as_i64().unwrap_or_default();
    (changed - now) / 1000
}

#[test]
fn a_jump_of_the_clock_ends_nothing_and_begins_nothing() {
    let clock = Clock::made();
    let backends = ["a", "b", "c"].map(Backend::start);
    let all = [&backends[0], &backends[1], &backends[2]].map(|it| it.at);
    let udp = Datagrams::start("u");
    let sticky = Service::tcp("sticky", 8082).spec("sessionAffinity: ClientIP");
    let seaway = clock.given_to(
        Setup::new()
            .write("shop.yaml", &Service::tcp("shop", 8080).all_to(&all).text())
            .write("sticky.yaml", &sticky.all_to(&all).text())
            .write("dns.yaml", &Service::udp("dns", 5353).to(udp.at).text()),
    );
    let (at, sticky_at, dns_at) = (seaway.at(8080), seaway.at(8082), seaway.at(5353));
    let sticks_to = Talk::open(sticky_at).expect("served").with;
    let flow = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let mut long: Vec<Talk> = (0..6).map(|_| Talk::open(at).expect("served")).collect();

    for (jump, port) in [(DAY, 8090), (-2 * DAY, 8091), (400 * DAY, 8092), (0, 8093)] {
        clock.jump(jump);
        for talk in &mut long {
            talk.echo(b"goes on").expect("it goes on");
        }
        assert_eq!(ask(&flow, dns_at, b"q").expect("answered"), b"u q");
        assert_eq!(Talk::open(sticky_at).expect("served").with, sticks_to, "a client is remembered");
        // Checks go on by a clock that does not jump, and tell the time by the one that did.
        let victim = Backend::start_at("victim", (own_address(), 7_000));
        seaway.folder.write(
            "more.yaml",
            &Service::tcp("more", port).with("health-check-interval", "50ms").to(victim.at).text(),
        );
        until("a change is served", || Talk::open(seaway.at(port)).is_ok());
        let dead = victim.kill_and_tell();
        until("its death is noticed", || seaway.member(dead)["state"] == "down");
        let off = told(&seaway, dead) - jump;
        assert!(off.abs() < 120, "the process tells the time by its own clock: {off} s off");
    }
    // A removed member drains for as long as ever, not until a clock says so.
    seaway.folder.write("shop.yaml", &Service::tcp("shop", 8080).to(all[0]).text());
    until("it is removed", || seaway.member(all[1])["state"] != "up");
    clock.jump(DAY);
    for talk in &mut long {
        talk.echo(b"drains").expect("it goes on");
    }
    drop(long);
    assert!(seaway.stop().success());
}

#[test]
fn a_certificate_whose_day_comes_while_it_runs_is_in_force_without_a_restart() {
    let clock = Clock::made();
    let web = Web::start("shop");
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    let early = Pair::from_then_on(&["shop.example"], now + Duration::from_secs(DAY as u64));
    let seaway = clock.given_to(
        with_door("")
            .write("tls.yaml", &early.secret("shop-tls"))
            .write("shop.yaml", &Service::web("shop").with("host", "shop.example").to(web.at).text()),
    );
    let is_early = || seaway.problems().iter().any(|it| it.1.contains("the certificate is not valid before"));
    let counted = |state: &str| {
        let line = format!("seaway_certificates{{state=\"{state}\"}} 1");
        seaway.get("/metrics").is_ok_and(|(_, metrics)| metrics.lines().any(|it| it == line))
    };
    until("it is told", is_early);
    until("it is counted", || counted("early"));
    clock.jump(2 * DAY);
    until_within(THREE_LOOKS, "it is in force", || !is_early() && counted("valid"));
    assert_eq!(seaway.problems(), []);
}
