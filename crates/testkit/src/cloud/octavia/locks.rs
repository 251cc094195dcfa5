//! One change at a time: a write locks the load balancer, and what it touches below it.

use super::{
    Octavia,
    kinds::{BALANCER, LISTENER},
    schema::Kind,
};
use crate::cloud::exchange::Refusal;

const ACTIVE: &str = "ACTIVE";

impl Octavia {
    /// Takes the lock for a change of the load balancer itself.
    pub(super) fn lock_balancer(&mut self, id: &str, to: &str) -> Result<(), Refusal> {
        let state = self.status(&BALANCER, id);
        let free = state == ACTIVE || state == "ERROR" && to == "PENDING_DELETE";
        if !free {
            return Err(Refusal::new(409, format!("Invalid state {state} of loadbalancer resource {id}")));
        }
        self.set_status(&BALANCER, id, to);
        Ok(())
    }

    /// Whether the load balancer can be locked; looked at before anything is checked that is no fault of a wait.
    pub(super) fn must_be_free(&self, balancer: &str) -> Result<(), Refusal> {
        if self.status(&BALANCER, balancer) == ACTIVE {
            Ok(())
        } else {
            Err(immutable(BALANCER.title, balancer))
        }
    }

    /// Takes the lock for a change below the load balancer, and marks what is touched on the way down to it.
    pub(super) fn lock_below(
        &mut self,
        balancer: &str,
        listeners: &[String],
        also: &[(&'static Kind, &str, &str)],
        now: &str,
    ) -> Result<(), Refusal> {
        self.must_be_free(balancer)?;
        let listeners = listeners.iter().map(|it| (&LISTENER, it.as_str(), "PENDING_UPDATE"));
        let marked = [(&BALANCER, balancer, "PENDING_UPDATE")]
            .into_iter()
            .chain(listeners)
            .chain(also.iter().copied());
        for (kind, id, status) in marked {
            self.set_status(kind, id, status);
            if let Some(row) = self.table_mut(kind).row_mut(id) {
                row.set("updated_at", now);
            }
        }
        Ok(())
    }

    /// A parent that is in ERROR, say, takes no children, though the load balancer is free.
    pub(super) fn must_be_active(&self, kind: &Kind, id: &str) -> Result<(), Refusal> {
        if self.status(kind, id) == ACTIVE { Ok(()) } else { Err(immutable(kind.title.replace(' ', ""), id)) }
    }

    pub(super) fn status(&self, kind: &Kind, id: &str) -> String {
        self.table(kind).row(id).map(|row| row.text("provisioning_status").to_owned()).unwrap_or_default()
    }

    pub(super) fn set_status(&mut self, kind: &Kind, id: &str, status: &str) {
        if let Some(row) = self.table_mut(kind).row_mut(id) {
            row.set("provisioning_status", status);
        }
    }
}

fn immutable(title: impl std::fmt::Display, id: &str) -> Refusal {
    Refusal::new(409, format!("{title} {id} is immutable and cannot be updated."))
}
