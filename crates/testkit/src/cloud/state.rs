//! The whole cloud as one plain value: a copy of it is the world as it was.

use super::{
    clock::{Ids, Moment},
    identity::Identity,
    octavia::Octavia,
};

#[derive(Clone, Debug)]
pub(super) struct State {
    /// Where clients find it.
    pub(super) base: String,
    pub(super) now: Moment,
    pub(super) ids: Ids,
    pub(super) identity: Identity,
    pub(super) octavia: Octavia,
}

impl State {
    /// An empty cloud with the users and projects that the real rig has.
    pub(super) fn new(base: &str, now: Moment) -> State {
        let mut ids = Ids::default();
        let identity = Identity::new(base, &mut ids);
        State { base: base.to_owned(), now, ids, identity, octavia: Octavia::default() }
    }
}
