//! A network one cable away from the test's own.

use seaway_testkit::topology::Namespace;
pub(crate) use seaway_testkit::topology::{command, in_a_network_of_its_own, with_mounts_of_its_own};

/// By a cable from `v0` to `v1`, say: this end is 10.N.0.1 and fd00:N::1, that one ends in 2.
pub(crate) fn one_cable_away(name: &str, [here, over]: [&str; 2], net: u8) -> Namespace {
    let there = Namespace::create(name);
    there.cable_from_here(here, over);
    command("ip", &["address", "add", &format!("10.{net}.0.1/24"), "dev", here]);
    command("ip", &["address", "add", &format!("fd00:{net}::1/64"), "dev", here, "nodad"]);
    command("ip", &["link", "set", here, "up"]);
    there.address(over, &format!("10.{net}.0.2/24"));
    there.address(over, &format!("fd00:{net}::2/64"));
    there
}

/// This one is 10.9.0.1 and fd00:9::1 on `v0`, that one ends in 2 on `v1`, and sends to 192.0.2.0/28 and
/// 2001:db8::/120 through here.
pub(crate) struct Outside(Namespace);

impl Outside {
    pub(crate) fn connect() -> Outside {
        let there = one_cable_away("outside", ["v0", "v1"], 9);
        there.route("192.0.2.0/28", "10.9.0.1");
        there.route("2001:db8::/120", "fd00:9::1");
        Outside(there)
    }

    /// Runs something over there.
    pub(crate) fn run<T: Send>(&self, job: impl FnOnce() -> T + Send) -> T {
        self.0.run(job)
    }
}
