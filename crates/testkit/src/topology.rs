//! Networks of a test's own: namespaces, cables between them, who answers in there, and who asks.
//!
//! ```text
//!   client ── cable ── router ── cable ── a: Backend, Web, Datagrams, processes
//!
//!   OpenStack::outside ── floating IP ── OVN ── port of Neutron ── web
//! ```
//!
//! A [`Namespace`] carries the name of this process, so that many tests may run at once; it ends with all that is in
//! it when it is dropped, after a panic too, and what a killed test left is swept away by the next. Sockets stay in the
//! namespace in which they were made, so whoever answers is an ordinary value that was made by [`Namespace::run`]:
//!
//! ```no_run
//! use seaway_testkit::topology::{Namespace, Web};
//!
//! let (client, server) = (Namespace::create("client"), Namespace::create("server"));
//! client.cable("v0", &server, "v1");
//! client.address("v0", "10.9.0.1/24");
//! server.address("v1", "10.9.0.2/24");
//! let _web = server.run(|| Web::start_at("a", "10.9.0.2:80"));
//! assert_eq!(client.curl("http://10.9.0.2/").as_deref(), Ok("a"));
//! ```
//!
//! [`in_a_network_of_its_own`] is the smaller sister: no name, nothing but `lo`, gone with its thread.
//!
//! All of it needs root. It knows nothing of Seaway, and of OpenStack only what `rig/openstack` has commands for.

mod apart;
mod datagrams;
mod name_server;
mod namespace;
mod openstack;
mod processes;
mod relay;
mod rights;
mod routers;
mod streams;
mod web;

use std::{
    thread,
    time::{Duration, Instant},
};

pub use apart::{in_a_network_of_its_own, with_mounts_of_its_own};
#[cfg(feature = "kubernetes")]
pub use datagrams::{Datagrams, ask};
pub use name_server::{NameServer, NameServerKind, TSIG_SECRET};
pub use namespace::Namespace;
pub use openstack::{OpenStack, Project, SHARED};
pub use processes::{Running, command};
pub use relay::Relay;
pub use rights::CapabilitySets;
pub use routers::{Bird, Frr, GoBgp, lacks_routers};
pub use streams::{Backend, Talk, connect_from};
pub use web::Web;

/// For an answer that must come; these machines are slow at times.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// For whatever must happen, which may be many answers in a row.
const LONG: Duration = Duration::from_secs(90);

/// Between two looks.
const SHORTEST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Polls until it holds.
#[track_caller]
pub fn until(what: &str, met: impl FnMut() -> bool) {
    until_within(LONG, what, met);
}

/// Polls until it holds, for what takes its time, such as a Lease that runs out.
#[track_caller]
pub fn until_within(patience: Duration, what: &str, mut met: impl FnMut() -> bool) {
    let began = Instant::now();
    loop {
        let look = Instant::now();
        if met() {
            return;
        }
        let waited = began.elapsed();
        assert!(waited < patience, "in vain: {what}");
        // What is waited for gets the machine for as long as the look had it, and what takes long is looked at more rarely.
        let pause = look.elapsed().max(waited / 32);
        thread::park_timeout(pause.clamp(SHORTEST_PAUSE, LONGEST_PAUSE));
    }
}
