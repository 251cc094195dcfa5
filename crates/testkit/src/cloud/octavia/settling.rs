//! How what is pending ends: after some looks, or when the fake's clock says so.

use std::time::Duration;

use super::{
    Octavia,
    kinds::{BALANCER, LISTENER, POLICY, POOL},
    schema::Kind,
};
use crate::cloud::{clock::Moment, state::State};

/// How long changes take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// So many requests see the change going on; then it is done.
    Looks(u32),
    /// By the fake's clock, which a test moves.
    Time(Duration),
    /// Until a test says so.
    Never,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace::Looks(1)
    }
}

/// A change that goes on at a load balancer.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    looks_left: u32,
    due: Option<Moment>,
}

impl State {
    /// Something at this load balancer has begun.
    pub(super) fn began(&mut self, balancer: &str) {
        let pending = match self.octavia.pace {
            Pace::Looks(looks) => Pending { looks_left: looks, due: None },
            Pace::Time(time) => Pending { looks_left: u32::MAX, due: Some(self.now.after(time)) },
            Pace::Never => Pending { looks_left: u32::MAX, due: None },
        };
        self.octavia.pending.insert(balancer.to_owned(), pending);
    }

    /// These objects were told to somebody: what goes on at their load balancers draws nearer to its end.
    pub(super) fn looked(&mut self, kind: &Kind, ids: &[String]) {
        if self.octavia.pending.is_empty() {
            return;
        }
        let mut balancers: Vec<String> =
            ids.iter().filter_map(|id| self.octavia.balancer_of(kind, id)).collect();
        balancers.sort();
        balancers.dedup();
        for balancer in balancers {
            let Some(pending) = self.octavia.pending.get_mut(&balancer) else { continue };
            pending.looks_left = pending.looks_left.saturating_sub(1);
        }
    }

    /// Ends what has had its time. Called before each request.
    pub(in crate::cloud) fn settle(&mut self) {
        let now = self.now;
        let over = |it: &Pending| it.looks_left == 0 || it.due.is_some_and(|due| due <= now);
        let done: Vec<String> =
            self.octavia.pending.iter().filter(|(_, it)| over(it)).map(|(id, _)| id.clone()).collect();
        for balancer in done {
            self.octavia.pending.remove(&balancer);
            self.finish(&balancer);
        }
    }

    fn finish(&mut self, balancer: &str) {
        let updated = self.now.bare();
        if self.octavia.status(&BALANCER, balancer) == "PENDING_DELETE" {
            self.octavia.remove(&BALANCER, balancer);
            return;
        }
        for (kind, id) in self.octavia.family(balancer) {
            let status = self.octavia.status(kind, &id);
            if status == "PENDING_DELETE" {
                self.octavia.remove(kind, &id);
            } else if status.starts_with("PENDING") {
                let Some(row) = self.octavia.table_mut(kind).row_mut(&id) else { continue };
                row.set("provisioning_status", "ACTIVE");
                row.set("updated_at", updated.clone());
                if row.text("operating_status") == "OFFLINE" {
                    row.set("operating_status", "ONLINE");
                }
            }
        }
    }
}

impl Octavia {
    /// The load balancer and all that is below it.
    pub(super) fn family(&self, balancer: &str) -> Vec<(&'static Kind, String)> {
        let mut family: Vec<(&'static Kind, String)> = vec![(&BALANCER, balancer.to_owned())];
        let mut next = 0;
        while let Some((kind, id)) = family.get(next).cloned() {
            for &child in kind.below {
                family.extend(self.table(child).child_ids(&id).into_iter().map(|id| (child, id)));
            }
            next += 1;
        }
        family
    }

    /// With all that is below it.
    pub(super) fn remove(&mut self, kind: &'static Kind, id: &str) {
        for &child in kind.below {
            for id in self.table(child).child_ids(id) {
                self.remove(child, &id);
            }
        }
        self.table_mut(kind).remove(id);
    }

    pub(super) fn balancer_of(&self, kind: &Kind, id: &str) -> Option<String> {
        let parent = |kind: &Kind, id: &str| self.table(kind).row(id)?.parent.clone();
        match kind.one {
            "loadbalancer" => Some(id.to_owned()),
            "listener" | "pool" => parent(kind, id),
            "member" | "healthmonitor" => parent(&POOL, &parent(kind, id)?),
            "l7policy" => parent(&LISTENER, &parent(kind, id)?),
            _ => parent(&LISTENER, &parent(&POLICY, &parent(kind, id)?)?),
        }
    }
}
