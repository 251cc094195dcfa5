//! Addresses that hosts announce by BGP, and what advertisements restrict: which routes go to which peers, and what is told of it.

mod told;

use std::{sync::Arc, time::Duration};

use seaway_model::{
    AddressState, AnnounceMode, Change, Config, Desired, Fact, Kind, ListenerId, Name, ObjectRef, Outcome,
    Reason, Time, WorkItem,
    bgp::{Bfd, BgpReport, NextHops, PeerAddress, PeerDistance, PeerFamilies, RemoteAs, Session},
    fact::{
        AddressPool, AdvertisementScope, AnnouncementObject, AnnouncementSpec, BgpAdvertisement, BgpPeer,
        CommunityRef, CommunityValue, FactRef, HostReport, L2Advertisement, LabelRequirement, Node, Secret,
        Selector, Service, TargetPort,
    },
    outcome::{ServingSocket, UnitState},
};
use seaway_plan::World;
use seaway_testkit::facts::{HOST, ip, owner, pool, put, put_slice, service, shop, slice, synced};
use secrecy::ExposeSecret;

use super::scene::{PUBLIC, heard, node, on_host, on_host_of, unit, written};

const AT: &str = "192.0.2.17";

fn pool_that_says(announce: Option<AnnounceMode>) -> Change {
    let Change::Put(Fact::AddressPool(it)) = pool(PUBLIC) else { panic!("it is a pool") };
    let labels = [("tier".into(), "wan".into())].into();
    Change::Put(Fact::AddressPool(Arc::new(AddressPool { announce, labels, ..AddressPool::clone(&it) })))
}

fn object(kind: Kind, name: &str, says: AnnouncementSpec) -> Change {
    let object = ObjectRef::new(kind, "", name);
    Change::Put(Fact::Announcing(Arc::new(AnnouncementObject { object, created: None, says })))
}

fn gone(kind: Kind, name: &str) -> Change {
    Change::Gone(FactRef::Object(ObjectRef::new(kind, "", name)))
}

fn router(at: &str) -> BgpPeer {
    BgpPeer {
        to: PeerAddress::Ip { address: ip(at), port: 179, source: None },
        local_as: 64_512,
        remote_as: RemoteAs::Number(64_513),
        router_id: None,
        hold: Duration::from_secs(90),
        keepalive: None,
        connect_retry: Duration::from_secs(10),
        password: None,
        hops: PeerDistance::Direct,
        graceful_restart: None,
        bfd: None,
        next_hops: NextHops::default(),
        families: PeerFamilies { v4: true, v6: true },
        host_selectors: Vec::new(),
    }
}

fn peer(name: &str, it: BgpPeer) -> Change {
    object(Kind::BGPPeer, name, AnnouncementSpec::BgpPeer(it))
}

fn advertisement(name: &str, it: BgpAdvertisement) -> Change {
    object(Kind::BGPAdvertisement, name, AnnouncementSpec::BgpAdvertisement(it))
}

fn of_pool() -> AdvertisementScope {
    AdvertisementScope { pools: vec!["public".into()], ..AdvertisementScope::default() }
}

fn labelled(key: &str, value: &str) -> Vec<Selector> {
    vec![Selector(vec![LabelRequirement::Is(key.into(), value.into())])]
}

/// This host, with addresses on it.
fn here(at: &[&str]) -> HostReport {
    HostReport {
        host: HOST.into(),
        addresses: vec![ip("10.0.0.5")],
        holds: at.iter().map(|it| ip(it)).collect(),
        applied: 5,
        networks: vec!["10.0.0.0/24".parse().expect("a network")],
        ..HostReport::default()
    }
}

fn with_routes(report: HostReport, at: &str, peer: &str) -> HostReport {
    let prefix = ipnet::IpNet::from(ip(at));
    let bgp = BgpReport { routes: [(prefix, [peer.into()].into())].into(), ..BgpReport::default() };
    HostReport { bgp, ..report }
}

