//! The front door, for people: who is there under which paths and host names, and who came too late.

use std::net::SocketAddr;

use seaway_model::{
    ObjectRef, Problem,
    load_balancer::{Action, Rule},
};

use super::{FrontDoor, claims::Claim, guest::Guest, told::Lost};

/// What `seaway plan` prints.
#[derive(Clone, Debug)]
pub struct FrontDoorView {
    /// Where it is; nowhere, while it has not been given its addresses.
    pub at: Vec<SocketAddr>,
    pub entrances: Vec<Entrance>,
}

/// One guest, as it is reached.
#[derive(Clone, Debug)]
pub struct Entrance {
    pub object: ObjectRef,
    /// Paths and host names, each with what it leads to: `/shop` ─► `default/shop:80`.
    pub leads: Vec<(String, String)>,
    pub members: usize,
    pub lost: Vec<Lost>,
    pub problems: Vec<Problem>,
}

impl FrontDoor {
    /// In the order of their rules.
    pub(crate) fn entrances(&self) -> Vec<Entrance> {
        let entrance = |(rank, guest): (_, &Guest)| {
            let told = self.told(&guest.owner)?;
            let lost = self.lost(rank, guest);
            let kept = |claim: &String| !lost.iter().any(|it| it.claims.contains(claim));
            let leads = guest.rules.iter().flat_map(leads).filter(|(claim, _)| kept(claim)).collect();
            Some(Entrance {
                object: guest.owner.object(),
                leads,
                members: told.members,
                lost,
                problems: told.problems,
            })
        };
        self.guests.iter().filter_map(entrance).collect()
    }
}

fn leads(rule: &Rule) -> Vec<(String, String)> {
    let to = match &rule.action {
        Action::Forward(pools) => match pools.as_slice() {
            [(only, _)] => only.to_string(),
            several => {
                let each: Vec<String> =
                    several.iter().map(|(id, weight)| format!("{id} ({weight})")).collect();
                each.join(", ")
            }
        },
        Action::Redirect(redirect) => format!("redirect {}", redirect.code),
        Action::Respond { code, .. } => format!("answer {code}"),
    };
    let hosts = rule.hosts.iter().map(Some).chain(rule.hosts.is_empty().then_some(None));
    let claims =
        hosts.flat_map(|host| rule.matches.iter().map(move |asked| Claim::new(host, asked).to_string()));
    claims.map(|claim| (claim, to.clone())).collect()
}
