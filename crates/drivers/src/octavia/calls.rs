//! Which service does a step, whether a load balancer must be at rest for it, and whether it deletes or exposes something.

use seaway_engine::{Effect, Effects};
use seaway_openstack::{Service, resource::Edit};

use super::steps::Step;

impl Step {
    /// Who does it.
    pub fn service(&self) -> Service {
        match self {
            Step::AddFloating(_) | Step::Allocate(_) | Step::Move(..) => Service::Network,
            Step::AssociateFloating(_) | Step::Describe(..) | Step::TagFloating(_) => Service::Network,
            Step::Detach(_) | Step::RemoveFloating(_) | Step::RemoveGroup(_) => Service::Network,
            Step::Keep(..) | Step::Forget(_) => Service::KeyManager,
            _ => Service::LoadBalancer,
        }
    }

    /// While a load balancer is changed, it takes no second change.
    pub fn locks(&self) -> bool {
        let besides = matches!(
            self,
            Step::Detach(_)
                | Step::RemoveFloating(_)
                | Step::RemoveDuplicateLoadBalancer(_)
                | Step::RemoveGroup(_)
        ) || matches!(self, Step::Abandon(_));
        let first = matches!(
            self,
            Step::AddFloating(_) | Step::AssociateFloating(_) | Step::Describe(..) | Step::Keep(..)
        );
        let moves = matches!(self, Step::Allocate(_) | Step::Move(..) | Step::TagFloating(_));
        !besides && !first && !moves
    }
}

impl Effects for Step {
    fn effect(&self) -> Effect {
        match self {
            Step::Create(_) | Step::AddListener(..) | Step::AddFloating(_) | Step::AssociateFloating(_) => {
                Effect::EXPOSES
            }
            // Other source ranges may let in more clients.
            Step::ChangeListener(_, change) if matches!(change.allowed_cidrs, Edit::To(_)) => Effect::EXPOSES,
            // One floating IP takes the place of another.
            Step::Move(..) => Effect::REPLACES,
            Step::Delete(_)
            | Step::RemoveDuplicateLoadBalancer(_)
            | Step::Leave(..)
            | Step::RemoveListener(_) => Effect::DELETES,
            Step::RemovePool(_)
            | Step::RemoveUnusedPool(_)
            | Step::RemoveDuplicateListener(_)
            | Step::RemoveMonitor(_) => Effect::DELETES,
            // All members are set, so some may go.
            Step::SetMembers(..) | Step::RemoveMember(..) => Effect::DELETES,
            Step::Detach(_) | Step::RemoveFloating(_) | Step::RemoveGroup(_) | Step::Forget(_) => {
                Effect::DELETES
            }
            Step::Change(_)
            | Step::ChangeListener(..)
            | Step::ChangePool(..)
            | Step::SwitchListenerPool(_) => Effect::CHANGES,
            Step::AddPool(..) | Step::AddSpare(..) | Step::AddMember(..) | Step::ChangeMember(..) => {
                Effect::CHANGES
            }
            Step::AddMonitor(..) | Step::ChangeMonitor(..) | Step::Keep(..) | Step::Join(_) => {
                Effect::CHANGES
            }
            Step::Allocate(_) | Step::Describe(..) | Step::TagFloating(_) => Effect::CHANGES,
            // Another is made beside the one that is abandoned, and machines are replaced below one that stays.
            Step::Abandon(_) | Step::Failover(_) => Effect::CHANGES,
        }
    }
}
