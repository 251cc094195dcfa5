//! What OVN's provider does with health monitors: a late status update makes an object ACTIVE again that was deleted. It is
//! listed from then on, with its tags, and without what was below it; deleted again, it stays away.

use std::time::Duration;

use super::{
    Octavia,
    kinds::{BALANCER, LISTENER, POOL},
    schema::Kind,
};
use crate::cloud::{clock::FakeTime, state::State, store::Row};

#[derive(Clone, Debug, Default)]
pub(super) struct Revivals {
    /// How long after its end; nothing: nothing comes back.
    pub(super) after: Option<Duration>,
    due: Vec<(FakeTime, &'static Kind, Row)>,
    /// Each comes back once.
    came: Vec<String>,
}

impl Octavia {
    /// An object is about to be gone.
    pub(super) fn note_end(&mut self, kind: &'static Kind, id: &str, now: FakeTime) {
        let Some(after) = self.revivals.after else { return };
        let may = [BALANCER.one, LISTENER.one, POOL.one].contains(&kind.one);
        let Some(row) = self.table(kind).row(id).filter(|_| may && self.is_probed(kind, id)).cloned() else {
            return;
        };
        if !self.revivals.came.contains(&row.id) {
            self.revivals.due.push((now.after(after), kind, row));
        }
    }

    /// Whether there is a monitor in it, or where it leads to.
    fn is_probed(&self, kind: &Kind, id: &str) -> bool {
        let probed = |pool: &str| self.monitors.children(pool).next().is_some();
        match kind.one {
            "pool" => probed(id),
            "listener" => self.listeners.row(id).is_some_and(|it| probed(it.text("default_pool_id"))),
            _ => self.pools.children(id).any(|it| probed(&it.id)),
        }
    }
}

impl State {
    /// Late updates whose time has come.
    pub(super) fn revive(&mut self) {
        let now = self.now;
        let all = std::mem::take(&mut self.octavia.revivals.due);
        let (due, later) = all.into_iter().partition(|(at, ..)| *at <= now);
        self.octavia.revivals.due = later;
        let due: Vec<(FakeTime, &'static Kind, Row)> = due;
        for (_, kind, mut row) in due {
            let is_below = row.parent.as_ref().is_none_or(|it| self.octavia.balancers.row(it).is_some());
            if !is_below || self.octavia.table(kind).row(&row.id).is_some() {
                continue;
            }
            row.set("provisioning_status", "ACTIVE");
            row.set("updated_at", now.bare());
            if kind.one == LISTENER.one {
                row.set("default_pool_id", serde_json::Value::Null);
            }
            self.octavia.revivals.came.push(row.id.clone());
            self.octavia.table_mut(kind).put(row);
        }
    }
}
