//! What other projects' daemons are told: sessions with our addresses, 50 ms × 3.

use seaway_testkit::topology::{Bird, Frr, Namespace, until};

use crate::cable::{OURS, OURS_V6, THEIRS, THEIRS_V6};

/// To both of our addresses, and one over routers to the first.
pub(crate) fn frr(on: &Namespace) -> Frr {
    let config = format!(
        "bfd\n profile fast\n  detect-multiplier 3\n  receive-interval 50\n  transmit-interval 50\n exit\n \
         peer {OURS} interface eth0\n  profile fast\n exit\n \
         peer {OURS_V6} local-address {THEIRS_V6} interface eth0\n  profile fast\n exit\n \
         peer {OURS} multihop local-address {THEIRS}\n  profile fast\n exit\nexit\n"
    );
    Frr::start(on, &[("bfdd", &config)])
}

/// What it says of its sessions.
pub(crate) fn frr_says(frr: &Frr) -> String {
    frr.says("bfdd", "show bfd peers json")
}

pub(crate) fn until_frr_says(frr: &Frr, what: &str) {
    until(&format!("FRR says {what}"), || frr_says(frr).contains(what));
}

/// How often its sessions went down.
pub(crate) fn downs_of(frr: &Frr) -> String {
    let told = frr.says("bfdd", "show bfd peers counters json");
    told.lines().filter(|it| it.contains("session-down")).map(str::trim).collect()
}

/// To our IPv4 address.
pub(crate) fn bird(on: &Namespace) -> Bird {
    Bird::start(
        on,
        &format!(
            "router id {THEIRS};\nprotocol device {{}}\nprotocol bfd {{\n  \
             interface \"eth0\" {{ interval 50 ms; multiplier 3; }};\n  \
             neighbor {OURS} dev \"eth0\" local {THEIRS};\n}}\n"
        ),
    )
}

pub(crate) fn until_bird_says(bird: &Bird, what: &str) {
    until(&format!("BIRD says {what}"), || bird.says(&["show", "bfd", "sessions"]).contains(what));
}
