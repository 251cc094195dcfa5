//! What no API of OpenStack does: the hands of those who run it, and bad luck.

use std::time::Duration;

use super::{Cloud, IdentityVersions};

/// Who may sign in, and what for.
impl Cloud {
    /// A project, and a user of the same name who has these roles in it. Tells the project's id.
    pub fn add_project(&self, name: &str, password: &str, roles: &[&str]) -> String {
        let state = &mut self.shared.locked().state;
        state.identity.add_project(name, password, roles, &mut state.ids)
    }

    pub fn project_id(&self, name: &str) -> Option<String> {
        self.shared.locked().state.identity.project_id(name)
    }

    /// # Panics
    /// If there is no such user.
    pub fn set_password(&self, user: &str, password: &str) {
        let known = self.shared.locked().state.identity.set_password(user, password);
        assert!(known, "there is no user {user}");
    }

    /// All tokens that were given out are void.
    pub fn revoke_tokens(&self) {
        self.shared.locked().state.identity.revoke_all();
    }

    /// How long tokens live that are given out from now on: four hours, unless it is said here.
    pub fn token_lifetime(&self, time: Duration) {
        self.shared.locked().state.identity.lifetime = time;
    }

    pub fn speak(&self, versions: IdentityVersions) {
        self.shared.locked().state.identity.speaks = versions;
    }

    /// Takes a service out of the catalog, by its type: `load-balancer`.
    pub fn without(&self, service: &str) {
        self.shared.locked().state.identity.endpoints.retain(|it| it.kind != service);
    }

    /// `clouds.yaml` for somebody, with one cloud that is called `seaway`.
    pub fn clouds_yaml(&self, user: &str, password: &str) -> String {
        format!(
            "clouds:\n  seaway:\n    region_name: RegionOne\n    auth:\n      auth_url: {}\n      username: {user}\n      \
             password: {password}\n      project_name: {user}\n      user_domain_id: default\n      \
             project_domain_id: default\n",
            self.auth_url()
        )
    }
}

/// Load balancers.
impl Cloud {
    /// Ends all that is pending in a project, even where the provider never would.
    pub fn settle(&self, project: &str) {
        self.shared.locked().state.settle_all(project);
    }

    /// Puts any object of Octavia into this provisioning status: `ERROR`.
    ///
    /// # Panics
    /// If there is no such object.
    pub fn set_provisioning_status(&self, id: &str, status: &str) {
        let state = &mut self.shared.locked().state;
        let known = state.octavia.mark(id, "provisioning_status", status, &state.now.bare());
        assert!(known, "there is no object {id}");
    }

    /// A deleted load balancer, listener or pool that has a monitor is ACTIVE again so long after, once: a late status update
    /// of OVN's provider. `None`: it stays away.
    pub fn revive_after(&self, after: Option<std::time::Duration>) {
        self.shared.locked().state.octavia.revive_after(after);
    }

    /// # Panics
    /// If there is no such object.
    pub fn set_operating_status(&self, id: &str, status: &str) {
        let state = &mut self.shared.locked().state;
        let known = state.octavia.mark(id, "operating_status", status, &state.now.bare());
        assert!(known, "there is no object {id}");
    }

    /// The next object of this kind (`loadbalancer`, `listener`, …) that is made or changed ends in ERROR.
    ///
    /// # Panics
    /// If there is no such kind.
    pub fn fail_next(&self, kind: &str) {
        let known = self.shared.locked().state.octavia.fail_next(kind);
        assert!(known, "there is no kind {kind}");
    }

    /// Its API is that of version `2.x` and none after it: of the lists of versions, and of what came with 2.26.
    pub fn octavia_speaks(&self, minor: usize) {
        self.shared.locked().state.octavia.newest = minor;
    }

    /// How often something was written while OVN's driver was not done with what was written before: the real one then puts
    /// something into ERROR, or loses a change.
    pub fn overlaps(&self) -> usize {
        self.shared.locked().state.octavia.overlaps
    }

    /// What is made where no provider is named: `ovn`, `amphora` or `noop_driver`.
    pub fn default_provider(&self, name: &str) {
        name.clone_into(&mut self.shared.locked().state.octavia.default_provider);
    }

    /// Tells its id.
    pub fn add_flavor(&self, name: &str, provider: &str) -> String {
        self.shared.locked().state.add_flavor(name, provider)
    }

    pub fn add_availability_zone(&self, name: &str) {
        self.shared.locked().state.add_zone(name);
    }
}
