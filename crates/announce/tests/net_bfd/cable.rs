//! Two machines, a cable, and our side's session.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use seaway_announce::bfd::{Bfd, BfdState, BfdStatus, Key, Profile};
use seaway_testkit::topology::{Namespace, until};

pub(crate) const OURS: &str = "10.77.0.2";
pub(crate) const THEIRS: &str = "10.77.0.1";
pub(crate) const OURS_V6: &str = "fd77::2";
pub(crate) const THEIRS_V6: &str = "fd77::1";
pub(crate) const FAST: Profile = Profile {
    transmit: Duration::from_millis(50),
    receive: Duration::from_millis(50),
    multiplier: 3,
    is_passive: false,
    minimum_ttl: 254,
};

pub(crate) struct Cable {
    pub(crate) ours: Namespace,
    pub(crate) theirs: Namespace,
}

impl Cable {
    pub(crate) fn new() -> Cable {
        let (ours, theirs) = (Namespace::create("ours"), Namespace::create("theirs"));
        ours.cable("eth0", &theirs, "eth0");
        for (namespace, v4, v6) in [(&ours, OURS, OURS_V6), (&theirs, THEIRS, THEIRS_V6)] {
            namespace.address("eth0", &format!("{v4}/24"));
            namespace.address("eth0", &format!("{v6}/64"));
        }
        Cable { ours, theirs }
    }

    pub(crate) fn start(&self) -> Ours {
        let heard = Arc::<Mutex<Heard>>::default();
        let told = heard.clone();
        let changed = move |states: &BTreeMap<Key, BfdStatus>| {
            told.lock().expect("no panic").push((Instant::now(), states.clone()));
        };
        let bfd = self.ours.run(|| Bfd::start(changed)).expect("a thread");
        Ours { bfd, heard }
    }
}

/// What was told, and when.
type Heard = Vec<(Instant, BTreeMap<Key, BfdStatus>)>;

pub(crate) struct Ours {
    pub(crate) bfd: Bfd,
    heard: Arc<Mutex<Heard>>,
}

pub(crate) fn ip(text: &str) -> IpAddr {
    text.parse().expect("an address")
}

impl Ours {
    pub(crate) fn set_desired(&self, keys: &[Key], profile: Profile) {
        self.bfd.set_desired(keys.iter().map(|it| (it.clone(), profile)).collect());
    }

    pub(crate) fn state(&self, key: &Key) -> Option<BfdStatus> {
        self.bfd.states().get(key).cloned()
    }

    pub(crate) fn until(&self, key: &Key, what: BfdState) {
        until(&format!("{key:?} is {what:?}"), || self.state(key).is_some_and(|it| it.what == what));
    }

    /// From then until it was told that the session is down.
    pub(crate) fn lost(&self, key: &Key, since: Instant) -> Duration {
        let mut at = None;
        until("the peer is lost", || {
            let heard = self.heard.lock().expect("no panic");
            let is_down =
                |states: &BTreeMap<Key, BfdStatus>| states.get(key).is_some_and(BfdStatus::is_failed);
            at = heard.iter().find(|(at, states)| *at >= since && is_down(states)).map(|(at, _)| *at);
            at.is_some()
        });
        at.expect("it was found") - since
    }

    /// How often any session was lost.
    pub(crate) fn downs(&self) -> u64 {
        self.bfd.states().values().map(|it| it.downs).sum()
    }
}
