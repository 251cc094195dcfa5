//! Which service does a step, and whether a load balancer must be at rest for it.

use seaway_openstack::Service;

use super::steps::Step;

impl Step {
    /// Who does it.
    pub fn service(&self) -> Service {
        match self {
            Step::AddFloating(_) | Step::Allocate(_) | Step::Move(..) => Service::Network,
            Step::Lead(_) | Step::Describe(..) | Step::TagFloating(_) => Service::Network,
            Step::Detach(_) | Step::RemoveFloating(_) | Step::RemoveGroup(_) => Service::Network,
            Step::Keep(..) | Step::Forget(_) => Service::KeyManager,
            _ => Service::LoadBalancer,
        }
    }

    /// While a load balancer is changed, it takes no second change.
    pub fn locks(&self) -> bool {
        let besides = matches!(
            self,
            Step::Detach(_) | Step::RemoveFloating(_) | Step::RemoveDouble(_) | Step::RemoveGroup(_)
        ) || matches!(self, Step::Abandon(_));
        let first =
            matches!(self, Step::AddFloating(_) | Step::Lead(_) | Step::Describe(..) | Step::Keep(..));
        let moves = matches!(self, Step::Allocate(_) | Step::Move(..) | Step::TagFloating(_));
        !besides && !first && !moves
    }
}
