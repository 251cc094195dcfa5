//! A life that goes on in the next process.

use std::time::Duration;

use super::{Machine, Message, Now, Stamp, heartbeat};

/// More than any process says between its last words and its end.
const AHEAD: u64 = 1 << 20;

impl Machine {
    /// What the next process needs to know; nothing, if there is nothing to go on with.
    pub(crate) fn bequeath(&self, now: Now) -> Vec<Message> {
        let age = now.saturating_sub(self.contact(now));
        let announced: Vec<_> = self.claims().into_iter().filter(|it| it.announcing).collect();
        if announced.is_empty() || age > self.timing.lease {
            return Vec::new();
        }
        let parts = heartbeat::parts(&announced);
        let count = u8::try_from(parts.len()).unwrap_or(u8::MAX);
        let message = |(part, claims)| Message {
            from: self.host.clone(),
            to: self.host.clone(),
            stamp: Stamp { boot: self.boot, sequence: self.sequence },
            acknowledged: Stamp::default(),
            macs: Vec::new(),
            hears: vec![(0, u16::try_from(age.as_millis()).unwrap_or(u16::MAX))],
            version: self.version,
            part,
            parts: count,
            claims,
        };
        (0..count).zip(parts).map(message).collect()
    }

    /// Goes on where that process ended, if it ended just now.
    pub(crate) fn inherit(&mut self, now: Now, left: &[Message]) {
        let Some(first) = left.first() else { return };
        let is_whole = left.len() == usize::from(first.parts)
            && left.iter().all(|it| it.from == self.host && it.to == self.host && it.stamp == first.stamp);
        let age = first.hears.first().map(|(_, age)| Duration::from_millis((*age).into()));
        let Some(age) = age.filter(|age| is_whole && *age <= self.timing.lease) else { return };
        self.boot = first.stamp.boot;
        self.sequence = first.stamp.sequence.saturating_add(AHEAD);
        self.version = first.version;
        self.granted = now.saturating_sub(age);
        self.isolated = false;
        self.listening = Some(now);
        self.inherited = left.iter().flat_map(|it| &it.claims).map(|it| it.address).collect();
    }
}