fn serving(announce: Option<AnnounceMode>, service: &Service, more: Vec<Change>) -> World {
    serving_as(Config::default(), announce, service, more)
}

fn serving_as(config: Config, announce: Option<AnnounceMode>, service: &Service, more: Vec<Change>) -> World {
    let told = vec![
        pool_that_says(announce),
        put(service),
        written(AT, &[service], AddressState::Held, 5),
        heard(here(&[AT])),
    ];
    let mut world = on_host_of(config, told.into_iter().chain(more).collect());
    open(&mut world, service, AT);
    world
}

/// Its driver says that its sockets are open.
fn open(world: &mut World, service: &Service, at: &str) {
    let unit = unit(&owner(service));
    let Desired::LoadBalancer(it) = world.desire(&unit) else { panic!("it is planned") };
    let at = |id: &ListenerId| ServingSocket { ip: ip(at), protocol: id.l4, port: id.port };
    let serving = it.listeners.keys().map(at).collect();
    let (facts, problems) = (Vec::new(), Vec::new());
    world.apply(Change::Outcome(Outcome { unit, state: UnitState::Done, facts, problems, serving }));
}

fn sessions(world: &World) -> Vec<Session> {
    world.bgp().expect("a host that knows all").sessions
}

/// Its host has to withdraw what it announces.
fn is_leaving(world: &World) -> bool {
    world.bgp().expect("a host that knows all").is_leaving
}

/// `tor: 192.0.2.17/32`
fn routes(world: &World) -> Vec<String> {
    let of = |it: &Session| {
        let routes: Vec<String> = it.routes.iter().map(|it| it.prefix.to_string()).collect();
        format!("{}: {}", it.name, routes.join(" ")).trim_end().to_owned()
    };
    sessions(world).iter().map(of).collect()
}

fn offered(world: &World) -> Vec<String> {
    let wanted = world.layer2().expect("a host that knows all");
    let on =
        |it: &std::net::IpAddr| wanted.interfaces.get(it).map(|it| format!(" {it:?}")).unwrap_or_default();
    wanted.offered.iter().map(|it| format!("{it}{}", on(it))).collect()
}

#[test]
fn nothing_is_announced_that_no_pool_and_no_advertisement_asks_for() {
    let mut world = serving(None, &shop(), vec![peer("tor", router("10.0.0.1"))]);
    for announce in [None, Some(AnnounceMode::Static), Some(AnnounceMode::None), Some(AnnounceMode::Layer2)] {
        world.apply(pool_that_says(announce));
        assert_eq!(routes(&world), ["tor:"], "{announce:?}");
        // One that names no pool is about those that ask for BGP.
        world.apply(advertisement("all", BgpAdvertisement::default()));
        assert_eq!(routes(&world), ["tor:"], "{announce:?}");
        world.apply(gone(Kind::BGPAdvertisement, "all"));
    }
    world.apply(pool_that_says(Some(AnnounceMode::Bgp)));
    assert_eq!(routes(&world), ["tor: 192.0.2.17/32"]);
    world.apply(gone(Kind::BGPPeer, "tor"));
    assert_eq!(routes(&world), Vec::<String>::new(), "no peer, no session");
    assert_eq!(offered(&world), Vec::<String>::new(), "nor by ARP");
}

