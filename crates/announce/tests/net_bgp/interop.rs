//! What FRR, BIRD and GoBGP have of us: both families over both, with all attributes, in sessions with another AS and with ours.

use seaway_model::bgp::{PeerAddress, RemoteAs, Route, Session};
use seaway_testkit::topology::{Bird, Frr, GoBgp, Namespace, lacks_routers, until};

use crate::cable::{
    Cable, OUR_AS, OURS, OURS_V6, Ours, THEIR_AS, THEIRS, THEIRS_V6, prefix, quick, route, session,
    session_to, start,
};

const V4: &str = "192.0.2.1/32";
const V6: &str = "2001:db8::1/128";
const OTHER_V4: &str = "192.0.2.2/32";
const OTHER_V6: &str = "2001:db8::2/128";

fn rich(text: &str) -> Route {
    Route {
        prefix: prefix(text),
        local_pref: Some(250),
        med: Some(77),
        communities: [65001 << 16 | 100, 65535 << 16 | 666].into(),
        large: [[4_200_000_001, 7, 9]].into(),
    }
}

/// By IPv4 with another AS, by IPv6 within the router's.
fn sessions() -> Vec<Session> {
    let mut external = session("external");
    external.routes = vec![rich(V4), rich(V6)];
    let mut internal = session_to("internal", THEIRS_V6);
    internal.local_as = THEIR_AS;
    internal.remote_as = RemoteAs::Internal;
    internal.routes = vec![rich(OTHER_V4), rich(OTHER_V6)];
    vec![external, internal]
}

/// All of it is there, then one goes, another comes, and a third changes; no session ends.
fn goes_through(cable: &Cable, says: &dyn Fn(&str) -> String, external: &[&str], internal: &[&str]) {
    let ours = cable.start(sessions());
    ours.until_established("external");
    ours.until_established("internal");
    for (routes, parts) in [([V4, V6], external), ([OTHER_V4, OTHER_V6], internal)] {
        for route in routes {
            let mut last = String::new();
            let began = std::time::Instant::now();
            until(&format!("it has {route}"), || {
                last = says(route);
                let missing = parts.iter().find(|it| !last.contains(**it));
                assert!(began.elapsed().as_secs() < 20, "{route} lacks {missing:?}: {last}");
                missing.is_none()
            });
        }
    }
    let mut changed = sessions();
    changed[0].routes = vec![rich(V4), route("192.0.2.9/32")];
    changed[0].routes[0].med = Some(7878);
    ours.set_desired(changed);
    until("one came", || says("192.0.2.9/32").contains(OURS));
    until("one changed", || says(V4).contains("7878"));
    until("one is gone", || !says(V6).contains(OURS_V6));
    for name in ["external", "internal"] {
        let state = ours.state(name);
        assert_eq!((state.resets, &state.last_error, state.sent), (0, &None, 2), "{state:?}");
    }
    ours.0.shut_down(std::time::Duration::ZERO);
    until("all are withdrawn", || !says(OTHER_V4).contains(OURS) && !says("192.0.2.9/32").contains(OURS));
}

#[test]
fn frr_has_what_is_announced_with_all_attributes() {
    if lacks_routers(&[Frr::PROGRAM]) {
        return;
    }
    let cable = Cable::new();
    let config = format!(
        "router bgp {THEIR_AS}\n bgp router-id {THEIRS}\n no bgp ebgp-requires-policy\n \
         neighbor {OURS} remote-as {OUR_AS}\n neighbor {OURS_V6} remote-as {THEIR_AS}\n \
         address-family ipv4 unicast\n  neighbor {OURS_V6} activate\n exit-address-family\n \
         address-family ipv6 unicast\n  neighbor {OURS} activate\n  neighbor {OURS_V6} activate\n exit-address-family\n"
    );
    let frr = Frr::start(&cable.theirs, &[("bgpd", &config)]);
    let says = |prefix: &str| {
        let family = if prefix.contains(':') { "ipv6" } else { "ipv4" };
        frr.says("bgpd", &format!("show bgp {family} unicast {prefix}"))
    };
    let communities = ["65001:100", "blackhole", "4200000001:7:9", "metric 77"];
    let external = [&communities[..], &["4200000001", "valid, external"]].concat();
    let internal = [&communities[..], &["localpref 250", "valid, internal", "Local"]].concat();
    goes_through(&cable, &says, &external, &internal);
    let neighbor = frr.says("bgpd", &format!("show bgp neighbors {OURS}"));
    assert!(neighbor.contains("Notification received (Cease/Administrative Shutdown)"), "{neighbor}");
}

#[test]
fn bird_has_what_is_announced_with_all_attributes() {
    if lacks_routers(&[Bird::PROGRAM]) {
        return;
    }
    let cable = Cable::new();
    let families = "ipv4 { import all; export none; }; ipv6 { import all; export none; };";
    let config = format!(
        "router id {THEIRS};\nprotocol device {{}}\n\
         protocol bgp one {{ local {THEIRS} as {THEIR_AS}; neighbor {OURS} as {OUR_AS}; {families} }}\n\
         protocol bgp two {{ local {THEIRS_V6} as {THEIR_AS}; neighbor {OURS_V6} as {THEIR_AS}; {families} }}\n"
    );
    let bird = Bird::start(&cable.theirs, &config);
    let says = |prefix: &str| bird.says(&["show", "route", "all", "for", prefix]);
    let communities = ["(65001,100)", "(65535,666)", "(4200000001, 7, 9)", "BGP.med: 77"];
    let external = [&communities[..], &["BGP.as_path: 4200000001"]].concat();
    let internal = [&communities[..], &["BGP.local_pref: 250"]].concat();
    goes_through(&cable, &says, &external, &internal);
}

