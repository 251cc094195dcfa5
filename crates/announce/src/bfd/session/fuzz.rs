//! What must hold for any packets whatever (`fuzz/README.md`).

#![allow(
    clippy::arithmetic_side_effects,
    clippy::indexing_slicing,
    reason = "what is wrong ends the fuzz target"
)]

use std::time::Duration;

use super::{BfdState, Session};
use crate::bfd::{
    packet::{LENGTH, Packet},
    settings::Profile,
};

const MINE: u32 = 7;

pub(crate) fn hold(bytes: &[u8]) {
    let mut session = Session::new(Profile::default(), MINE, 1, Duration::ZERO);
    let mut now = Duration::ZERO;
    let mut rest = bytes;
    while rest.len() >= LENGTH {
        if let Some(packet) = Packet::read(rest) {
            let length = usize::from(rest[3]);
            assert!(length >= LENGTH && length <= rest.len() && packet.mine != 0 && packet.multiplier != 0);
            let written = packet.write();
            assert!(written[..3] == rest[..3] && written[4..] == rest[4..LENGTH], "{packet:?}");
            assert_eq!(Packet::read(&written), Some(packet));
            let before = session.what;
            let answer = session.receive(&packet, now);
            let is_others = packet.yours != 0 && packet.yours != MINE;
            assert!(!is_others || answer.is_none() && session.what == before, "{packet:?}");
            assert!(answer.is_none_or(|it| it.is_final && packet.is_poll && !it.is_poll));
        }
        let said = session.tick(now);
        assert!(said.is_none_or(|it| Packet::read(&it.write()) == Some(it)), "what we say is well-formed");
        assert!(session.what != BfdState::AdminDown, "no packet ends it on our side");
        assert!(session.next() > now, "it does not spin");
        // From nothing to some seconds, as the bytes say.
        now += Duration::from_millis(u64::from(rest[LENGTH - 1]) * 20);
        rest = &rest[LENGTH..];
    }
}
