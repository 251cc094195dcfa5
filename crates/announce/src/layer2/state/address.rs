//! What one host does about one address.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use seaway_model::Name;

use super::Moment;
use crate::layer2::settings::{Mac, WantedAddress};

/// How long after a packet of another machine an address counts as disputed, and how often it is defended (RFC 5227, 2.4).
pub(super) const DISPUTED: Duration = Duration::from_secs(30);
const DEFEND: Duration = Duration::from_secs(10);
const PROBES: u8 = 3;
/// After the first announcement. The early ones are for a network that loses one.
const REPEATS: [u64; 7] = [50, 250, 1_100, 2_200, 3_300, 4_400, 5_500];
const ALWAYS: Duration = Duration::from_secs(60);

/// The interface whose subnet has an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SubnetInterface {
    pub(crate) link: u32,
    pub(crate) mac: Mac,
}

#[derive(Debug)]
pub(super) struct AddressEntry {
    pub(super) wanted: WantedAddress,
    /// This host is a candidate.
    pub(super) ours: bool,
    pub(super) place: Option<SubnetInterface>,
    /// The peers that come before this host; and of each peer, in the order of their names, whether it does.
    pub(super) before: BTreeSet<Name>,
    pub(super) precede: Vec<bool>,
    /// The host of ours that announces it.
    pub(super) owner: Option<Name>,
    pub(super) phase: Phase,
    /// No host of ours is known to have it: then another machine may, and is asked for before it is announced.
    pub(super) cold: bool,
    /// No host announces it since then, though a better one could.
    pub(super) orphaned: Option<Moment>,
    /// Better ones that could announce it and did not: they are neither waited for nor yielded to.
    pub(super) passed: BTreeSet<Name>,
    pub(super) disputed: Option<(Mac, Moment)>,
    /// When another host of ours, which does not say that it announces it, last did.
    contested: Option<Moment>,
    defended: Option<Moment>,
    /// Another host of ours announces it, too.
    pub(super) overlaps: bool,
    /// Another host of ours had it before.
    pub(super) was_elsewhere: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Idle,
    Probing { sent: u8, next: Moment },
    Announcing { since: Moment, sent: usize, next: Moment },
    Conflict { theirs: Mac, again: Moment },
}

/// What is due for an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Probe,
    Announcement,
    /// All probes stayed unanswered.
    Free,
    /// It is to be probed again.
    Again,
}

impl AddressEntry {
    pub(super) fn new(wanted: WantedAddress, host: &str) -> AddressEntry {
        AddressEntry {
            ours: wanted.candidates.iter().any(|it| **it == *host),
            wanted,
            place: None,
            before: BTreeSet::new(),
            precede: Vec::new(),
            owner: None,
            phase: Phase::Idle,
            cold: true,
            orphaned: None,
            passed: BTreeSet::new(),
            disputed: None,
            contested: None,
            defended: None,
            overlaps: false,
            was_elsewhere: false,
        }
    }

    pub(super) fn address(&self) -> IpAddr {
        self.wanted.address
    }

    pub(super) fn candidates(&self) -> &Arc<[Name]> {
        &self.wanted.candidates
    }

    pub(super) fn is_announced(&self) -> bool {
        matches!(self.phase, Phase::Announcing { .. })
    }

    pub(super) fn announce(&mut self, now: Moment) {
        self.phase = Phase::Announcing { since: now, sent: 0, next: now };
        (self.cold, self.orphaned, self.disputed, self.overlaps) = (false, None, None, false);
    }

    /// Announces from the beginning, where it is announced.
    pub(super) fn repeat(&mut self, now: Moment) {
        if let Phase::Announcing { since, sent, next } = &mut self.phase {
            (*since, *sent, *next) = (now, 0, now);
        }
    }

    pub(super) fn probe(&mut self, now: Moment) {
        self.phase = Phase::Probing { sent: 0, next: now };
    }

    pub(super) fn next(&self) -> Option<Moment> {
        match self.phase {
            Phase::Idle => None,
            Phase::Probing { next, .. } | Phase::Announcing { next, .. } => Some(next),
            Phase::Conflict { again, .. } => Some(again),
        }
    }

    /// Whether something is to be sent or decided now, and from now on when the next thing is.
    pub(super) fn due(&mut self, now: Moment, pause: Duration) -> Option<Due> {
        match &mut self.phase {
            Phase::Probing { sent: PROBES, next } if now >= *next => Some(Due::Free),
            Phase::Probing { sent, next } if now >= *next => {
                *sent = sent.saturating_add(1);
                *next = now.saturating_add(pause);
                Some(Due::Probe)
            }
            Phase::Announcing { since, sent, next } if now >= *next => {
                let offset = REPEATS.get(*sent).copied().map(Duration::from_millis);
                *next = match offset {
                    Some(offset) => since.saturating_add(offset).max(now),
                    None => now.saturating_add(ALWAYS),
                };
                *sent = sent.saturating_add(1);
                Some(Due::Announcement)
            }
            Phase::Conflict { again, .. } if now >= *again => Some(Due::Again),
            _ => None,
        }
    }

    /// Another machine says that it has it: whether that is news. Packets of one dispute are one.
    pub(super) fn dispute(&mut self, now: Moment, theirs: Mac, pause: Duration) -> bool {
        let known = self.disputed_by(now);
        match &mut self.phase {
            Phase::Idle => false,
            Phase::Probing { .. } => {
                self.phase = Phase::Conflict { theirs, again: now.saturating_add(pause) };
                true
            }
            Phase::Conflict { again, .. } => {
                *again = now.saturating_add(pause);
                false
            }
            Phase::Announcing { next, .. } => {
                if self.defended.is_none_or(|at| now.saturating_sub(at) >= DEFEND) {
                    self.defended = Some(now);
                    *next = now;
                }
                self.disputed = Some((known.unwrap_or(theirs), now));
                known.is_none()
            }
        }
    }

    /// Another host of ours says on the wire that it has it, though not to us: whether that is news.
    pub(super) fn contest(&mut self, now: Moment, pause: Duration) -> bool {
        match &mut self.phase {
            // It will say so to us as well.
            Phase::Probing { sent, next } => {
                (*sent, *next) = (0, now.saturating_add(pause));
                false
            }
            Phase::Announcing { .. } if self.contested.is_none_or(|at| now.saturating_sub(at) >= pause) => {
                self.contested = Some(now);
                self.repeat(now);
                true
            }
            _ => false,
        }
    }

    /// Who disputes it, if that was not long ago.
    pub(super) fn disputed_by(&self, now: Moment) -> Option<Mac> {
        self.disputed.filter(|(_, at)| now.saturating_sub(*at) < DISPUTED).map(|(theirs, _)| theirs)
    }
}
