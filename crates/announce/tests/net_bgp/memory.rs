//! How much memory announcing takes beside all else of a process.

use std::{collections::BTreeMap, net::Ipv4Addr, process::Stdio, sync::Arc, time::Duration};

use seaway_announce::{
    bgp::Speaker,
    layer2::{Announcer, DesiredAnnouncements, HeartbeatKey, Settings, Timing, WantedAddress},
};
use seaway_model::bgp::{Bfd, DesiredBgp};
use seaway_testkit::topology::{Frr, Running, lacks_routers, until};

use crate::cable::{Cable, OUR_AS, OURS, THEIR_AS, THEIRS, quick, route, session};

/// What the process does.
const VARIABLE: &str = "SEAWAY_TEST_MEMORY";
const ROUTES: u32 = 1_000;
const MOST: u64 = 10_000_000;

fn addresses() -> impl Iterator<Item = Ipv4Addr> {
    let first = u32::from(Ipv4Addr::new(192, 0, 2, 1));
    (first..first + ROUTES).map(Ipv4Addr::from)
}

#[test]
#[ignore = "run by another test, as a process whose memory is looked at"]
fn an_announcer() {
    if std::env::var(VARIABLE).as_deref() == Ok("nothing") {
        std::thread::park();
    }
    let pace = Duration::from_millis(50);
    let mut wanted = session("tor");
    wanted.bfd = Some(Bfd { receive: pace, transmit: pace, multiplier: 3, passive: false, minimum_ttl: 254 });
    wanted.routes = addresses().map(|it| route(&format!("{it}/32"))).collect();
    let speaker = Speaker::start(quick(), || {}).expect("a thread");
    speaker.set_desired(DesiredBgp { sessions: vec![wanted], is_leaving: false });
    let (host, key) = ("a".into(), Some(HeartbeatKey::new(&"0f".repeat(32))));
    let settings = Settings { host, key, port: Settings::PORT, timing: Timing::default() };
    let announcer = Announcer::start(settings, |_| {}).expect("a thread");
    let candidates: Arc<[seaway_model::Name]> = ["a".into()].into();
    let offered = addresses().map(|it| WantedAddress { address: it.into(), candidates: candidates.clone() });
    announcer.set_desired(DesiredAnnouncements {
        peers: Vec::new(),
        addresses: offered.collect(),
        interfaces: BTreeMap::new(),
    });
    loop {
        std::thread::park();
    }
}

fn start(cable: &Cable, what: &str) -> Running {
    let program = std::env::current_exe().expect("this test");
    let mut command = cable.ours.command(&program.to_string_lossy());
    command.args(["--ignored", "--exact", "memory::an_announcer", "--test-threads", "1"]);
    Running::start(command.env(VARIABLE, what).stdout(Stdio::null()))
}

#[test]
#[ignore = "run by bench/bgp: memory is measured in a release build"]
fn announcing_takes_little_memory() {
    if lacks_routers(&[Frr::PROGRAM]) {
        return;
    }
    let cable = Cable::new();
    let bgpd = format!(
        "router bgp {THEIR_AS}\n bgp router-id {THEIRS}\n no bgp ebgp-requires-policy\n \
         neighbor {OURS} remote-as {OUR_AS}\n neighbor {OURS} bfd\n"
    );
    let bfdd = "bfd\n profile default\n  receive-interval 50\n  transmit-interval 50\n";
    let frr = Frr::start(&cable.theirs, &[("bfdd", bfdd), ("bgpd", &bgpd)]);
    let nothing = start(&cable, "nothing");
    let announcer = start(&cable, "all");
    until("FRR has all routes", || {
        let told = frr.says("bgpd", "show bgp ipv4 unicast statistics json");
        told.contains(&format!("\"totalPrefixes\":{ROUTES}"))
            || told.contains(&format!("\"totalPrefixes\": {ROUTES}"))
    });
    until("BFD is up", || frr.says("bfdd", "show bfd peers").contains("Status: up"));
    let [alone, all] = [&nothing, &announcer].map(Running::resident);
    let [bgpd, bfdd] = ["bgpd", "bfdd"].map(|it| frr.resident(it));
    let of_announcing = all.saturating_sub(alone);
    println!(
        "{ROUTES} routes in a session with BFD, and {ROUTES} addresses offered by ARP: {of_announcing} bytes resident beyond a process \
         without them; FRR, which has these routes: bgpd {bgpd} + bfdd {bfdd} = {}",
        bgpd + bfdd
    );
    assert!(of_announcing <= MOST, "{of_announcing}");
}
