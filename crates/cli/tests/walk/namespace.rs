//! A network one cable away from the test's own.

use seaway_testkit::topology::Namespace;
pub(crate) use seaway_testkit::topology::{command, in_a_network_of_its_own, with_mounts_of_its_own};

/// This one is 10.9.0.1 and fd00:9::1 on `v0`, that one ends in 2 on `v1`, and sends to 192.0.2.0/28 and
/// 2001:db8::/120 through here.
pub(crate) struct Outside(Namespace);

impl Outside {
    pub(crate) fn connect() -> Outside {
        let there = Namespace::create("outside");
        there.cable_from_here("v0", "v1");
        command("ip", &["address", "add", "10.9.0.1/24", "dev", "v0"]);
        command("ip", &["address", "add", "fd00:9::1/64", "dev", "v0", "nodad"]);
        command("ip", &["link", "set", "v0", "up"]);
        there.address("v1", "10.9.0.2/24");
        there.address("v1", "fd00:9::2/64");
        there.route("192.0.2.0/28", "10.9.0.1");
        there.route("2001:db8::/120", "fd00:9::1");
        Outside(there)
    }

    /// Runs something over there.
    pub(crate) fn run<T: Send>(&self, job: impl FnOnce() -> T + Send) -> T {
        self.0.run(job)
    }
}
