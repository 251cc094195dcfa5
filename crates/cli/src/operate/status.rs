//! `seaway status`: what a running process serves, what is wrong, and what an operator set.

use std::{collections::BTreeMap, process::ExitCode};

use anyhow::Result;
use seaway_admin::{
    View,
    view::{BgpPeerView, PoolView, Readiness, ServiceView},
};
use seaway_model::MemberWeights;
use seaway_plan::FRONT_DOOR;

use super::{Request, client::ControlClient, target::owner};
use crate::{args::Output, output};

pub(super) fn print(process: &ControlClient, form: Output) -> Result<ExitCode> {
    let (server, view) = process.status_page()?;
    let weights = match process.ask(&Request::Weights) {
        Ok(reply) => reply.weights,
        // It takes no commands any more, and still says which connections it waits for.
        Err(_) if view.readiness == Readiness::Stopping => MemberWeights::default(),
        Err(error) => return Err(error),
    };
    match form {
        Output::Table => {
            let pages: Vec<String> = server.status_page.iter().map(|at| format!("http://{at}/")).collect();
            output::line(&format!(
                "seaway {} on {}, {}, serves {}",
                view.version,
                view.host,
                readiness(&view.readiness),
                server.manifests
            ));
            output::line(&format!("status page: {}", pages.join(", ")));
            output::line("");
            output::line(text(&view, &weights).trim_end());
        }
        Output::Json => {
            let told = serde_json::json!({"server": server, "view": view, "weights": weights});
            output::line(&serde_json::to_string_pretty(&told)?);
        }
    }
    Ok(if view.readiness == Readiness::Ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn readiness(readiness: &Readiness) -> String {
    match readiness {
        Readiness::Ready => "ready".to_owned(),
        Readiness::Starting => "starting".to_owned(),
        Readiness::Stopping => "stopping".to_owned(),
        Readiness::Waiting { why } => why.clone(),
    }
}

fn text(view: &View, weights: &MemberWeights) -> String {
    let rows = rows(view);
    let mut text = match rows.is_empty() {
        true => "no Service is served\n".to_owned(),
        false => output::table(&["SERVICE", "LISTENS", "MEMBERS", "CONNECTIONS"], &rows),
    };
    if !weights.0.is_empty() {
        text.push_str(
            "\nset at run time, instead of the weights of the manifests (to undo: seaway reset):\n",
        );
        for set in &weights.0 {
            let weight = match set.weight {
                0 => "weight 0: no new clients".to_owned(),
                weight => format!("weight {weight}"),
            };
            text.push_str(&format!("  {}  {weight}\n", set.of));
        }
    }
    if !view.bgp.is_empty() {
        text.push_str("\nBGP sessions:\n");
        view.bgp.iter().for_each(|it| text.push_str(&format!("  {}\n", session(it))));
    }
    if !view.problems.is_empty() {
        text.push_str("\nproblems:\n");
        for problem in &view.problems {
            text.push_str(&format!("  {problem}\n"));
        }
    }
    text
}

fn session(peer: &BgpPeerView) -> String {
    let bfd = match peer.bfd_up {
        Some(true) => ", BFD up",
        Some(false) => ", BFD down",
        None => "",
    };
    let detail = if peer.detail.is_empty() { String::new() } else { format!(": {}", peer.detail) };
    format!("{} {}, prefixes: {}{bfd}{detail}", peer.peer, peer.state, peer.prefixes)
}

/// A row for each Service; what the front door has for several is each one's.
fn rows(view: &View) -> Vec<Vec<String>> {
    let mut by_service: BTreeMap<String, (Vec<String>, Vec<&PoolView>)> = BTreeMap::new();
    let mut shared: Vec<Vec<String>> = Vec::new();
    for service in &view.services {
        let at = listens(service);
        let is_shared = service.namespace.is_empty();
        if is_shared {
            let name = if service.name == FRONT_DOOR { "front door" } else { &service.name };
            shared.push(vec![name.to_owned(), shown(&at), String::new(), String::new()]);
        } else {
            by_service.entry(format!("{}/{}", service.namespace, service.name)).or_default().0.extend(at);
        }
        for pool in &service.pools {
            let (at, pools) = by_service.entry(owner(service, pool)).or_default();
            let front_door = "front door".to_owned();
            if is_shared && !at.contains(&front_door) {
                at.push(front_door);
            }
            pools.push(pool);
        }
    }
    let rows = by_service.into_iter().map(|(name, (at, pools))| {
        let all: usize = pools.iter().map(|pool| pool.members.len()).sum();
        let usable: usize = pools.iter().map(|pool| pool.usable()).sum();
        let open: u64 = pools.iter().flat_map(|pool| &pool.members).map(|it| it.sessions.current).sum();
        vec![name, shown(&at), format!("{usable} of {all} usable"), open.to_string()]
    });
    let mut rows: Vec<Vec<String>> = rows.collect();
    rows.extend(shared);
    rows
}

/// A Service whose listeners are all closed is nowhere, and its Problem says why.
fn shown(at: &[String]) -> String {
    if at.is_empty() { "-".to_owned() } else { at.join(", ") }
}

fn listens(service: &ServiceView) -> Vec<String> {
    let serving = service.listeners.iter().filter(|it| it.serving);
    serving.map(|it| format!("{}/{}", std::net::SocketAddr::new(it.address, it.port), it.protocol)).collect()
}

#[cfg(test)]
mod tests {
    use seaway_model::{L4, load_balancer::Balance};

    use super::*;

    #[test]
    fn a_service_without_an_open_listener_is_at_no_address_and_not_at_the_front_door() {
        let view = |listeners: serde_json::Value, namespace: &str, name: &str, pool: &str| {
            serde_json::json!({
                "owner": name, "namespace": namespace, "name": name, "addresses": [], "listeners": listeners,
                "pools": [{
                    "id": pool, "service": "", "protocol": L4::Tcp, "balance": Balance::RoundRobin, "panic": false,
                    "noMember": 0, "members": []
                }]
            })
        };
        let read = |all: Vec<serde_json::Value>| {
            let services = serde_json::from_value(all.into()).expect("views of Services");
            rows(&View { services, ..View::default() })
        };
        let rows = read(vec![
            view(serde_json::json!([]), "default", "closed", "default/closed:80"),
            view(serde_json::json!([]), "", "frontDoor", "default/web:80"),
        ]);
        let shown: Vec<(&str, &str)> = rows.iter().map(|it| (it[0].as_str(), it[1].as_str())).collect();
        assert_eq!(shown, [("default/closed", "-"), ("default/web", "front door"), ("front door", "-")]);
    }
}