#[test]
fn gobgp_has_what_is_announced_with_all_attributes() {
    if lacks_routers(&[GoBgp::PROGRAM]) {
        return;
    }
    let cable = Cable::new();
    let neighbor = |address: &str, number: u32| {
        let families: String = ["ipv4-unicast", "ipv6-unicast"]
            .map(|it| {
                format!("[[neighbors.afi-safis]]\n[neighbors.afi-safis.config]\nafi-safi-name = \"{it}\"\n")
            })
            .concat();
        format!(
            "[[neighbors]]\n[neighbors.config]\nneighbor-address = \"{address}\"\npeer-as = {number}\n\
             [neighbors.transport.config]\npassive-mode = true\n{families}"
        )
    };
    let config = format!(
        "[global.config]\nas = {THEIR_AS}\nrouter-id = \"{THEIRS}\"\n{}{}",
        neighbor(OURS, OUR_AS),
        neighbor(OURS_V6, THEIR_AS)
    );
    let gobgp = GoBgp::start(&cable.theirs, &config);
    let says = |prefix: &str| {
        let family = if prefix.contains(':') { "ipv6" } else { "ipv4" };
        gobgp.says(&["global", "rib", "-a", family, prefix])
    };
    let communities = ["65001:100", "blackhole", "4200000001:7:9", "{Med: 77}"];
    let external = [&communities[..], &["4200000001"]].concat();
    let internal = [&communities[..], &["{LocalPref: 250}"]].concat();
    goes_through(&cable, &says, &external, &internal);
}

/// FRR waits for our router advertisements, and sends its own.
#[test]
fn a_router_behind_an_interface_is_found_without_addresses() {
    if lacks_routers(&[Frr::PROGRAM]) {
        return;
    }
    let cable = Cable::bare();
    let config = format!(
        "router bgp {THEIR_AS}\n bgp router-id 10.255.0.1\n no bgp ebgp-requires-policy\n \
         neighbor eth0 interface remote-as external\n \
         address-family ipv6 unicast\n  neighbor eth0 activate\n exit-address-family\n"
    );
    let frr = Frr::start(&cable.theirs, &[("bgpd", &config)]);
    let mut unnumbered = session("unnumbered");
    unnumbered.to = PeerAddress::Interface("eth0".into());
    unnumbered.remote_as = RemoteAs::External;
    unnumbered.routes = vec![rich(V4), rich(V6)];
    let ours = cable.start(vec![unnumbered]);
    ours.until_established("unnumbered");
    assert_eq!(ours.state("unnumbered").remote_as, Some(THEIR_AS));
    for (family, prefix) in [("ipv4", V4), ("ipv6", V6)] {
        until(&format!("FRR has {prefix} by our link-local address"), || {
            let said = frr.says("bgpd", &format!("show bgp {family} unicast {prefix}"));
            said.contains("fe80::") && said.contains("valid, external")
        });
    }
    assert_eq!(ours.state("unnumbered").last_error, None);
}

/// They hear each other's advertisements as well as the router's.
#[test]
fn two_hosts_on_one_segment_find_the_router_and_not_each_other() {
    if lacks_routers(&[Bird::PROGRAM]) {
        return;
    }
    let switch = Namespace::create("switch");
    switch.ip(&["link", "add", "br0", "type", "bridge"]);
    switch.ip(&["link", "set", "br0", "up"]);
    let plug = |role: &str, port: &str| {
        let namespace = Namespace::create(role);
        namespace.cable("eth0", &switch, port);
        switch.ip(&["link", "set", port, "master", "br0", "up"]);
        namespace.ip(&["link", "set", "eth0", "up"]);
        namespace
    };
    let hosts = [plug("one", "p1"), plug("two", "p2")];
    let speakers: Vec<Ours> = (0_u8..2)
        .map(|at| {
            let mut wanted = session("tor");
            wanted.to = PeerAddress::Interface("eth0".into());
            wanted.remote_as = RemoteAs::External;
            wanted.routes = vec![route(&format!("192.0.2.{at}/32"))];
            start(&hosts[usize::from(at)], quick(), vec![wanted])
        })
        .collect();
    // Each takes the other one for the router until that comes.
    speakers.iter().for_each(|it| it.until_it_says("tor", "connection refused"));
    let router = plug("router", "p3");
    let config = format!(
        "router id 10.255.0.1;\nprotocol device {{}}\nprotocol radv {{ interface \"eth0\" {{ max ra interval 4; }}; }}\n\
         protocol bgp host {{ local as {THEIR_AS}; interface \"eth0\"; neighbor range fe80::/10 external; \
         dynamic name \"host\"; ipv4 {{ import all; export none; extended next hop on; }}; }}\n"
    );
    let bird = Bird::start(&router, &config);
    speakers.iter().for_each(|it| it.until_established("tor"));
    for at in 0..2 {
        until("BIRD has it", || bird.says(&["show", "route"]).contains(&format!("192.0.2.{at}/32")));
    }
}
