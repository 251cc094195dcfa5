//! Addresses that `host.addresses` names and that no interface of this machine has: sockets can be bound there all the same,
//! and no client arrives.

use std::{net::IpAddr, sync::Arc};

use seaway_model::{Change, Kind, ObjectRef, Problem, Reason};
use seaway_node::Host;

/// What is missing, as it was reported last.
pub(super) struct MissingAddresses {
    host: Arc<Host>,
    reported: Vec<IpAddr>,
}

impl MissingAddresses {
    pub(super) fn of(host: &Arc<Host>) -> MissingAddresses {
        MissingAddresses { host: host.clone(), reported: Vec::new() }
    }

    /// Nothing if it is as it was.
    pub(super) fn check_again(&mut self) -> Option<Change> {
        let now = self.host.missing_addresses().ok()?;
        if now == self.reported {
            return None;
        }
        self.reported = now;
        Some(report(&self.reported))
    }
}

fn report(missing: &[IpAddr]) -> Change {
    let object = ObjectRef::new(Kind::Config, "", "host.addresses");
    let problem = |ip: &IpAddr| {
        let message = format!("no interface of this machine has {ip}: clients do not reach Services there");
        Problem::new(object.clone(), Reason::AddressMissing, message).fix(format!(
            "Put {ip} on an interface (ip address add): clients then reach it without a restart; or correct host.addresses in \
             seaway.yaml and restart Seaway."
        ))
    };
    Change::Reported(object.clone(), missing.iter().map(problem).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_address_that_is_missing_is_a_problem_with_what_to_do() {
        let Change::Reported(object, problems) = report(&[[192, 0, 2, 9].into(), [192, 0, 2, 10].into()])
        else {
            panic!("it is a report")
        };
        assert_eq!(object.to_string(), "Config host.addresses");
        assert_eq!(problems.len(), 2);
        assert!(
            problems[0].message.contains("192.0.2.9") && problems[0].fix.contains("192.0.2.9"),
            "{problems:?}"
        );
        let Change::Reported(_, none) = report(&[]) else { panic!("it is a report") };
        assert!(none.is_empty());
    }
}
