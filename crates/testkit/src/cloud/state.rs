//! The whole cloud as one plain value: a copy of it is the world as it was.

use super::{
    barbican::Barbican,
    clock::{FakeTime, Ids},
    identity::Identity,
    neutron::Neutron,
    nova::Nova,
    octavia::Octavia,
};

#[derive(Clone, Debug)]
pub(super) struct State {
    /// Where clients find it.
    pub(super) base: String,
    pub(super) now: FakeTime,
    pub(super) ids: Ids,
    pub(super) identity: Identity,
    pub(super) octavia: Octavia,
    pub(super) neutron: Neutron,
    pub(super) nova: Nova,
    pub(super) barbican: Barbican,
}

impl State {
    /// A cloud with the users, the projects and the external network that the real rig has, and nothing else.
    pub(super) fn new(base: &str, now: FakeTime) -> State {
        let mut ids = Ids::default();
        let identity = Identity::new(base, &mut ids);
        let operator = identity.project_id("admin").unwrap_or_default();
        let mut state = State {
            base: base.to_owned(),
            now,
            ids,
            identity,
            octavia: Octavia::new("ovn"),
            neutron: Neutron::default(),
            nova: Nova::default(),
            barbican: Barbican::default(),
        };
        state.open_to_the_world(&operator);
        state
    }
}
