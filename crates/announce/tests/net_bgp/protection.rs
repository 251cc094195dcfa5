//! What keeps a session to whom it is with: passwords, hops, AS numbers.

use std::time::Duration;

use seaway_announce::bgp::SessionState;
use seaway_model::{
    ObjectRef,
    bgp::{Password, PeerAddress, PeerDistance, RemoteAs, Session},
};
use seaway_testkit::topology::{Bird, Frr, GoBgp, lacks_routers, until};

use crate::cable::{Cable, OUR_AS, OURS, OURS_V6, THEIR_AS, THEIRS, THEIRS_V6, route, session, session_to};

fn password(value: Option<&str>) -> Option<Password> {
    let secret = ObjectRef::new(seaway_model::Kind::Secret, "seaway", "tor");
    Some(Password { secret, value: value.map(Into::into) })
}

fn with(mut session: Session, value: &str) -> Session {
    session.password = password(Some(value));
    session.routes = vec![route("192.0.2.1/32")];
    session
}

#[test]
fn a_password_is_spoken_with_frr_over_both_families_and_a_wrong_one_is_one_clear_line() {
    if lacks_routers(&[Frr::PROGRAM]) {
        return;
    }
    let cable = Cable::new();
    let config = format!(
        "router bgp {THEIR_AS}\n bgp router-id {THEIRS}\n no bgp ebgp-requires-policy\n \
         neighbor {OURS} remote-as {OUR_AS}\n neighbor {OURS} password correct-horse\n \
         neighbor {OURS_V6} remote-as {OUR_AS}\n neighbor {OURS_V6} password battery-staple\n"
    );
    let frr = Frr::start(&cable.theirs, &[("bgpd", &config)]);
    let both =
        |value: &str| vec![with(session("v4"), value), with(session_to("v6", THEIRS_V6), "battery-staple")];
    let ours = cable.start(both("wrong"));
    ours.until_established("v6");
    ours.until_it_says("v4", "another TCP MD5 password");
    assert!(!format!("{:?}", ours.state("v4")).contains("wrong"));
    ours.set_desired(both("correct-horse"));
    ours.until_established("v4");
    assert_eq!(ours.state("v6").resets, 0, "the other one is not touched");
    // Known to be there, and not readable: fail closed.
    let mut unknown = both("correct-horse");
    unknown[0].password = password(None);
    ours.set_desired(unknown);
    ours.until_it_says("v4", "the password of the session cannot be read");
    assert!(!frr.says("bgpd", &format!("show bgp neighbors {OURS}")).contains("BGP state = Established"));
    // And none at all, where the peer has one.
    let mut none = both("correct-horse");
    none[0].password = None;
    ours.set_desired(none);
    ours.until_it_says("v4", "expects a TCP MD5 password");
    let mut long = both("correct-horse");
    long[0].password = password(Some(&"x".repeat(81)));
    ours.set_desired(long);
    ours.until_it_says("v4", "the password has 81 bytes");
}

#[test]
fn bird_and_gobgp_take_passwords_and_gtsm() {
    if lacks_routers(&[Bird::PROGRAM, GoBgp::PROGRAM]) {
        return;
    }
    let cable = Cable::new();
    let config = format!(
        "router id {THEIRS};\nprotocol device {{}}\nprotocol bgp host {{ local {THEIRS} as {THEIR_AS}; \
         neighbor {OURS} as {OUR_AS}; password \"correct-horse\"; ttl security on; ipv4 {{ import all; export none; }}; }}\n"
    );
    let mut wanted = with(session("peer"), "correct-horse");
    wanted.hops = PeerDistance::Security(1);
    let bird = Bird::start(&cable.theirs, &config);
    let ours = cable.start(vec![wanted.clone()]);
    ours.until_established("peer");
    until("BIRD has it", || bird.says(&["show", "route"]).contains("192.0.2.1/32"));
    drop(bird);
    ours.until("peer", "it ended", |it| it.resets == 1);
    let config = format!(
        "[global.config]\nas = {THEIR_AS}\nrouter-id = \"{THEIRS}\"\n[[neighbors]]\n[neighbors.config]\n\
         neighbor-address = \"{OURS}\"\npeer-as = {OUR_AS}\nauth-password = \"correct-horse\"\n\
         [neighbors.transport.config]\npassive-mode = true\n[neighbors.ttl-security.config]\nenabled = true\nttl-min = 255\n"
    );
    let gobgp = GoBgp::start(&cable.theirs, &config);
    ours.until_established("peer");
    until("GoBGP has it", || gobgp.says(&["global", "rib"]).contains("192.0.2.1/32"));
}

