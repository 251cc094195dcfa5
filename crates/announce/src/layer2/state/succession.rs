//! A life that goes on in the next process.

use std::time::Duration;

use super::{HeartbeatStamp, Layer2StateMachine, Message, Moment, heartbeat};

/// More than any process says between its last words and its end.
const AHEAD: u64 = 1 << 20;

impl Layer2StateMachine {
    /// What the next process needs to know; nothing, if there is nothing to go on with.
    pub(crate) fn hand_over(&self, now: Moment) -> Vec<Message> {
        let announced: Vec<_> = self.claims().into_iter().filter(|it| it.announcing).collect();
        if announced.is_empty() || !self.has_lease(now) {
            return Vec::new();
        }
        // By a clock that both processes have, for the next one may be stopped before it reads this.
        let contact = u64::try_from(self.contact(now).as_nanos()).unwrap_or(0);
        let parts = heartbeat::parts(&announced, self.room);
        let count = u8::try_from(parts.len()).unwrap_or(u8::MAX);
        let message = |(part, claims)| Message {
            from: self.host.clone(),
            to: self.host.clone(),
            stamp: HeartbeatStamp { boot: self.boot, sequence: self.sequence },
            acknowledged: HeartbeatStamp { boot: contact, sequence: 0 },
            known: None,
            macs: Vec::new(),
            hears: Vec::new(),
            version: self.version,
            part,
            parts: count,
            claims,
        };
        (0..count).zip(parts).map(message).collect()
    }

    /// Goes on where that process ended, if it ended just now.
    pub(crate) fn inherit(&mut self, now: Moment, left: &[Message]) {
        let Some(first) = left.first() else { return };
        let is_whole = left.len() == usize::from(first.parts)
            && left.iter().all(|it| it.from == self.host && it.to == self.host && it.stamp == first.stamp);
        let contact = Duration::from_nanos(first.acknowledged.boot);
        // In another time namespace it may be yet to come.
        let age = now.checked_sub(contact);
        if !is_whole || age.is_none_or(|age| age > self.timing.lease) {
            return;
        }
        self.boot = first.stamp.boot;
        self.sequence = first.stamp.sequence.saturating_add(AHEAD);
        // Another one in any case: what the next process does not serve must not count as said.
        self.version = first.version.wrapping_add(1);
        self.next_beat = now;
        self.granted = contact;
        self.isolated = false;
        self.listening = Some(now);
        self.inherited = left.iter().flat_map(|it| &it.claims).map(|it| it.address).collect();
    }
}
