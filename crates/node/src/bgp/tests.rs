use std::{sync::Arc, time::UNIX_EPOCH};

use super::*;
use seaway_model::{
    Kind,
    bgp::{NextHops, Password, PeerAddress, PeerDistance, PeerFamilies, RemoteAs},
};

fn session(name: &str, password: Option<Password>) -> Session {
    Session {
        name: name.into(),
        to: PeerAddress::Ip { address: [192, 0, 2, 1].into(), port: 179, source: None },
        local_as: 64512,
        remote_as: RemoteAs::Number(64513),
        router_id: None,
        hold: Duration::from_secs(90),
        keepalive: None,
        connect_retry: Duration::from_secs(10),
        password,
        hops: PeerDistance::Direct,
        graceful_restart: None,
        bfd: None,
        next_hops: NextHops::default(),
        families: PeerFamilies { v4: true, v6: true },
        routes: vec![route("203.0.113.7/32"), route("203.0.113.0/24")],
    }
}

fn route(prefix: &str) -> Route {
    Route {
        prefix: prefix.parse().expect("a network"),
        local_pref: None,
        med: None,
        communities: Arc::default(),
        large: Arc::default(),
    }
}

fn all(sessions: Vec<Session>) -> DesiredBgp {
    DesiredBgp { sessions, is_leaving: false }
}

fn secret(name: &str) -> ObjectRef {
    ObjectRef::new(Kind::Secret, "seaway-system", name)
}

fn bgp() -> Bgp {
    Bgp::new(Arc::new(Presence::new("a".into(), Vec::new(), [])))
}

fn state(session: SessionState, last_error: Option<&str>) -> PeerState {
    PeerState {
        session,
        since: UNIX_EPOCH,
        sent: 1,
        routes: Arc::from([route("203.0.113.7/32").prefix]),
        received: 0,
        last_error: last_error.map(str::to_owned),
        resets: 0,
        remote_as: None,
        graceful_restart: false,
        bfd: None,
    }
}

#[test]
fn a_session_has_its_password_or_none_is_begun() {
    let of = |value: Option<&str>, name| Password {
        secret: secret(name),
        value: value.map(|it| it.to_owned().into()),
    };
    let sessions = vec![
        session("free", None),
        session("folder", Some(of(Some("hush"), "folder"))),
        session("read", Some(of(None, "read"))),
        session("refused", Some(of(None, "refused"))),
        session("unread", Some(of(None, "unread"))),
    ];
    let passwords: BgpPasswords = [
        (secret("read"), Ok("quiet".to_owned().into())),
        (secret("refused"), Err("there is no Secret seaway-system/refused".to_owned())),
    ]
    .into();
    let (wanted, lacking) = bgp().wanted(&DesiredBgp { sessions, is_leaving: false }, &passwords);
    let shown = |it: &Session| {
        let value = it.password.as_ref().and_then(|it| it.value.as_ref());
        value.map(|it| it.expose_secret().to_owned())
    };
    let known: Vec<Option<String>> = wanted.sessions.iter().map(shown).collect();
    assert_eq!(known, [None, Some("hush".into()), Some("quiet".into()), None, None]);
    assert!(wanted.sessions[3].password.is_some(), "never a session without a password instead");
    assert_eq!(lacking.keys().map(|it| it.as_str()).collect::<Vec<_>>(), ["refused", "unread"]);
    assert!(lacking["refused"].contains("there is no Secret"), "{lacking:?}");

    let status = Status { wanted: ["refused".into()].into(), lacking, ..Status::default() };
    let report = status.report(&BgpReport::default());
    assert_eq!(report.peers["refused"].what, BgpSessionState::NoPassword);
}

