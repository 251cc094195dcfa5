//! One session (RFC 5880, 6.8): a state machine. Time and packets come in as values, and packets come out.

mod fuzz;
#[cfg(test)]
mod tests;

pub(crate) use fuzz::hold;

use std::time::Duration;

use super::{
    packet::Packet,
    settings::{BfdState, Diagnostic, Profile},
};

/// Since some moment in the past.
pub(crate) type Moment = Duration;

/// A session that is not up sends and expects no more than one packet in a second (6.8.3).
const SLOWEST_START: Duration = Duration::from_secs(1);
/// A process that goes on where another one ended hears of it so soon, if at all.
const SUCCESSION: Duration = Duration::from_secs(2);

/// First it hears whether the peer has the session of a process before: to say that it begins would end that.
const LISTENS: Duration = SLOWEST_START;

#[derive(Debug)]
pub(crate) struct Session {
    profile: Profile,
    began: Moment,
    pub(crate) what: BfdState,
    pub(crate) diagnostic: Diagnostic,
    mine: u32,
    yours: u32,
    pub(crate) told: Option<PeerPacket>,
    /// What packets say of our intervals.
    transmit: Duration,
    receive: Duration,
    /// What held before, as long as the peer has not confirmed what is said now (6.8.3).
    transmit_before: Option<Duration>,
    receive_before: Option<Duration>,
    is_polling: bool,
    /// When the next packet is due.
    next: Moment,
    sent: Moment,
    /// When the peer was heard last.
    heard: Option<Moment>,
    pub(crate) downs: u64,
    random: u64,
}

/// What the peer said last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PeerPacket {
    pub(crate) state: BfdState,
    pub(crate) diagnostic: Diagnostic,
    is_demand: bool,
    multiplier: u8,
    transmit: Duration,
    receive: Duration,
}

impl Session {
    /// `mine` is not 0 and tells this session from all others of this host; `seed` is another one for each.
    pub(crate) fn new(profile: Profile, mine: u32, seed: u64, now: Moment) -> Session {
        Session {
            profile,
            began: now,
            what: BfdState::Down,
            diagnostic: Diagnostic::NONE,
            mine: mine.max(1),
            yours: 0,
            told: None,
            transmit: profile.transmit.max(SLOWEST_START),
            receive: profile.receive,
            transmit_before: None,
            receive_before: None,
            is_polling: false,
            next: now.saturating_add(LISTENS),
            sent: now,
            heard: None,
            downs: 0,
            random: seed | 1,
        }
    }

    pub(crate) fn mine(&self) -> u32 {
        self.mine
    }

    /// Other intervals: agreed with the peer while the session stays as it is (6.8.3).
    pub(crate) fn set_profile(&mut self, profile: Profile, now: Moment) {
        self.profile = profile;
        self.set_intervals(now);
    }

    /// The session is ended on purpose: the packet to tell so, if there is a peer to tell (6.8.16).
    pub(crate) fn stop(&mut self, now: Moment) -> Option<Packet> {
        if self.what != BfdState::AdminDown {
            self.enter(BfdState::AdminDown, Diagnostic::ADMINISTRATIVE, now);
        }
        (self.yours != 0).then(|| self.packet(false))
    }

    /// How long the peer may be silent (6.8.4); nothing, before it was heard.
    pub(crate) fn detection(&self) -> Option<Duration> {
        let told = self.told?;
        let receive = self.receive_before.map_or(self.receive, |before| before.max(self.receive));
        Some(receive.max(told.transmit).saturating_mul(told.multiplier.into()))
    }

    /// A packet that is for this session: by its discriminator, or, as long as it has none, by its sender.
    pub(crate) fn receive(&mut self, packet: &Packet, now: Moment) -> Option<Packet> {
        if packet.yours != 0 && packet.yours != self.mine || self.what == BfdState::AdminDown {
            return None;
        }
        self.yours = packet.mine;
        self.heard = Some(now);
        self.told = Some(PeerPacket {
            state: packet.state,
            diagnostic: packet.diagnostic,
            is_demand: packet.is_demand,
            multiplier: packet.multiplier,
            transmit: packet.desired_transmit,
            receive: packet.required_receive,
        });
        if packet.is_final && self.is_polling {
            self.is_polling = false;
            self.transmit_before = None;
            self.receive_before = None;
        }
        match (self.what, packet.state) {
            (BfdState::Down, BfdState::AdminDown) => {}
            (_, BfdState::AdminDown) => self.enter(BfdState::Down, Diagnostic::TOLD_DOWN, now),
            (BfdState::Down, BfdState::Down) => self.enter(BfdState::Init, Diagnostic::NONE, now),
            (BfdState::Down, BfdState::Init) | (BfdState::Init, BfdState::Init | BfdState::Up) => {
                self.enter(BfdState::Up, Diagnostic::NONE, now);
            }
            // It hears this very session, as a process before this one had it: nobody needs to notice.
            (BfdState::Down, BfdState::Up) if self.is_successor(packet, now) => {
                self.enter(BfdState::Up, Diagnostic::NONE, now);
            }
            (BfdState::Up, BfdState::Down) => self.enter(BfdState::Down, Diagnostic::TOLD_DOWN, now),
            _ => {}
        }
        // A peer that wants to hear us sooner need not wait for what was due by its former interval.
        self.next = self.next.min(self.sent.saturating_add(self.interval()).max(now));
        packet.is_poll.then(|| self.packet(true))
    }

