//! What is told of addresses that hosts announce by BGP: conditions, Problems, reports.

use std::{collections::BTreeSet, sync::Arc};

use seaway_model::{
    AddressState, AnnounceMode, Change, Fact, Kind, ObjectRef, Problem, Reason, Time, Unit, WorkItem,
    announced::{AnnouncedReason, ConditionStatus},
    bgp::{BgpReport, BgpSessionState, PeerReport},
    fact::{
        AdvertisementScope, AnnouncementObject, AnnouncementSpec, BgpAdvertisement, FactRef, HostReport,
        TargetPort,
    },
};
use seaway_plan::World;
use seaway_testkit::facts::{owner, put, service, shop};

use super::{
    super::{
        pools::{leader, status, tell},
        scene::{applied, heard, unit, written},
    },
    AT, advertisement, here, of_pool, open, peer, pool_that_says, router, routes, serving, with_routes,
};

#[test]
fn metallbs_objects_announce_nothing_and_say_so() {
    let object = ObjectRef::new(Kind::MetallbBGPPeer, "metallb-system", "tor");
    let says = AnnouncementSpec::BgpPeer(router("10.0.0.1"));
    let theirs = AnnouncementObject { object: object.clone(), created: None, says };
    let world =
        serving(Some(AnnounceMode::Bgp), &shop(), vec![Change::Put(Fact::Announcing(Arc::new(theirs)))]);
    assert_eq!(routes(&world), Vec::<String>::new());
    let told = world.problems();
    assert!(told.iter().any(|it| it.object == object && it.reason == Reason::Unsupported), "{told:?}");
}

#[test]
fn names_that_match_nothing_are_problems_at_their_place() {
    let scope =
        AdvertisementScope { pools: vec!["public".into(), "typo".into()], ..AdvertisementScope::default() };
    let says =
        BgpAdvertisement { scope, peers: vec!["tor".into(), "gone".into()], ..BgpAdvertisement::default() };
    let world = serving(
        Some(AnnounceMode::Bgp),
        &shop(),
        vec![peer("tor", router("10.0.0.1")), advertisement("a", says)],
    );
    let told: BTreeSet<(String, String)> = (world.problems().into_iter())
        .filter(|it| it.reason == Reason::NotFound)
        .map(|it| (it.field.to_string(), it.message))
        .collect();
    let wanted = [
        ("spec.addressPools[1]", "AddressPool typo does not exist"),
        ("spec.peers[1]", "BGPPeer gone does not exist"),
    ];
    assert_eq!(told, wanted.map(|(field, message)| (field.to_owned(), message.to_owned())).into());
    assert_eq!(routes(&world), ["tor: 192.0.2.17/32"], "the rest is followed");
    let world = serving(Some(AnnounceMode::Bgp), &shop(), Vec::new());
    assert!(world.problems().iter().any(|it| it.message.contains("no BGPPeer exists")));
}

#[test]
fn it_is_announced_once_a_host_says_so() {
    let at = "192.0.2.10";
    let mut world = leader(vec![pool_that_says(Some(AnnounceMode::Bgp)), put(&shop())]);
    let told = |world: &World| {
        let told = status(world, &shop()).announced.expect("is told");
        (told.status, told.reason, told.message)
    };
    tell(&mut world, heard(applied("a", 5)));
    assert_eq!(told(&world).1, AnnouncedReason::BgpFailed);
    assert!(told(&world).2.contains("no BGPPeer exists"), "{:?}", told(&world));
    let dirt = world.apply(peer("tor", router("10.0.0.1")));
    let is_told = |dirt: &[WorkItem]| dirt.iter().any(|it| *it.unit() == Unit::Status(owner(&shop())));
    assert!(is_told(&dirt), "{dirt:?}");
    assert_eq!((told(&world).0, told(&world).1), (ConditionStatus::Unknown, AnnouncedReason::BgpPending));
    let state = |what, detail: &str| PeerReport {
        what,
        since: Time(1),
        sent: 0,
        resets: 0,
        remote_as: None,
        bfd_up: None,
        detail: detail.into(),
    };
    let failing = |what, detail| {
        let bgp = BgpReport { peers: [("tor".into(), state(what, detail))].into(), ..BgpReport::default() };
        heard(HostReport { bgp, ..applied("a", 9) })
    };
    let dirt = world.apply(failing(BgpSessionState::Failed, "it does not answer"));
    assert!(is_told(&dirt), "{dirt:?}");
    let message = format!("{at}: host a has no session with BGPPeer tor: it does not answer");
    assert_eq!(told(&world), (ConditionStatus::False, AnnouncedReason::BgpFailed, message));
    let problems = status(&world, &shop()).problems;
    assert!(
        problems.iter().any(|it| it.reason == Reason::BGPFailed && it.fix.contains("docs/bgp.md")),
        "{problems:?}"
    );
    tell(&mut world, failing(BgpSessionState::Connecting, ""));
    assert_eq!(told(&world).1, AnnouncedReason::BgpPending);
    let dirt = world.apply(heard(with_routes(applied("b", 9), at, "tor")));
    assert!(is_told(&dirt), "{dirt:?}");
    // Of a host that comes or goes beside others, no Service is told: all would be written again.
    tell(&mut world, heard(applied("a", 9)));
    assert!(!is_told(&world.apply(heard(with_routes(applied("a", 9), at, "tor")))));
    assert!(!is_told(&world.apply(heard(applied("b", 9)))));
    assert!(!is_told(&world.apply(heard(with_routes(applied("b", 9), at, "tor")))));
    let message = format!("{at}: the hosts that serve this address announce it by BGP");
    assert_eq!(told(&world), (ConditionStatus::True, AnnouncedReason::Bgp, message));
    assert_eq!(
        world.pool_announced(&ObjectRef::new(Kind::AddressPool, "", "public")).expect("is there").reason,
        AnnouncedReason::Bgp
    );
    // As a part of an aggregate.
    let whole =
        BgpAdvertisement { scope: of_pool(), aggregation_v4: Some(31), ..BgpAdvertisement::default() };
    tell(&mut world, advertisement("a", whole));
    for host in ["a", "b"] {
        let routes = [("192.0.2.10/31".parse().expect("a network"), ["tor".into()].into())].into();
        let bgp = BgpReport { routes, ..BgpReport::default() };
        tell(&mut world, heard(HostReport { bgp, ..applied(host, 9) }));
    }
    assert_eq!(told(&world).1, AnnouncedReason::Bgp);
}