#[test]
fn a_password_is_what_a_router_can_have() {
    let of = |text: &str| usable(&text.to_owned().into()).map(|it| it.expose_secret().to_owned());
    assert_eq!(of("hush\n").as_deref(), Ok("hush"));
    assert_eq!(of(&"x".repeat(80)), Ok("x".repeat(80)));
    for (text, why) in [("", "empty"), ("\n", "empty"), (&*"x".repeat(81), "81 bytes")] {
        let told = of(text).expect_err(why);
        assert!(told.contains(why), "{told}");
    }
}

#[test]
fn an_address_that_seaway_did_not_put_on_the_machine_is_not_announced() {
    let bgp = bgp();
    assert!(!bgp.is_here(&route("203.0.113.7/32")) && bgp.is_here(&route("203.0.113.0/24")));
}

#[test]
fn a_host_that_is_drained_asks_routers_to_prefer_others_for_a_second_before_it_withdraws() {
    let (start, half) = (Instant::now(), GRACEFUL_SHUTDOWN / 2);
    let had = || Some(all(vec![session("tor", None), session("gone", None)]));
    let drained = || {
        let sessions = ["new", "tor"].map(|name| Session { routes: Vec::new(), ..session(name, None) });
        DesiredBgp { sessions: sessions.into(), is_leaving: true }
    };
    let mut leaving = None;
    let mut keep = |before, wanted: DesiredBgp, now| {
        let mut wanted = wanted;
        let again = keep_while_leaving(&mut wanted, before, &mut leaving, now);
        let routes = wanted.sessions.iter().map(|it| it.routes.len()).collect::<Vec<_>>();
        (routes, wanted.is_leaving, again)
    };
    assert_eq!(keep(had(), drained(), start), (vec![0, 2], true, Some(GRACEFUL_SHUTDOWN)), "as it was");
    assert_eq!(keep(had(), drained(), start + half), (vec![0, 2], true, Some(half)), "what comes in between");
    assert_eq!(keep(had(), drained(), start + 2 * half), (vec![0, 0], true, None), "it is over");
    assert_eq!(
        keep(had(), drained(), start + 9 * half),
        (vec![0, 0], true, None),
        "and does not begin again"
    );
    assert_eq!(keep(None, all(vec![session("tor", None)]), start + 9 * half), (vec![2], false, None));
    assert_eq!(keep(had(), drained(), start + 9 * half).2, Some(GRACEFUL_SHUTDOWN), "another drain");
    // One that has announced nothing, as after a start, has nothing to wait for.
    let mut wanted = drained();
    assert_eq!(keep_while_leaving(&mut wanted, None, &mut None, start), None);
}

#[test]
fn what_is_wrong_with_a_session_is_told_until_it_is_established() {
    let idle = |why: &str| SessionState::Idle { why: why.into() };
    for (session, error, what, detail) in [
        (SessionState::Established, None, BgpSessionState::Established, ""),
        (SessionState::Established, Some("BFD is not up"), BgpSessionState::Established, "BFD is not up"),
        (SessionState::Connect, None, BgpSessionState::Connecting, ""),
        (idle(""), None, BgpSessionState::Connecting, ""),
        (idle("no neighbour behind eth1"), None, BgpSessionState::Failed, "no neighbour behind eth1"),
        (idle("waits"), Some("connection refused"), BgpSessionState::Failed, "connection refused"),
        (SessionState::OpenSent, Some("AS mismatch"), BgpSessionState::Failed, "AS mismatch"),
    ] {
        let report = peer_report(&state(session.clone(), error));
        assert_eq!((report.what, report.detail.as_str()), (what, detail), "{session:?} {error:?}");
    }
}

#[test]
fn what_a_session_is_in_is_told_since_it_is_so() {
    let status = |why: &str| Status {
        wanted: ["tor".into()].into(),
        failed: Some((Instant::now(), why.to_owned())),
        ..Status::default()
    };
    let first = status("no").report(&BgpReport::default());
    let mut before = first.clone();
    before.peers.values_mut().for_each(|it| it.since.0 -= 5_000);
    let second = status("no").report(&before);
    assert_eq!(second, before, "nothing changed, and nothing is written");
}
