//! What one host knows of another.

use std::{collections::BTreeMap, net::IpAddr, time::Duration};

use super::Moment;
use crate::layer2::{
    heartbeat::{AddressClaim, HeartbeatStamp, Message},
    settings::Mac,
};

#[derive(Debug, Default)]
pub(super) struct Peer {
    pub(super) short: u64,
    /// The newest message that counted.
    counted: HeartbeatStamp,
    /// What it is to be told that it was heard.
    pub(super) latest: HeartbeatStamp,
    /// When its newest message that counted came.
    heard: Option<Moment>,
    /// When that of ours was sent which it acknowledged last.
    pub(super) acknowledged: Option<Moment>,
    /// It was heard without a gap since.
    since: Moment,
    /// When others last heard it, as they say.
    pub(super) told: Option<Moment>,
    /// The version of our claims of which it has all parts.
    pub(super) knows: Option<u32>,
    pub(super) claims: BTreeMap<IpAddr, PeerClaim>,
    /// Of its claims, as soon as they are complete.
    version: Option<u32>,
    assembling: Option<(u32, Vec<Option<Vec<AddressClaim>>>)>,
    pub(super) macs: Vec<Mac>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PeerClaim {
    pub(super) announcing: bool,
    /// It was claimed without a gap since.
    pub(super) since: Moment,
}

impl Peer {
    pub(super) fn new(short: u64) -> Peer {
        Peer { short, ..Peer::default() }
    }

    /// It answers us directly.
    pub(super) fn is_heard(&self, now: Moment, dead: Duration) -> bool {
        self.heard.is_some_and(|heard| now.saturating_sub(heard) < dead)
    }

    pub(super) fn last_heard(&self) -> Option<Moment> {
        self.heard
    }

    /// When it was last heard, by us or by one whom we hear.
    pub(super) fn alive(&self) -> Option<Moment> {
        self.heard.max(self.told)
    }

    /// The version of its claims of which we have all parts.
    pub(super) fn known_version(&self) -> Option<u32> {
        self.version
    }

    /// All that it claims is known, by messages that came since then.
    pub(super) fn is_known_since(&self, begun: Moment) -> bool {
        self.acknowledged.is_some_and(|at| at >= begun) && self.version.is_some()
    }

    /// `sent`: when that of ours was sent which it acknowledges, if that was a moment ago. Tells whether it
    /// counts, and whether claims changed.
    pub(super) fn receive(
        &mut self,
        now: Moment,
        message: Message,
        sent: Option<Moment>,
        dead: Duration,
    ) -> (bool, bool) {
        let stamp = message.stamp;
        let is_same_life = stamp.boot == self.latest.boot;
        let Some(sent) = sent else {
            // It does not prove that it is more than a recording. It is told that it was heard, so that it can.
            let is_newer = !is_same_life || stamp.sequence > self.latest.sequence;
            if is_newer && (stamp.boot == self.counted.boot || !self.is_heard(now, dead)) {
                self.latest = stamp;
            }
            return (false, false);
        };
        if stamp.boot == self.counted.boot && stamp.sequence <= self.counted.sequence {
            return (false, false);
        }
        let mut changed = false;
        if stamp.boot != self.counted.boot || !self.is_heard(now, dead) {
            changed = !self.claims.is_empty();
            self.forget();
            self.since = now;
        }
        (self.counted, self.latest, self.heard) = (stamp, stamp, Some(now));
        self.acknowledged = self.acknowledged.max(Some(sent));
        self.knows = message.known;
        if self.macs != message.macs {
            self.macs.clone_from(&message.macs);
            changed = true;
        }
        (true, self.assemble(now, message) || changed)
    }

    /// What it claimed and knew counts no more, since it is gone.
    pub(super) fn forget(&mut self) {
        self.claims.clear();
        self.knows = None;
        (self.version, self.assembling) = (None, None);
    }

    fn assemble(&mut self, now: Moment, message: Message) -> bool {
        let Message { version, part, parts, claims, .. } = message;
        if self.version == Some(version) {
            return false;
        }
        let (building, gathered) = self.assembling.get_or_insert_with(|| (version, Vec::new()));
        if *building != version || gathered.len() != usize::from(parts) {
            *building = version;
            *gathered = vec![None; parts.into()];
        }
        if let Some(place) = gathered.get_mut(usize::from(part)) {
            *place = Some(claims);
        }
        if gathered.iter().any(Option::is_none) {
            return false;
        }
        let all = std::mem::take(gathered).into_iter().flatten().flatten();
        let before = std::mem::take(&mut self.claims);
        let claims = all.map(|claim| {
            let since = before.get(&claim.address).map_or(now, |it| it.since);
            (claim.address, PeerClaim { announcing: claim.announcing, since: since.max(self.since) })
        });
        self.claims = claims.collect();
        (self.version, self.assembling) = (Some(version), None);
        true
    }
}