#[test]
fn what_a_host_says_of_bgp_is_in_its_report() {
    let world = serving(Some(AnnounceMode::Bgp), &shop(), vec![heard(with_routes(here(&[AT]), AT, "tor"))]);
    assert_eq!(world.said().expect("a host").bgp.routes.len(), 1);
}

/// What a change of one Service costs beside thousands of others is a look at each address, and nothing is written.
#[test]
fn a_change_of_one_service_marks_that_one_alone() {
    let other = service("other", &[("", 81, TargetPort::Number(80))]);
    let more = vec![
        put(&other),
        written("192.0.2.18", &[&other], AddressState::Held, 4),
        heard(here(&[AT, "192.0.2.18"])),
        peer("tor", router("10.0.0.1")),
    ];
    let mut world = serving(Some(AnnounceMode::Bgp), &shop(), more);
    open(&mut world, &other, "192.0.2.18");
    assert_eq!(routes(&world), ["tor: 192.0.2.17/32 192.0.2.18/32"]);
    let mut labelled = other.clone();
    labelled.meta.labels.insert("a".into(), "b".into());
    let fact = Fact::Service(Arc::new(labelled));
    assert!(world.concerns_announcing(&fact), "an advertisement may select it by its labels");
    let dirt = world.apply(Change::Put(fact.clone()));
    assert!(dirt.iter().all(|it| *it.unit() != unit(&owner(&shop()))), "{dirt:?}");
    assert!(!world.concerns_announcing(&fact));
}

/// As of the first start of a folder with an error in it.
#[test]
fn an_advertisement_that_cannot_be_read_keeps_pools_silent_that_no_other_is_about() {
    let broken = ObjectRef::new(Kind::BGPAdvertisement, "", "limits");
    let fault = Problem::new(broken.clone(), Reason::Invalid, "no community");
    let more = vec![peer("tor", router("10.0.0.1")), Change::Reported(broken.clone(), vec![fault])];
    let mut world = serving(Some(AnnounceMode::Bgp), &shop(), more);
    assert_eq!(routes(&world), ["tor:"]);
    let told = world.problems();
    assert!(
        told.iter().any(|it| it.object == broken && it.message.contains("are not announced by BGP")),
        "{told:?}"
    );
    world.apply(advertisement("a", BgpAdvertisement { scope: of_pool(), ..BgpAdvertisement::default() }));
    assert_eq!(routes(&world), ["tor: 192.0.2.17/32"], "another one is about this pool");
    world.apply(Change::Gone(FactRef::Object(ObjectRef::new(Kind::BGPAdvertisement, "", "a"))));
    assert_eq!(routes(&world), ["tor:"]);
    // One of which a good state is known counts as that.
    world
        .apply(advertisement("limits", BgpAdvertisement { scope: of_pool(), ..BgpAdvertisement::default() }));
    assert_eq!(routes(&world), ["tor: 192.0.2.17/32"]);
    world.apply(Change::Gone(FactRef::Object(broken.clone())));
    world.apply(Change::Reported(broken, Vec::new()));
    assert_eq!(routes(&world), ["tor: 192.0.2.17/32"], "by itself");
    let lan = ObjectRef::new(Kind::L2Advertisement, "", "lan");
    world.apply(pool_that_says(Some(AnnounceMode::Layer2)));
    assert_eq!(world.layer2().expect("a host").offered.len(), 1);
    let fault = Problem::new(lan.clone(), Reason::Invalid, "no interface");
    world.apply(Change::Reported(lan, vec![fault]));
    assert_eq!(world.layer2().expect("a host").offered.len(), 0);
}
