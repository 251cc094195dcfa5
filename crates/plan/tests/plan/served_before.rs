//! A plan beside a process that serves: who has a port of the host keeps it.

use std::{collections::BTreeSet, sync::Arc};

use seaway_model::{Config, L4, Reason, fact::TargetPort, outcome::ServingSocket};
use seaway_plan::{Roles, World, dry_run};
use seaway_testkit::facts::{HOST, endpoint, host, ip, owner, put, put_slice, service, slice, synced};

use crate::cluster::scene::OnHost;

/// Services `a` and `b` want ports 80 and 81 each. Which of their ports belong to the other, where these were served?
fn conflicts(served: &[(&str, u16)]) -> BTreeSet<(String, String)> {
    let wanted = |name: &str| {
        service(name, &[("web", 80, TargetPort::Number(80)), ("more", 81, TargetPort::Number(81))])
    };
    let roles = Roles { allocate: true, host: Some(HOST.into()) };
    let mut world = World::new(roles, vec![Arc::new(OnHost)], Arc::new(Config::default()));
    for (name, port) in served {
        let at = ServingSocket { ip: ip("192.0.2.5"), protocol: L4::Tcp, port: *port };
        world.was_served(owner(&wanted(name)), &at);
    }
    let members = |name| put_slice(&slice(name, ("web", 8080), vec![endpoint("10.1.0.1")]));
    let facts = [host(&["192.0.2.5"], &[]), put(&wanted("a")), members("a"), put(&wanted("b")), members("b")];
    dry_run(&mut world, facts.into_iter().chain(synced()));
    let told = world.problems().into_iter().filter(|it| it.reason == Reason::PortConflict);
    told.map(|it| (it.object.name.to_string(), it.field.to_string())).collect()
}

#[test]
fn a_port_of_the_host_stays_with_the_service_that_is_served_there() {
    let (of_80, of_81) = ("spec.ports[0].port", "spec.ports[1].port");
    for (served, expected) in [
        (&[][..], [("b", of_80), ("b", of_81)]),
        (&[("a", 80), ("a", 81)], [("b", of_80), ("b", of_81)]),
        (&[("b", 80), ("b", 81)], [("a", of_80), ("a", of_81)]),
        (&[("b", 80), ("a", 81)], [("a", of_80), ("b", of_81)]),
        // Who is gone, or asks for it no more, keeps nothing; who is served goes before who is not.
        (&[("c", 80), ("b", 81)], [("a", of_80), ("a", of_81)]),
        (&[("a", 82), ("b", 81)], [("a", of_81), ("b", of_80)]),
    ] {
        let expected: BTreeSet<(String, String)> =
            expected.iter().map(|(name, field)| ((*name).to_owned(), (*field).to_owned())).collect();
        assert_eq!(conflicts(served), expected, "{served:?}");
    }
}
