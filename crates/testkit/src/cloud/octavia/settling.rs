//! How what is pending ends: after some looks, or when the fake's clock says so.
//!
//! With `ovn` it may end in two steps, as there: a load balancer that was created whole is ACTIVE before what is below it,
//! members that a batch removes are ACTIVE once more before they are gone, and so is a pool that had a monitor or members.

use std::time::Duration;

use super::{
    Octavia,
    kinds::{BALANCER, LISTENER, POLICY, POOL},
    providers::{Provider, operating},
    schema::Kind,
};
use crate::cloud::{clock::FakeTime, state::State};

/// How long changes take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeDuration {
    /// So many requests see the change going on; then it is done.
    Looks(u32),
    /// By the fake's clock, which a test moves.
    Time(Duration),
    /// By the fake's clock, and no more of them at a time than there are workers; the rest wait in their line.
    Workers { each: Duration, workers: usize },
    /// Until a test says so.
    Never,
}

impl Default for ChangeDuration {
    fn default() -> ChangeDuration {
        ChangeDuration::Looks(1)
    }
}

/// On what the provider is going to fail with.
const DOOMED: &str = "doomed";
/// On what the provider is going to forget this time.
const FORGOTTEN: &str = "forgotten";

/// A change that goes on at a load balancer.
#[derive(Clone, Debug)]
pub(super) struct PendingChange {
    end: PendingUntil,
    step: Step,
    late: Vec<Late>,
}

/// A member or a pool that only the second step removes.
type Late = (&'static Kind, String);

#[derive(Clone, Copy, Debug)]
enum PendingUntil {
    Looks(u32),
    At(FakeTime),
    Never,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    First,
    Second,
}

impl Octavia {
    /// When the one who is free first is done with what takes so long.
    fn free_worker(&mut self, workers: usize, now: FakeTime, each: Duration) -> FakeTime {
        self.workers.resize(workers.max(1), now);
        let free = self.workers.iter_mut().min().expect("there is one at least");
        *free = (*free).max(now).after(each);
        *free
    }
}

impl State {
    /// Something at this load balancer has begun.
    pub(super) fn began(&mut self, balancer: &str) {
        let other = self.octavia.pending.remove(balancer);
        self.octavia.overlaps += usize::from(other.is_some());
        // A change amid the two steps of another one does not start that anew.
        let other = other.filter(|it| it.step == Step::Second);
        let (step, late) = other.map_or((Step::First, Vec::new()), |it| (it.step, it.late));
        self.begin(balancer, step, late);
    }

    fn begin(&mut self, balancer: &str, step: Step, late: Vec<Late>) {
        let is_noop =
            self.octavia.balancers.row(balancer).is_some_and(|it| Provider::of(it) == Provider::Noop);
        let end = match self.octavia.pace {
            _ if is_noop => PendingUntil::Never,
            ChangeDuration::Looks(looks) => PendingUntil::Looks(looks),
            ChangeDuration::Time(time) => PendingUntil::At(self.now.after(time)),
            ChangeDuration::Workers { each, workers } => {
                PendingUntil::At(self.octavia.free_worker(workers, self.now, each))
            }
            ChangeDuration::Never => PendingUntil::Never,
        };
        self.octavia.pending.insert(balancer.to_owned(), PendingChange { end, step, late });
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
            if let Some(PendingChange { end: PendingUntil::Looks(looks), .. }) =
                self.octavia.pending.get_mut(&balancer)
            {
                *looks = looks.saturating_sub(1);
            }
        }
    }

    /// Ends what has had its time. Called before each request.
    pub(in crate::cloud) fn settle(&mut self) {
        self.revive();
        if self.octavia.pending.is_empty() {
            return;
        }
        let now = self.now;
        let is_over = |it: &PendingChange| match it.end {
            PendingUntil::Looks(left) => left == 0,
            PendingUntil::At(due) => due <= now,
            PendingUntil::Never => false,
        };
        let done: Vec<String> =
            self.octavia.pending.iter().filter(|(_, it)| is_over(it)).map(|(id, _)| id.clone()).collect();
        for balancer in done {
            let Some(pending) = self.octavia.pending.remove(&balancer) else { continue };
            match pending.step {
                Step::First => self.first_step(&balancer, pending.late),
                Step::Second => {
                    for (kind, id) in pending.late {
                        self.octavia.note_end(kind, &id, self.now);
                        self.octavia.remove(kind, &id);
                    }
                    self.finish(&balancer, &[]);
                    self.freshen(&balancer);
                }
            }
        }
    }

    /// Which often is the only one.
    fn first_step(&mut self, balancer: &str, late: Vec<Late>) {
        let Some(row) = self.octavia.balancers.row(balancer) else { return };
        let status = row.text("provisioning_status").to_owned();
        let has_children =
            BALANCER.below.iter().any(|it| self.octavia.table(it).children(balancer).next().is_some());
        let has_two = Provider::of(row) == Provider::Ovn && self.octavia.failing.is_empty();
        match status.as_str() {
            "PENDING_CREATE" if has_two && has_children => {
                self.octavia.set_status(&BALANCER, balancer, "ACTIVE");
                self.begin(balancer, Step::Second, Vec::new());
            }
            _ if has_two && !late.is_empty() => {
                self.finish(balancer, &late);
                for (kind, id) in &late {
                    self.octavia.set_status(kind, id, "ACTIVE");
                }
                self.begin(balancer, Step::Second, late);
            }
            _ => self.finish(balancer, &[]),
        }
    }

    fn finish(&mut self, balancer: &str, except: &[Late]) {
        if self.octavia.status(&BALANCER, balancer) == "PENDING_DELETE" {
            self.remove_balancer(balancer);
            return;
        }
        let updated = self.now.bare();
        let failed = self.take_failures(balancer);
        let provider = self.octavia.balancers.row(balancer).map(Provider::of);
        for (kind, id) in self.octavia.family(balancer) {
            let status = self.octavia.status(kind, &id);
            if except.iter().any(|(_, it)| *it == id) || !status.starts_with("PENDING") {
                continue;
            }
            if status == "PENDING_DELETE" {
                self.octavia.note_end(kind, &id, self.now);
                self.octavia.remove(kind, &id);
                continue;
            }
            let row = self.octavia.table(kind).row(&id);
            let operating =
                provider.zip(row).and_then(|(it, row)| operating(&self.octavia, it, kind.one, row));
            let Some(row) = self.octavia.table_mut(kind).row_mut(&id) else { continue };
            if row.fields.remove(FORGOTTEN).is_some() {
                continue;
            }
            let is_doomed = row.fields.remove(DOOMED).is_some() || failed.contains(&kind.one);
            row.set("provisioning_status", if is_doomed { "ERROR" } else { "ACTIVE" });
            row.set("updated_at", updated.clone());
            if let Some(operating) = operating {
                row.set("operating_status", operating);
            }
        }
    }

    /// The last thing that was done below it tells how the load balancer is.
    fn freshen(&mut self, balancer: &str) {
        let updated = self.now.bare();
        let row = self.octavia.balancers.row(balancer);
        let told = row.and_then(|row| operating(&self.octavia, Provider::of(row), BALANCER.one, row));
        if let (Some(told), Some(row)) = (told, self.octavia.balancers.row_mut(balancer)) {
            row.set("operating_status", told);
            row.set("updated_at", updated);
        }
    }

    fn remove_balancer(&mut self, id: &str) {
        if let Some(row) = self.octavia.balancers.row(id).cloned() {
            self.drop_vip(&row);
        }
        self.octavia.pending.remove(id);
        self.octavia.note_end(&BALANCER, id, self.now);
        self.octavia.remove(&BALANCER, id);
    }

    /// Ends all that is pending in a project, whatever its provider does.
    pub(in crate::cloud) fn settle_all(&mut self, project: &str) {
        let balancers: Vec<String> =
            self.octavia.balancers.of_project(project).map(|it| it.id.clone()).collect();
        for balancer in balancers {
            self.octavia.pending.remove(&balancer);
            if self.octavia.status(&BALANCER, &balancer) == "PENDING_DELETE" {
                self.remove_balancer(&balancer);
                continue;
            }
            for (kind, id) in self.octavia.family(&balancer) {
                match self.octavia.status(kind, &id).as_str() {
                    "PENDING_DELETE" => self.octavia.remove(kind, &id),
                    status if status.starts_with("PENDING") => self.octavia.set_status(kind, &id, "ACTIVE"),
                    _ => {}
                }
            }
        }
    }

    /// The kinds of which something is pending here that a test wants to fail.
    fn take_failures(&mut self, balancer: &str) -> Vec<&'static str> {
        if self.octavia.failing.is_empty() {
            return Vec::new();
        }
        let family = self.octavia.family(balancer);
        let is_pending = |name: &str| {
            family
                .iter()
                .any(|(kind, id)| kind.one == name && self.octavia.status(kind, id).starts_with("PENDING"))
        };
        let mut failed: Vec<&'static str> =
            self.octavia.failing.iter().copied().filter(|it| is_pending(it)).collect();
        // Said twice, the one after it fails, too.
        failed.sort_unstable();
        failed.dedup();
        for name in &failed {
            if let Some(at) = self.octavia.failing.iter().position(|it| it == name) {
                self.octavia.failing.remove(at);
            }
        }
        failed
    }
}

