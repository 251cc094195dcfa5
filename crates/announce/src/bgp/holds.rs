//! What must hold for whatever a peer sends (`fuzz/README.md`).

#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "what is wrong ends the fuzz target"
)]

use std::{net::Ipv4Addr, time::Duration};

use seaway_model::bgp::{PeerFamilies, RemoteAs};

use super::{
    fsm::{Action, Config, Moment, SessionStateMachine, State},
    message::{self, MOST, Message},
    settings::Timing,
};

const NEITHER: PeerFamilies = PeerFamilies { v4: false, v6: false };
const NOW: Moment = Duration::from_secs(1000);

pub(crate) fn hold(bytes: &[u8]) {
    messages(bytes);
    let whole = receive_parts(&[bytes]);
    let cut = bytes.first().map_or(0, |it| usize::from(*it)).min(bytes.len());
    let (first, rest) = bytes.split_at(cut);
    assert_eq!(whole, receive_parts(&[first, rest]), "cut at {cut}");
    let single: Vec<&[u8]> = bytes.chunks(1).collect();
    assert_eq!(whole, receive_parts(&single), "byte by byte");
}

/// Each ends where it says, is whole or nothing, and is written as it was read.
fn messages(bytes: &[u8]) {
    let mut rest = bytes;
    while let Ok(Some((message, length))) = message::read(rest) {
        assert!((19..=MOST).contains(&length) && length <= rest.len());
        for cut in 0..length {
            assert_eq!(message::read(&rest[..cut]), Ok(None), "{message:?} is not read before it is whole");
        }
        let mut written = Vec::new();
        match &message {
            Message::Open(open) => {
                open.write(&mut written);
                let mut expected = open.clone();
                if expected.families == NEITHER {
                    // Of a peer with other families alone, we have no words for that.
                    expected.families.v4 = true;
                }
                let again = message::read(&written);
                assert_eq!(again, Ok(Some((Message::Open(expected), written.len()))));
            }
            Message::Notification(it) => {
                assert!(!it.to_string().contains(char::is_control), "{it}");
                it.write(&mut written);
                assert!(rest.starts_with(&written[..16]) && written.len() <= length);
            }
            Message::Update { prefixes } => assert!(*prefixes as usize <= length),
            Message::KeepAlive | Message::RouteRefresh(_) => {}
        }
        rest = &rest[length..];
    }
}

/// What a session that expects an OPEN makes of it.
fn receive_parts(parts: &[&[u8]]) -> (State, Option<String>, u64, Vec<Action>) {
    let config = Config {
        local_as: 65000,
        remote_as: RemoteAs::Number(65001),
        hold: Duration::from_secs(90),
        keepalive: None,
        connect_retry: Duration::from_secs(30),
        families: PeerFamilies { v4: true, v6: true },
        graceful_restart: Some(Duration::from_secs(120)),
        has_password: false,
        timing: Timing::default(),
    };
    let mut machine = SessionStateMachine::new(config, false, 7);
    let mut actions = Vec::new();
    machine.tick(NOW, &mut actions);
    machine.connected(NOW, Ipv4Addr::new(10, 0, 0, 1), &mut actions);
    for part in parts {
        machine.receive(NOW, part, &mut actions);
    }
    let ends = actions.iter().filter(|it| **it == Action::Close).count();
    let is_idle = matches!(machine.state(), State::Idle { .. });
    assert_eq!(ends, usize::from(is_idle), "it ends once, if it ends");
    assert_eq!(is_idle, machine.last_error.is_some(), "and says why");
    assert!(machine.last_error.as_ref().is_none_or(|it| it.len() < 600 && !it.contains(char::is_control)));
    (machine.state(), machine.last_error.clone(), machine.received, actions)
}