/// The router's address is one hop behind another router, and it is on neither's cable.
#[test]
fn a_session_over_hops_and_with_ttl_security_counts_them() {
    if lacks_routers(&[Frr::PROGRAM]) {
        return;
    }
    let cable = Cable::new();
    let far = seaway_testkit::topology::Namespace::create("far");
    far.cable("eth0", &cable.theirs, "eth1");
    far.address("eth0", "10.80.0.1/24");
    cable.theirs.address("eth1", "10.80.0.2/24");
    cable.theirs.forward();
    far.route("default", "10.80.0.2");
    cable.ours.route("10.80.0.0/24", THEIRS);
    let config = |more: &str| {
        format!(
            "router bgp {THEIR_AS}\n bgp router-id 10.80.0.1\n no bgp ebgp-requires-policy\n \
             neighbor {OURS} remote-as {OUR_AS}\n neighbor {OURS} {more}\n"
        )
    };
    let frr = Frr::start(&far, &[("bgpd", &config("ebgp-multihop 2"))]);
    let hops = |hops: PeerDistance| {
        let mut session = session_to("far", "10.80.0.1");
        session.to = PeerAddress::Ip {
            address: "10.80.0.1".parse().expect("one"),
            port: 179,
            source: OURS.parse().ok(),
        };
        session.hops = hops;
        vec![session]
    };
    let ours = cable.start(hops(PeerDistance::Direct));
    ours.until("far", "one hop is too few", |it| it.last_error.is_some());
    ours.set_desired(hops(PeerDistance::Multihop(2)));
    ours.until_established("far");
    drop(frr);
    ours.until("far", "it ended", |it| it.resets == 1);
    let _frr = Frr::start(&far, &[("bgpd", &config("ttl-security hops 2"))]);
    ours.set_desired(hops(PeerDistance::Security(1)));
    ours.until("far", "what came over a hop is dropped", |it| {
        it.last_error.as_ref().is_some_and(|it| it.contains("does not answer"))
    });
    ours.set_desired(hops(PeerDistance::Security(2)));
    ours.until_established("far");
}

#[test]
fn an_as_mismatch_is_one_line_with_both_numbers_and_a_dynamic_one_is_told() {
    if lacks_routers(&[Frr::PROGRAM]) {
        return;
    }
    let cable = Cable::new();
    let config = format!(
        "router bgp {THEIR_AS}\n bgp router-id {THEIRS}\n no bgp ebgp-requires-policy\n neighbor {OURS} remote-as {OUR_AS}\n"
    );
    let _frr = Frr::start(&cable.theirs, &[("bgpd", &config)]);
    let mut wanted = session("tor");
    wanted.remote_as = RemoteAs::Number(65009);
    let ours = cable.start(vec![wanted.clone()]);
    ours.until_it_says("tor", "AS mismatch: the peer is AS 65001, and 65009 is configured");
    wanted.remote_as = RemoteAs::Internal;
    ours.set_desired(vec![wanted.clone()]);
    ours.until_it_says("tor", "AS mismatch: the peer is AS 65001, and our own, 4200000001, is configured");
    wanted.remote_as = RemoteAs::Number(THEIR_AS);
    wanted.local_as = 65077;
    ours.set_desired(vec![wanted.clone()]);
    ours.until_it_says("tor", "expects another AS than ours, 65077");
    wanted.local_as = OUR_AS;
    wanted.remote_as = RemoteAs::External;
    ours.set_desired(vec![wanted]);
    ours.until_established("tor");
    let state = ours.state("tor");
    assert_eq!(
        (state.remote_as, state.last_error, state.session),
        (Some(THEIR_AS), None, SessionState::Established)
    );
    assert!(state.since.elapsed().is_ok_and(|it| it < Duration::from_secs(60)));
}
