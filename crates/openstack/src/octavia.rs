//! Octavia, the load balancer service.
//!
//! ```text
//!     LoadBalancer ─┬─ Listener ── L7Policy ── L7Rule
//!                   │      │ default        └──┐ redirect
//!                   └──── Pool ─┬─ Member      │
//!                          ▲    └─ HealthMonitor
//!                          └───────────────────┘
//! ```
//! A write to any of them locks its load balancer: until that is ACTIVE again, all other writes are refused
//! (`Class::Immutable`). So it is the load balancer that is waited for.

mod health_monitor;
mod l7;
mod listener;
mod load_balancer;
mod member;
mod offer;
mod pool;
mod tree;

use crate::resource::{ResourceState, words};

pub use health_monitor::{HealthMonitor, HealthMonitorChange, MonitorType, NewHealthMonitor};
pub use l7::{
    Action, CompareType, L7Policy, L7PolicyChange, L7Rule, L7RuleChange, NewL7Policy, NewL7Rule, RuleType,
};
pub use listener::{ClientAuthentication, Listener, ListenerChange, NewListener, Protocol};
pub use load_balancer::{
    AdditionalVip, BalancerStatus, LoadBalancer, LoadBalancerChange, NewAdditionalVip, NewLoadBalancer,
};
pub use member::{Member, MemberChange, NewMember};
pub use offer::{
    AvailabilityZone, Capability, Flavor, FlavorChange, FlavorProfile, FlavorProfileChange, NewFlavor,
    NewFlavorProfile, Provider,
};
pub use pool::{
    Algorithm, NewPool, Persistence, PersistenceType, Pool, PoolChange, PoolMembers, PoolProtocol,
};
pub use tree::{Statistics, StatusTree, TreeListener, TreeMember, TreeMonitor, TreePool};

#[cfg(test)]
pub(crate) use offer::read_capabilities;
pub(crate) use tree::{read_statistics, read_tree};

words! {
    /// How far an object is from what was asked for.
    Provisioning {
        Active = "ACTIVE",
        PendingCreate = "PENDING_CREATE",
        PendingUpdate = "PENDING_UPDATE",
        PendingDelete = "PENDING_DELETE",
        Deleted = "DELETED",
        Error = "ERROR",
    }
}

words! {
    /// How it serves, as far as its provider has noticed.
    Operating {
        Online = "ONLINE",
        Draining = "DRAINING",
        Offline = "OFFLINE",
        Degraded = "DEGRADED",
        Error = "ERROR",
        NoMonitor = "NO_MONITOR",
        /// Its `admin_state_up` is false.
        Disabled = "DISABLED",
    }
}

impl Provisioning {
    /// Somebody works on it.
    pub fn is_pending(&self) -> bool {
        matches!(
            self,
            Provisioning::PendingCreate | Provisioning::PendingUpdate | Provisioning::PendingDelete
        )
    }

    /// Octavia has no words for what went wrong: its own log has them.
    fn standing(&self, operating: &Operating) -> ResourceState {
        match self {
            Provisioning::Active => ResourceState::Ready,
            Provisioning::Deleted => ResourceState::Gone,
            Provisioning::Error => ResourceState::Failed(format!(
                "provisioning_status {self}, operating_status {operating}; Octavia's log says why"
            )),
            _ => ResourceState::Pending(self.to_string()),
        }
    }
}

/// How each kind stands, in its `impl Resource`.
macro_rules! provisioned {
    () => {
        fn standing(&self) -> $crate::resource::ResourceState {
            self.provisioning_status.standing(&self.operating_status)
        }
    };
}

use provisioned;