impl Octavia {
    /// OVN's provider, told nothing of `admin_state_up`, forgets the listeners of a pool whose name changes, which stay
    /// PENDING_UPDATE until their next change, and trips over a session persistence.
    pub(super) fn misjudge(&mut self, pool: &str, listeners: &[String], is_name_only: bool) {
        if !is_name_only {
            if let Some(row) = self.pools.row_mut(pool) {
                row.set(DOOMED, true);
            }
            return;
        }
        for id in listeners {
            if let Some(row) = self.listeners.row_mut(id) {
                row.set(FORGOTTEN, true);
            }
        }
    }

    /// What goes on there never ends.
    pub(super) fn hang(&mut self, balancer: &str) {
        if let Some(pending) = self.pending.get_mut(balancer) {
            pending.end = PendingUntil::Never;
        }
    }

    /// These are removed in a second step.
    pub(super) fn delay(&mut self, balancer: &str, kind: &'static Kind, ids: &[String]) {
        if let Some(pending) = self.pending.get_mut(balancer) {
            pending.late.extend(ids.iter().map(|it| (kind, it.clone())));
        }
    }

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

    /// With all that is below it; who refers to it lets go.
    pub(super) fn remove(&mut self, kind: &'static Kind, id: &str) {
        for &child in kind.below {
            for id in self.table(child).child_ids(id) {
                self.remove(child, &id);
            }
        }
        let Some(row) = self.table_mut(kind).remove(id) else { return };
        let parent = row.parent.unwrap_or_default();
        if kind.one == POOL.one {
            for listener in self.listeners.child_ids(&parent) {
                if let Some(row) =
                    self.listeners.row_mut(&listener).filter(|it| it.text("default_pool_id") == id)
                {
                    row.set("default_pool_id", serde_json::Value::Null);
                }
            }
        }
        if kind.one == POLICY.one {
            self.close_ranks(&parent);
        }
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
