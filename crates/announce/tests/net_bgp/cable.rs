//! A host with the speaker, a router, and a cable.

use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use ipnet::IpNet;
use seaway_announce::bgp::{PeerState, SessionState, Settings, Speaker, Timing};
use seaway_model::bgp::{
    DesiredBgp, NextHops, PeerAddress, PeerDistance, PeerFamilies, RemoteAs, Route, Session,
};
use seaway_testkit::topology::{Namespace, until};

pub(crate) const OURS: &str = "10.79.0.2";
pub(crate) const THEIRS: &str = "10.79.0.1";
pub(crate) const OURS_V6: &str = "fd79::2";
pub(crate) const THEIRS_V6: &str = "fd79::1";
pub(crate) const OUR_AS: u32 = 4_200_000_001;
pub(crate) const THEIR_AS: u32 = 65001;

pub(crate) struct Cable {
    pub(crate) ours: Namespace,
    pub(crate) theirs: Namespace,
}

impl Cable {
    pub(crate) fn new() -> Cable {
        let cable = Cable::bare();
        for (namespace, v4, v6) in [(&cable.ours, OURS, OURS_V6), (&cable.theirs, THEIRS, THEIRS_V6)] {
            namespace.address("eth0", &format!("{v4}/24"));
            namespace.address("eth0", &format!("{v6}/64"));
        }
        cable
    }

    /// With link-local addresses alone.
    pub(crate) fn bare() -> Cable {
        let (ours, theirs) = (Namespace::create("ours"), Namespace::create("theirs"));
        ours.cable("eth0", &theirs, "eth0");
        for namespace in [&ours, &theirs] {
            namespace.ip(&["link", "set", "eth0", "up"]);
        }
        Cable { ours, theirs }
    }

    pub(crate) fn start(&self, sessions: Vec<Session>) -> Ours {
        self.start_with(quick(), sessions)
    }

    pub(crate) fn start_with(&self, settings: Settings, sessions: Vec<Session>) -> Ours {
        start(&self.ours, settings, sessions)
    }
}

pub(crate) fn start(on: &Namespace, settings: Settings, sessions: Vec<Session>) -> Ours {
    let ours = Ours(on.run(|| Speaker::start(settings, || {})).expect("a thread"));
    ours.set_desired(sessions);
    ours
}

/// It does not wait long.
pub(crate) fn quick() -> Settings {
    let timing = Timing {
        first_retry: Duration::from_millis(100),
        connect: Duration::from_millis(1_500),
        ..Timing::default()
    };
    Settings { timing, ..Settings::default() }
}

pub(crate) struct Ours(pub(crate) Speaker);

impl Ours {
    pub(crate) fn set_desired(&self, sessions: Vec<Session>) {
        self.0.set_desired(DesiredBgp { sessions, is_leaving: false });
    }

    pub(crate) fn state(&self, name: &str) -> PeerState {
        let mut found = None;
        until("the session is known", || {
            found = self.0.states().get(name).cloned();
            found.is_some()
        });
        found.expect("it was found")
    }

    pub(crate) fn until_established(&self, name: &str) {
        self.until(name, "it is established", |it| it.session == SessionState::Established);
    }

    pub(crate) fn until(&self, name: &str, what: &str, mut met: impl FnMut(&PeerState) -> bool) {
        let mut last = None;
        let began = std::time::Instant::now();
        until(what, || {
            let state = self.state(name);
            let is_met = met(&state);
            last = Some(state);
            // What it says instead is worth more than that it was in vain.
            assert!(is_met || began.elapsed() < Duration::from_secs(30), "{what}: {last:?}");
            is_met
        });
    }

    pub(crate) fn until_it_says(&self, name: &str, line: &str) {
        self.until(name, line, |it| it.last_error.as_ref().is_some_and(|said| said.contains(line)));
    }
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

pub(crate) fn prefix(text: &str) -> IpNet {
    text.parse().expect("a prefix")
}

/// To the router's IPv4 address, without routes.
pub(crate) fn session(name: &str) -> Session {
    session_to(name, THEIRS)
}

pub(crate) fn session_to(name: &str, address: &str) -> Session {
    Session {
        name: name.into(),
        to: PeerAddress::Ip { address: ip(address), port: 179, source: None },
        local_as: OUR_AS,
        remote_as: RemoteAs::Number(THEIR_AS),
        router_id: None,
        hold: Duration::from_secs(90),
        keepalive: None,
        connect_retry: Duration::from_secs(1),
        password: None,
        hops: PeerDistance::Direct,
        graceful_restart: None,
        bfd: None,
        next_hops: NextHops::default(),
        families: PeerFamilies { v4: true, v6: true },
        routes: Vec::new(),
    }
}

pub(crate) fn route(text: &str) -> Route {
    Route { prefix: prefix(text), local_pref: None, med: None, communities: [].into(), large: [].into() }
}

/// So many addresses of 192.0.0.0/16.
pub(crate) fn routes(numbers: impl Iterator<Item = u16>) -> Vec<Route> {
    numbers
        .map(|number| {
            let [high, low] = number.to_be_bytes();
            route(&format!("{}/32", Ipv4Addr::new(192, 0, high, low)))
        })
        .collect()
}