#[test]
fn an_advertisement_that_names_a_pool_is_for_both_ways_at_once_and_never_against_the_pools_word() {
    let l2 = L2Advertisement { scope: of_pool(), interfaces: vec!["eth0".into()] };
    let more = vec![
        peer("tor", router("10.0.0.1")),
        advertisement("wan", BgpAdvertisement { scope: of_pool(), ..BgpAdvertisement::default() }),
        object(Kind::L2Advertisement, "lan", AnnouncementSpec::L2Advertisement(l2)),
    ];
    let mut world = serving(None, &shop(), more);
    for announce in [None, Some(AnnounceMode::Layer2), Some(AnnounceMode::Bgp), Some(AnnounceMode::Auto)] {
        world.apply(pool_that_says(announce));
        assert_eq!(routes(&world), ["tor: 192.0.2.17/32"], "{announce:?}");
        if announce != Some(AnnounceMode::Auto) {
            assert_eq!(offered(&world), [r#"192.0.2.17 {"eth0"}"#], "{announce:?}");
        }
    }
    for announce in [AnnounceMode::Static, AnnounceMode::None] {
        world.apply(pool_that_says(Some(announce)));
        assert_eq!((routes(&world), offered(&world)), (vec!["tor:".into()], Vec::new()), "{announce:?}");
        let told = world.problems();
        let of = |kind| {
            told.iter().filter(|it| it.object.kind == kind && it.reason == Reason::Unsupported).count()
        };
        assert_eq!((of(Kind::L2Advertisement), of(Kind::BGPAdvertisement)), (1, 1), "{told:?}");
    }
}

#[test]
fn a_host_serves_before_it_announces_and_withdraws_what_it_serves_no_more() {
    let shop = shop();
    let more = vec![peer("tor", router("10.0.0.1"))];
    let told = vec![
        pool_that_says(Some(AnnounceMode::Bgp)),
        put(&shop),
        written(AT, &[&shop], AddressState::Held, 5),
    ];
    let mut world = on_host(told.into_iter().chain(more).chain([heard(here(&[AT]))]).collect());
    assert_eq!(routes(&world), ["tor:"], "no driver has said that the sockets are open");
    open(&mut world, &shop, AT);
    assert_eq!(routes(&world), ["tor: 192.0.2.17/32"]);
    world.apply(heard(here(&[])));
    assert_eq!(routes(&world), ["tor:"], "it is not on this host any more");
    world.apply(heard(here(&[AT])));
    let own = HostReport { addresses: vec![ip("10.0.0.5"), ip(AT)], ..here(&[AT]) };
    world.apply(heard(own));
    assert_eq!(routes(&world), ["tor:"], "the machine has it itself");
    world.apply(heard(here(&[AT])));
    world.apply(node(HOST, "10.0.0.5", &["node.kubernetes.io/exclude-from-external-load-balancers"]));
    assert_eq!(routes(&world), ["tor:"], "the Node is excluded");
    let Change::Put(Fact::Node(going)) = node(HOST, "10.0.0.5", &[]) else { panic!("a Node") };
    world.apply(Change::Put(Fact::Node(Arc::new(Node { leaving: true, ..Node::clone(&going) }))));
    assert_eq!(routes(&world), ["tor:"], "the Node is about to be removed");
    world.apply(Change::Put(Fact::Node(Arc::new(Node { without_network: true, ..Node::clone(&going) }))));
    assert_eq!(
        (routes(&world), is_leaving(&world)),
        (vec!["tor:".to_owned()], true),
        "its pods have no network"
    );
    assert_eq!(offered(&world), Vec::<String>::new());
    world.apply(node(HOST, "10.0.0.5", &[]));
    assert_eq!(routes(&world), ["tor: 192.0.2.17/32"]);
    world.apply(Change::HostDrains(true));
    assert_eq!((routes(&world), is_leaving(&world)), (vec!["tor:".to_owned()], true), "it drains");
    world.apply(Change::HostDrains(false));
    assert!(!is_leaving(&world));
    world.apply(Change::Gone(FactRef::Object(ObjectRef::new(Kind::Service, "default", "shop"))));
    assert_eq!(routes(&world), ["tor:"]);
}

#[test]
fn a_host_that_drains_withdraws_first_and_closes_its_sockets_then() {
    let shop = shop();
    let announcing = heard(with_routes(here(&[AT]), AT, "tor"));
    let mut world =
        serving(Some(AnnounceMode::Bgp), &shop, vec![peer("tor", router("10.0.0.1")), announcing]);
    let is_open = |world: &World| match world.desire(&unit(&owner(&shop))) {
        Desired::LoadBalancer(it) => !it.listeners.is_empty(),
        other => panic!("no load balancer but {other:?}"),
    };
    world.apply(Change::HostDrains(true));
    assert!(is_leaving(&world), "routers are asked to prefer others, and then it is withdrawn");
    assert!(is_open(&world), "clients come until it is");
    let dirt = world.apply(heard(here(&[AT])));
    assert!(dirt.contains(&WorkItem::Unit(unit(&owner(&shop)))), "{dirt:?}");
    assert!(!is_open(&world));
}

#[test]
fn with_local_traffic_only_a_host_with_members_announces_and_never_an_aggregate() {
    let mut local = service("shop", &[("", 8080, TargetPort::Number(80))]);
    local.local_only = true;
    let on = |name: &str| {
        let mut endpoint = seaway_testkit::facts::endpoint("10.1.0.1");
        endpoint.node = Some(name.into());
        put_slice(&slice("shop", ("", 80), vec![endpoint]))
    };
    let whole =
        BgpAdvertisement { scope: of_pool(), aggregation_v4: Some(30), ..BgpAdvertisement::default() };
    let more = vec![on(HOST), peer("tor", router("10.0.0.1")), advertisement("a", whole)];
    let mut world = serving(Some(AnnounceMode::Bgp), &local, more);
    assert_eq!(routes(&world), ["tor: 192.0.2.17/32"]);
    world.apply(on("another"));
    assert_eq!(routes(&world), ["tor:"]);
}

#[test]
fn advertisements_select_services_hosts_and_peers_and_give_attributes() {
    let scope = |services, hosts| AdvertisementScope {
        pool_selectors: labelled("tier", "wan"),
        service_selectors: services,
        host_selectors: hosts,
        ..AdvertisementScope::default()
    };
    let says = |scope| BgpAdvertisement {
        scope,
        peers: vec!["a".into()],
        local_pref: Some(200),
        med: Some(10),
        communities: vec![
            CommunityRef::Name("quiet".into()),
            CommunityRef::Value(CommunityValue::Large([1, 2, 3])),
        ],
        ..BgpAdvertisement::default()
    };
    let quiet = AnnouncementSpec::Community([("quiet".into(), CommunityValue::Standard(0xffff_ff01))].into());
    let mut shop = shop();
    shop.meta.labels.insert("app".into(), "shop".into());
    let more = vec![
        peer("a", router("10.0.0.1")),
        peer("b", router("10.0.0.2")),
        object(Kind::Community, "ours", quiet),
        node(HOST, "10.0.0.5", &["rack-a"]),
    ];
    let mut world = serving(Some(AnnounceMode::Bgp), &shop, more);
    assert_eq!(routes(&world), ["a: 192.0.2.17/32", "b: 192.0.2.17/32"]);
    world.apply(advertisement("x", says(scope(labelled("app", "shop"), labelled("rack-a", "")))));
    assert_eq!(routes(&world), ["a: 192.0.2.17/32", "b:"]);
    let route = sessions(&world).remove(0).routes.remove(0);
    assert_eq!((route.local_pref, route.med), (Some(200), Some(10)));
    assert_eq!((&*route.communities, &*route.large), (&[0xffff_ff01][..], &[[1, 2, 3]][..]));

    for other in [scope(labelled("app", "other"), Vec::new()), scope(Vec::new(), labelled("rack-b", ""))] {
        world.apply(advertisement("x", says(other)));
        assert_eq!(routes(&world), ["a:", "b:"], "and nothing by default: an advertisement names the pool");
    }
    world.apply(advertisement("x", says(scope(Vec::new(), labelled("kubernetes.io/hostname", HOST)))));
    assert_eq!(routes(&world), ["a: 192.0.2.17/32", "b:"], "each host has its name as a label");
    // A name that nothing explains may be what limits the route.
    world.apply(gone(Kind::Community, "ours"));
    assert_eq!(routes(&world), ["a:", "b:"]);
    let told = world.problems();
    assert!(told.iter().any(|it| it.message.contains("no Community has the name \"quiet\"")), "{told:?}");
    for (name, value) in [("one", 1), ("two", 2)] {
        let of = AnnouncementSpec::Community([("quiet".into(), CommunityValue::Standard(value))].into());
        world.apply(object(Kind::Community, name, of));
    }
    assert_eq!(routes(&world), ["a:", "b:"], "two say two things");
    let unclear = AdvertisementScope { unclear: true, ..of_pool() };
    world.apply(advertisement("x", BgpAdvertisement { scope: unclear, ..BgpAdvertisement::default() }));
    assert_eq!(routes(&world), ["a:", "b:"], "what is not understood announces nothing");
}

#[test]
fn communities_that_everybody_knows_need_no_object() {
    let says = |name: &str| BgpAdvertisement {
        scope: of_pool(),
        communities: vec![CommunityRef::Name(name.into())],
        ..BgpAdvertisement::default()
    };
    let mut world = serving(Some(AnnounceMode::Bgp), &shop(), vec![peer("tor", router("10.0.0.1"))]);
    for (name, value) in [("no-export", 0xffff_ff01), ("graceful-shutdown", 0xffff_0000)] {
        world.apply(advertisement("a", says(name)));
        assert_eq!(&*sessions(&world)[0].routes[0].communities, &[value], "{name}");
    }
    world.apply(advertisement("a", BgpAdvertisement { local_pref: Some(200), ..says("no-export") }));
    world.apply(advertisement("b", says("no-export")));
    assert_eq!(sessions(&world)[0].routes[0].local_pref, Some(100), "without one it is 100");
}

#[test]
fn of_several_advertisements_a_route_has_the_communities_of_all() {
    let says = |community, local_pref| BgpAdvertisement {
        scope: of_pool(),
        communities: vec![CommunityRef::Value(CommunityValue::Standard(community))],
        local_pref,
        ..BgpAdvertisement::default()
    };
    let more = vec![
        peer("tor", router("10.0.0.1")),
        advertisement("a", says(7, Some(300))),
        advertisement("b", says(3, Some(100))),
        advertisement("c", says(7, None)),
    ];
    // Without a value it is 100.
    let world = serving(Some(AnnounceMode::Bgp), &shop(), more);
    let route = sessions(&world).remove(0).routes.remove(0);
    assert_eq!((&*route.communities, route.local_pref), (&[3, 7][..], Some(100)));
    let told = world.problems();
    let its: Vec<_> = told.iter().filter(|it| it.field.as_str() == "spec.localPref").collect();
    assert_eq!(its.len(), 1, "{told:?}");
    assert!(its[0].object.name.as_str() == "b" && its[0].message.contains("BGPAdvertisement a"), "{its:?}");
}

#[test]
fn advertisements_to_different_peers_do_not_contradict_each_other() {
    let says = |of: &str, local_pref| BgpAdvertisement {
        scope: of_pool(),
        peers: vec![of.into()],
        local_pref: Some(local_pref),
        ..BgpAdvertisement::default()
    };
    for (of_other, count) in [("leaf", 0), ("tor", 1)] {
        let more = vec![
            peer("tor", router("10.0.0.1")),
            peer("leaf", router("10.0.0.2")),
            advertisement("a", says("tor", 300)),
            advertisement("b", says(of_other, 200)),
        ];
        let told = serving(Some(AnnounceMode::Bgp), &shop(), more).problems();
        let its = told.iter().filter(|it| it.field.as_str() == "spec.localPref").count();
        assert_eq!(its, count, "{of_other}: {told:?}");
    }
}

/// 192.0.2.10 to 192.0.2.19 has 16/30 and 12/30, and nothing that is larger.
#[test]
fn an_aggregate_is_announced_while_one_of_its_addresses_is_served_and_never_beyond_the_pool() {
    let shop = shop();
    let says = |length| BgpAdvertisement {
        scope: of_pool(),
        aggregation_v4: Some(length),
        ..BgpAdvertisement::default()
    };
    let more = vec![
        written("192.0.2.18", &[&shop], AddressState::Held, 4),
        heard(here(&[AT, "192.0.2.18"])),
        peer("tor", router("10.0.0.1")),
        advertisement("a", says(30)),
    ];
    let mut world = serving(Some(AnnounceMode::Bgp), &shop, more);
    assert_eq!(routes(&world), ["tor: 192.0.2.16/30"]);
    assert!(
        world.problems().iter().any(|it| it.message.contains("192.0.2.8/30 contains addresses outside of"))
    );
    world.apply(advertisement("a", says(24)));
    assert_eq!(routes(&world), ["tor:"], "it would claim addresses of others");
    world.apply(advertisement("a", says(32)));
    assert_eq!(routes(&world), ["tor: 192.0.2.17/32"]);
}

#[test]
fn a_peer_selects_hosts_and_of_two_for_one_address_the_older_has_the_session() {
    let selecting = |name: &str| BgpPeer {
        host_selectors: labelled("kubernetes.io/hostname", name),
        ..router("10.0.0.1")
    };
    let mut world = serving(Some(AnnounceMode::Bgp), &shop(), vec![peer("tor", selecting("another"))]);
    assert_eq!(routes(&world), Vec::<String>::new());
    world.apply(peer("tor", selecting(HOST)));
    assert_eq!(routes(&world), ["tor: 192.0.2.17/32"]);
    let says = AnnouncementSpec::BgpPeer(router("10.0.0.1"));
    let object = ObjectRef::new(Kind::BGPPeer, "", "late");
    let late = AnnouncementObject { object: object.clone(), created: Some(Time(7)), says };
    world.apply(Change::Put(Fact::Announcing(Arc::new(late))));
    assert_eq!(routes(&world), ["tor: 192.0.2.17/32"]);
    let told = world.problems();
    let its = told.iter().find(|it| it.object == object && it.reason == Reason::Duplicate);
    assert!(its.is_some_and(|it| it.message.contains("BGPPeer tor")), "{told:?}");
    let other = PeerAddress::Ip { address: ip("10.0.0.1"), port: 1179, source: None };
    world.apply(peer("tor", BgpPeer { to: other, ..router("10.0.0.1") }));
    assert_eq!(routes(&world).len(), 2, "another port is another peer");
}

#[test]
fn a_peer_has_what_it_names_and_routes_of_its_families_alone() {
    let profile = Bfd {
        receive: Duration::from_millis(50),
        transmit: Duration::from_millis(50),
        multiplier: 3,
        passive: false,
        minimum_ttl: 254,
    };
    let it = BgpPeer {
        bfd: Some("fast".into()),
        password: Some(ObjectRef::new(Kind::Secret, "", "tor")),
        families: PeerFamilies { v4: false, v6: true },
        ..router("10.0.0.1")
    };
    let mut world = serving(Some(AnnounceMode::Bgp), &shop(), vec![peer("tor", it.clone())]);
    assert_eq!(routes(&world), ["tor:"], "an IPv4 address is none of IPv6's");
    assert_eq!(sessions(&world)[0].bfd, None);
    let messages =
        |world: &World| world.problems().iter().map(|it| it.message.clone()).collect::<Vec<_>>().join("\n");
    assert!(messages(&world).contains("BFDProfile fast does not exist"), "{}", messages(&world));
    world.apply(object(Kind::BFDProfile, "fast", AnnouncementSpec::BfdProfile(profile)));
    assert_eq!(sessions(&world)[0].bfd, Some(profile));

    // Of a folder. It is never left out.
    let password = |world: &World| sessions(world)[0].password.clone().expect("it has one");
    assert!(password(&world).value.is_none());
    assert!(messages(&world).contains("Secret default/tor does not exist"), "{}", messages(&world));
    let secret = Secret {
        object: ObjectRef::new(Kind::Secret, "default", "tor"),
        created: None,
        kind: "Opaque".into(),
        values: [("password".into(), "s3cret".to_owned().into())].into(),
        staple: None,
        withheld: false,
    };
    let put = Change::Put(Fact::Secret(Arc::new(secret)));
    let Change::Put(fact) = &put else { panic!("a fact") };
    assert!(world.concerns_announcing(fact), "sessions are looked at again");
    world.apply(put);
    assert_eq!(password(&world).value.expect("is known").expose_secret(), "s3cret");
    assert!(!messages(&world).contains("Secret default/tor"), "{}", messages(&world));
    // Deleted to be made again: the session is protected by what it said.
    world.apply(Change::Gone(FactRef::Object(ObjectRef::new(Kind::Secret, "default", "tor"))));
    assert!(
        password(&world).value.is_some()
            && messages(&world).contains("use the last password until a restart")
    );
    world.apply(peer("tor", router("10.0.0.1")));
    world.apply(peer("tor", it.clone()));
    assert!(password(&world).value.is_none(), "no peer named it meanwhile");
    // In a cluster the host reads it.
    let mut config = Config::default();
    config.pools.cluster = true;
    let world = serving_as(config, Some(AnnounceMode::Bgp), &shop(), vec![peer("tor", it)]);
    assert_eq!(password(&world).secret, ObjectRef::new(Kind::Secret, "", "tor"));
}

/// `host.labels` of seaway.yaml, without a Node.
#[test]
fn a_host_of_a_folder_is_selected_by_the_labels_of_its_configuration() {
    let selecting = BgpPeer { host_selectors: labelled("rack", "a"), ..router("10.0.0.1") };
    let with = |labels| {
        let config = Config { host_labels: labels, ..Config::default() };
        serving_as(config, Some(AnnounceMode::Bgp), &shop(), vec![peer("tor", selecting.clone())])
    };
    assert_eq!(routes(&with([("rack".into(), "a".into())].into())).len(), 1);
    assert_eq!(routes(&with([("rack".into(), "b".into())].into())).len(), 0);
}

#[test]
fn auto_is_by_arp_where_the_host_is_in_the_network_and_by_bgp_elsewhere() {
    let tor = || peer("tor", router("10.0.0.1"));
    let mut world = serving(Some(AnnounceMode::Auto), &shop(), vec![tor()]);
    assert_eq!((routes(&world), offered(&world).len()), (vec!["tor: 192.0.2.17/32".to_owned()], 0));
    let beside = HostReport { networks: vec!["192.0.2.0/24".parse().expect("a network")], ..here(&[AT]) };
    world.apply(heard(beside));
    assert_eq!((routes(&world), offered(&world).len()), (vec!["tor:".to_owned()], 1));
    // Its networks are not known: it does not announce twice.
    world.apply(heard(HostReport { networks: Vec::new(), ..here(&[AT]) }));
    assert_eq!((routes(&world), offered(&world).len()), (vec!["tor:".to_owned()], 1));
    world.apply(heard(here(&[AT])));
    world.apply(gone(Kind::BGPPeer, "tor"));
    assert_eq!(
        (routes(&world).len(), offered(&world).len()),
        (0, 1),
        "no peer: the host says what is missing"
    );
}

#[test]
fn layer_2_is_offered_on_selected_hosts_and_interfaces() {
    let says = |name: &str, hosts, interfaces: &[&str]| {
        let scope = AdvertisementScope { host_selectors: hosts, ..of_pool() };
        let interfaces = interfaces.iter().map(|it| Name::from(*it)).collect();
        object(
            Kind::L2Advertisement,
            name,
            AnnouncementSpec::L2Advertisement(L2Advertisement { scope, interfaces }),
        )
    };
    let mut world = serving(Some(AnnounceMode::Layer2), &shop(), Vec::new());
    assert_eq!(offered(&world), [AT], "all hosts and interfaces");
    world.apply(says("a", labelled("kubernetes.io/hostname", "another"), &[]));
    assert_eq!(offered(&world), Vec::<String>::new());
    world.apply(says("b", Vec::new(), &["eth1"]));
    assert_eq!(offered(&world), [r#"192.0.2.17 {"eth1"}"#]);
    world.apply(says("c", Vec::new(), &["eth2"]));
    assert_eq!(offered(&world), [r#"192.0.2.17 {"eth1", "eth2"}"#]);
    world.apply(says("d", Vec::new(), &[]));
    assert_eq!(offered(&world), [AT]);
}

#[test]
fn nothing_is_announced_by_bgp_before_all_that_restricts_it_was_listed() {
    let shop = shop();
    let told = vec![
        pool_that_says(Some(AnnounceMode::Bgp)),
        put(&shop),
        heard(here(&[AT])),
        peer("tor", router("10.0.0.1")),
    ];
    let roles = seaway_plan::Roles { allocate: false, host: Some(HOST.into()) };
    let mut world = World::new(roles, Vec::new(), Arc::new(Config::default()));
    told.into_iter().for_each(|it| drop(world.apply(it)));
    let is_last = |it: &Change| matches!(it, Change::Synced(Kind::BGPAdvertisement));
    synced().into_iter().filter(|it| !is_last(it)).for_each(|it| drop(world.apply(it)));
    assert!(world.bgp().is_none() && world.layer2().is_some(), "BGP stays as it was");
    world.apply(Change::NotWatched(Kind::BGPAdvertisement));
    assert_eq!(world.bgp(), None, "that it may not see any does not mean that there is none");
    world.apply(Change::Synced(Kind::BGPAdvertisement));
    assert!(world.bgp().is_some() && world.layer2().is_some());
}

/// The image is new and the role is old: what was announced before goes on.
#[test]
fn where_none_of_the_kinds_may_be_listed_layer_2_goes_on_as_before_them() {
    let roles = seaway_plan::Roles { allocate: false, host: Some(HOST.into()) };
    let mut world = World::new(roles, Vec::new(), Arc::new(Config::default()));
    world.apply(heard(here(&[AT])));
    let ours = |it: &Change| matches!(it, Change::Synced(kind) if kind.is_announcing());
    synced().into_iter().filter(|it| !ours(it)).for_each(|it| drop(world.apply(it)));
    assert_eq!(world.layer2(), None);
    for kind in Kind::ANNOUNCING.into_iter().filter(|it| !it.is_of_metallb()) {
        assert_eq!(world.layer2(), None, "{kind}");
        world.apply(Change::NotWatched(kind));
    }
    assert!(world.layer2().is_some() && world.bgp().is_none());
}

#[test]
fn a_pool_that_cannot_be_seen_withdraws_nothing() {
    let limited = BgpAdvertisement {
        scope: of_pool(),
        communities: vec![CommunityRef::Value(CommunityValue::Standard(7))],
        ..BgpAdvertisement::default()
    };
    let more = vec![peer("tor", router("10.0.0.1")), advertisement("a", limited)];
    let mut world = serving(Some(AnnounceMode::Bgp), &shop(), more);
    let before = sessions(&world);
    world.apply(gone(Kind::AddressPool, "public"));
    assert_eq!(sessions(&world), before, "with its communities");
    world.apply(pool_that_says(None));
    world.apply(gone(Kind::BGPAdvertisement, "a"));
    assert_eq!(routes(&world), ["tor:"], "it is there again, and says so no more");
}
