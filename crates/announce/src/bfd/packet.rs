//! The control packet (RFC 5880, 4.1): bytes to meaning and back. Nothing is allocated.

use std::time::Duration;

use super::settings::{BfdState, Diagnostic};

const VERSION: u8 = 1;
pub(crate) const LENGTH: usize = 24;

const POLL: u8 = 0x20;
const FINAL: u8 = 0x10;
const CONTROL_PLANE_INDEPENDENT: u8 = 0x08;
const AUTHENTICATED: u8 = 0x04;
const DEMAND: u8 = 0x02;
const MULTIPOINT: u8 = 0x01;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Packet {
    pub(crate) state: BfdState,
    pub(crate) diagnostic: Diagnostic,
    pub(crate) is_poll: bool,
    pub(crate) is_final: bool,
    pub(crate) is_control_plane_independent: bool,
    pub(crate) is_demand: bool,
    pub(crate) multiplier: u8,
    /// Never 0.
    pub(crate) mine: u32,
    /// 0, as long as the sender has not heard its peer.
    pub(crate) yours: u32,
    pub(crate) desired_transmit: Duration,
    pub(crate) required_receive: Duration,
    pub(crate) required_echo: Duration,
}

impl Packet {
    /// Nothing of what section 6.8.6 discards before it looks for a session, and nothing with an authentication section.
    pub(crate) fn read(bytes: &[u8]) -> Option<Packet> {
        let (&[first, second, multiplier, length], rest) = bytes.split_first_chunk::<4>()?;
        let is_whole = usize::from(length) >= LENGTH && usize::from(length) <= bytes.len();
        let is_readable = first >> 5 == VERSION && is_whole && second & (AUTHENTICATED | MULTIPOINT) == 0;
        if !is_readable || multiplier == 0 {
            return None;
        }
        let (mine, rest) = number(rest)?;
        let (yours, rest) = number(rest)?;
        let (transmit, rest) = number(rest)?;
        let (receive, rest) = number(rest)?;
        let (echo, _) = number(rest)?;
        let state = match second >> 6 {
            0 => BfdState::AdminDown,
            1 => BfdState::Down,
            2 => BfdState::Init,
            _ => BfdState::Up,
        };
        // Who has not heard us yet cannot be past that.
        let is_possible = yours != 0 || matches!(state, BfdState::AdminDown | BfdState::Down);
        (mine != 0 && is_possible).then_some(Packet {
            state,
            diagnostic: Diagnostic(first & 0x1f),
            is_poll: second & POLL != 0,
            is_final: second & FINAL != 0,
            is_control_plane_independent: second & CONTROL_PLANE_INDEPENDENT != 0,
            is_demand: second & DEMAND != 0,
            multiplier,
            mine,
            yours,
            desired_transmit: Duration::from_micros(transmit.into()),
            required_receive: Duration::from_micros(receive.into()),
            required_echo: Duration::from_micros(echo.into()),
        })
    }

    pub(crate) fn write(&self) -> [u8; LENGTH] {
        let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
        let second = (self.state as u8) << 6
            | flag(self.is_poll, POLL)
            | flag(self.is_final, FINAL)
            | flag(self.is_control_plane_independent, CONTROL_PLANE_INDEPENDENT)
            | flag(self.is_demand, DEMAND);
        let micros = |it: Duration| u32::try_from(it.as_micros()).unwrap_or(u32::MAX);
        let numbers = [
            self.mine,
            self.yours,
            micros(self.desired_transmit),
            micros(self.required_receive),
            micros(self.required_echo),
        ];
        let mut bytes = [0; LENGTH];
        let head = [VERSION << 5 | self.diagnostic.0 & 0x1f, second, self.multiplier, LENGTH as u8];
        let all = head.into_iter().chain(numbers.into_iter().flat_map(u32::to_be_bytes));
        bytes.iter_mut().zip(all).for_each(|(to, from)| *to = from);
        bytes
    }
}

fn number(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (first, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*first), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As FRR's bfdd sends it first: Down, 1 s, and what it can take.
    const FIRST: [u8; 24] = [
        0x20, 0x40, 3, 24, 0x0a, 0x0b, 0x0c, 0x0d, 0, 0, 0, 0, 0, 0x0f, 0x42, 0x40, 0, 0, 0xc3, 0x50, 0, 0,
        0xc3, 0x50,
    ];

    #[test]
    fn a_packet_is_read_and_written_as_the_rfc_draws_it() {
        let read = Packet::read(&FIRST).expect("it is well-formed");
        let expected = Packet {
            state: BfdState::Down,
            diagnostic: Diagnostic::NONE,
            is_poll: false,
            is_final: false,
            is_control_plane_independent: false,
            is_demand: false,
            multiplier: 3,
            mine: 0x0a0b_0c0d,
            yours: 0,
            desired_transmit: Duration::from_secs(1),
            required_receive: Duration::from_millis(50),
            required_echo: Duration::from_millis(50),
        };
        assert_eq!(read, expected);
        assert_eq!(read.write(), FIRST);
    }

    #[test]
    fn what_the_rfc_discards_is_not_read() {
        let changed = |at: usize, byte: u8| {
            let mut bytes = FIRST;
            bytes[at] = byte;
            Packet::read(&bytes)
        };
        assert!(changed(0, 0x21).is_some(), "a diagnostic");
        for (at, byte, why) in [
            (0, 0x40, "version 2"),
            (1, 0x44, "an authentication section"),
            (1, 0x41, "multipoint"),
            (1, 0xc0, "up, though it has not heard us"),
            (1, 0x80, "init, though it has not heard us"),
            (2, 0, "a multiplier of 0"),
            (3, 23, "shorter than a packet"),
            (3, 25, "longer than what came"),
        ] {
            assert_eq!(changed(at, byte), None, "{why}");
        }
        let mut nobody = FIRST;
        nobody[4..8].fill(0);
        assert_eq!(Packet::read(&nobody), None, "no discriminator");
        assert_eq!(Packet::read(&FIRST[..23]), None);
    }
}
