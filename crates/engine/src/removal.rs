//! What is deleted, and who is asked for it. What is asked when, `gate.rs` decides.

use std::{collections::BTreeSet, fmt::Display, future::Future, net::IpAddr, pin::Pin, sync::Arc};

use seaway_model::{L4, ListenerId, Name, ObjectRef, Owner, fact::Service};

use crate::effect::Effects;

/// An answer, or why there is none.
pub type OwnersFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, String>> + Send + 'a>>;

/// Who keeps the owners, and can be asked for them: an API server. What is there and cannot be read is an error, too.
pub trait Owners: Send + Sync + 'static {
    /// The Service that an owner is. `None`: it is not there, or another is there under its name.
    fn service<'a>(&'a self, owner: &'a Owner) -> OwnersFuture<'a, Option<Arc<Service>>>;

    /// All Services.
    fn services(&self) -> OwnersFuture<'_, Vec<Arc<Service>>>;
}

/// Whether one more deletion that no Service's deletion asked for is within the limit of this hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    Within,
    Beyond { limit: usize },
}

/// Who counts such deletions, over restarts and leaders. One that goes on is counted once.
pub trait DeletionLimit: Send + Sync + 'static {
    /// `what` goes, of this object; `balancers` are there now.
    fn count<'a>(
        &'a self,
        what: &'a str,
        object: &'a ObjectRef,
        balancers: usize,
    ) -> OwnersFuture<'a, Counted>;

    /// Whether an operator approved deletions of this object.
    fn approved<'a>(&'a self, _object: &'a ObjectRef) -> OwnersFuture<'a, bool> {
        Box::pin(std::future::ready(Ok(false)))
    }
}

/// Why it is not known whether another controller writes in the name of this cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Doubt {
    /// It will be, soon.
    NotYet(&'static str),
    /// Another would not be noticed.
    Never(&'static str),
}

/// Who keeps which heartbeats this cluster has sent into a cloud: where it is copied, the copy knows those until then.
pub trait HeartbeatRecord: Send + Sync + 'static {
    /// The last ones.
    fn heartbeats(&self) -> OwnersFuture<'_, Vec<String>>;

    /// Before the last of them is sent.
    fn record(&self, heartbeats: Vec<String>) -> OwnersFuture<'_, ()>;
}

/// Something that served, which steps delete and put nothing in the place of: counted, unless its Service's change asked for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removal {
    /// `listener 80/TCP`.
    pub what: Name,
    /// A listener goes with its port.
    pub listener: Option<ListenerId>,
    /// A member, or the security group at a port, goes with its Node, of which these are addresses. It is not counted.
    pub node: Vec<IpAddr>,
    /// A rule of a security group goes with the node port. It is not counted.
    pub node_port: Option<(L4, u16)>,
    /// Which of the steps delete it.
    pub steps: Vec<usize>,
    /// It serves no client: it goes without a question.
    pub is_unused: bool,
}

impl Removal {
    /// Each step that deletes, by itself: what the gate takes where a driver knows no better.
    pub fn each<S: Effects + Display>(steps: &[S]) -> Vec<Removal> {
        let deletes = steps.iter().enumerate().filter(|(_, it)| it.effect().deletes);
        let removal = |(at, step): (usize, &S)| Removal {
            what: format!("target of the step \"{step}\"").into(),
            steps: vec![at],
            ..Removal::default()
        };
        deletes.map(removal).collect()
    }

    /// Steps that delete and are in none of these, where the driver knows that what they delete serves nobody.
    pub fn of_the_rest<S: Effects>(removals: &[Removal], steps: &[S]) -> Option<Removal> {
        let named: BTreeSet<usize> = removals.iter().flat_map(|it| it.steps.iter().copied()).collect();
        let rest = steps.iter().enumerate().filter(|(at, it)| it.effect().deletes && !named.contains(at));
        let steps: Vec<usize> = rest.map(|(at, _)| at).collect();
        let what = Name::from("what serves no client");
        (!steps.is_empty()).then(|| Removal { what, steps, is_unused: true, ..Removal::default() })
    }
}

/// Three may go in an hour however few there are; else a tenth of what is there, with what went.
pub fn deletion_limit(balancers: usize, went: usize) -> usize {
    3.max((balancers + went) / 10)
}
