//! What a driver works with: whether this process may write, for everything that it does at a place. The engine asks before each
//! step; what makes several writes in one step, or repeats one, asks in between.

use std::sync::Arc;

use seaway_model::{ObjectRef, Pool, load_balancer::Certificate};

use crate::{driver::Failure, gate::Fence};

/// Given to each look, each step and each short way.
#[derive(Clone, Default)]
pub struct Context {
    fence: Fence,
}

impl Context {
    pub fn fenced(fence: Fence) -> Context {
        Context { fence }
    }

    /// For clients that ask before each attempt of each write.
    pub fn fence(&self) -> &Fence {
        &self.fence
    }

    /// An error once another process leads.
    pub fn require_lead(&self) -> Result<(), Failure> {
        self.fence.require()
    }
}

/// What alone is another of what a Unit serves.
#[derive(Clone, Debug)]
pub enum Patch {
    /// The members of one pool.
    Members(Arc<Pool>),
    /// A certificate under its name.
    Certificate(ObjectRef, Arc<Certificate>),
}
