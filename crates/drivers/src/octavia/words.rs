//! Steps as a human reads them.

use std::fmt;

use super::{
    steps::{Step, text},
    wanted::spot,
};

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Create(new) => write!(f, "create load balancer {}", text(&new.name)),
            Step::Change(_) => f.write_str("change the load balancer"),
            Step::RemoveListener(id) => write!(f, "delete the listener of {id}"),
            Step::RemovePool(id) => write!(f, "delete the pool of {id}"),
            Step::AddListener(id, new) => write!(f, "create listener {} for {id}", text(&new.name)),
            Step::ChangeListener(id, _) => write!(f, "change the listener of {id}"),
            Step::AddPool(id, new) => write!(f, "create pool {} for {id}", text(&new.name)),
            Step::AddSpare(id, new) => write!(f, "create pool {} to replace that of {id}", text(&new.name)),
            Step::SwitchListenerPool(id) => write!(f, "move the listener of {id} to its new pool"),
            Step::RemoveUnusedPool(id) => write!(f, "delete pool {id}, which no listener uses"),
            Step::RemoveDuplicateListener(id) => {
                write!(f, "delete listener {id}, a duplicate at its port that has no pool")
            }
            Step::ChangePool(id, _) => write!(f, "change the pool of {id}"),
            Step::SetMembers(id, members) => {
                write!(f, "set the {} members of the pool of {id}", members.len())
            }
            Step::AddMember(id, new) => write!(f, "add member {} to the pool of {id}", spot(new)),
            Step::ChangeMember(id, at, _) => write!(f, "change member {at} of the pool of {id}"),
            Step::RemoveMember(id, at) => write!(f, "remove member {at} of the pool of {id}"),
            Step::AddMonitor(id, _) => write!(f, "create the health monitor of {id}"),
            Step::ChangeMonitor(id, _) => write!(f, "change the health monitor of {id}"),
            Step::RemoveMonitor(id) => write!(f, "delete the health monitor of {id}"),
            Step::AddFloating(_) => f.write_str("associate a floating IP with the VIP"),
            Step::Allocate(_) => f.write_str("allocate a floating IP"),
            Step::Move(id, _) => write!(f, "associate the new floating IP with the VIP instead of {id}"),
            Step::AssociateFloating(id) => write!(f, "associate floating IP {id} with the VIP"),
            Step::Describe(id, _) => write!(f, "set the description of floating IP {id}"),
            Step::TagFloating(_) => f.write_str("tag the floating IP"),
            Step::Detach(id) => write!(f, "detach floating IP {id}"),
            Step::RemoveFloating(id) => write!(f, "delete floating IP {id}"),
            Step::Join(_) => f.write_str("join the shared load balancer"),
            Step::Leave(_, true) => f.write_str("leave the shared load balancer"),
            Step::Leave(_, false) => f.write_str("leave the load balancer to the Services that share it"),
            Step::Delete(id) => write!(f, "delete load balancer {id} with everything in it"),
            Step::RemoveDuplicateLoadBalancer(id) => write!(f, "delete load balancer {id}, a duplicate"),
            Step::RemoveGroup(id) => write!(f, "delete security group {id} of the other controller"),
            Step::Keep(name, _) => write!(f, "store certificate {} in Barbican", last_word(name)),
            Step::Forget(name) => write!(f, "delete certificate {}", last_word(name)),
            Step::Abandon(id) => write!(f, "abandon load balancer {id}, which does not become ready"),
            Step::Failover(id) => write!(f, "fail over load balancer {id}"),
        }
    }
}

fn last_word(name: &str) -> &str {
    name.rsplit(' ').next().unwrap_or(name)
}