    /// What is due now.
    pub(crate) fn tick(&mut self, now: Moment) -> Option<Packet> {
        if let (Some(heard), Some(detection)) = (self.heard, self.detection())
            && now >= heard.saturating_add(detection)
        {
            // Who was not heard for so long may have begun again, with another discriminator (6.8.1).
            self.yours = 0;
            self.heard = None;
            if matches!(self.what, BfdState::Init | BfdState::Up) {
                self.enter(BfdState::Down, Diagnostic::EXPIRED, now);
            }
        }
        if now < self.next {
            return None;
        }
        self.next = now.saturating_add(self.jittered());
        if !self.is_to_send() {
            return None;
        }
        self.sent = now;
        Some(self.packet(false))
    }

    /// When there is something to do, if nothing comes before.
    pub(crate) fn next(&self) -> Moment {
        let expires = match (self.heard, self.detection()) {
            (Some(heard), Some(detection)) => heard.saturating_add(detection),
            _ => Moment::MAX,
        };
        self.next.min(expires)
    }

    /// 6.8.7.
    fn is_to_send(&self) -> bool {
        let is_heard = self.told.filter(|_| self.yours != 0);
        let waits = self.profile.is_passive && self.yours == 0;
        let wants_none = is_heard.is_some_and(|told| told.receive.is_zero());
        let is_demand = is_heard.is_some_and(|told| told.is_demand && told.state == BfdState::Up);
        !(waits
            || wants_none && !self.is_polling
            || is_demand && self.what == BfdState::Up && !self.is_polling)
    }

    fn is_successor(&self, packet: &Packet, now: Moment) -> bool {
        packet.yours == self.mine && self.downs == 0 && now < self.began.saturating_add(SUCCESSION)
    }

    fn enter(&mut self, what: BfdState, diagnostic: Diagnostic, now: Moment) {
        if self.what == BfdState::Up && what != BfdState::Up {
            self.downs = self.downs.saturating_add(1);
        }
        self.what = what;
        self.diagnostic = diagnostic;
        self.is_polling = false;
        self.transmit_before = None;
        self.receive_before = None;
        self.set_intervals(now);
        // What changed is told at once (6.8.7).
        self.next = now;
    }

    fn set_intervals(&mut self, now: Moment) {
        let is_up = self.what == BfdState::Up;
        let slowest = if is_up { Duration::ZERO } else { SLOWEST_START };
        let transmit = self.profile.transmit.max(slowest);
        let receive = self.profile.receive;
        if (transmit, receive) == (self.transmit, self.receive) {
            return;
        }
        if is_up {
            if transmit > self.transmit {
                self.transmit_before = Some(self.transmit_before.unwrap_or(self.transmit));
            }
            if receive < self.receive {
                self.receive_before = Some(self.receive_before.unwrap_or(self.receive));
            }
            self.is_polling = true;
        }
        (self.transmit, self.receive) = (transmit, receive);
        self.next = now;
    }

    /// Between two of our packets, without jitter (6.8.2).
    fn interval(&self) -> Duration {
        let ours = self.transmit_before.map_or(self.transmit, |before| before.min(self.transmit));
        let theirs = self.told.filter(|_| self.yours != 0).map_or(Duration::ZERO, |told| told.receive);
        ours.max(theirs)
    }

    /// Less by a quarter at most, so that no two sessions keep step; by a tenth at least, where one lost packet ends it (6.8.7).
    fn jittered(&mut self) -> Duration {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let drawn = self.random >> 11;
        let thousandths =
            750_u64.saturating_add(if self.profile.multiplier == 1 { drawn % 151 } else { drawn % 251 });
        let micros = u64::try_from(self.interval().as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(micros.saturating_mul(thousandths) / 1_000)
    }

    fn packet(&self, is_final: bool) -> Packet {
        Packet {
            state: self.what,
            diagnostic: self.diagnostic,
            is_poll: self.is_polling && !is_final,
            is_final,
            // Seaway forwards itself: without this process nothing is.
            is_control_plane_independent: false,
            is_demand: false,
            multiplier: self.profile.multiplier,
            mine: self.mine,
            yours: self.yours,
            desired_transmit: self.transmit,
            required_receive: self.receive,
            required_echo: Duration::ZERO,
        }
    }
}
