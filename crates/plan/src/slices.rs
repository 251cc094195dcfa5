//! What of EndpointSlices is not used, told with the reason: most slices in a folder were written by hand.

use std::{fmt::Write as _, sync::Arc};

use seaway_model::{
    Kind, Name, ObjectRef, Problem, ProblemDetail, Reason,
    fact::{EndpointPort, Endpoints, TargetPort},
    load_balancer::L4,
};

use crate::{
    annotations::BACKENDS,
    demand::{Demand, DemandPort},
    index::ServiceKey,
    members::{Members, WEIGHT, has_port},
    spelling::nearest,
    world::World,
};

const BACKENDS_FIELD: &str = "metadata.annotations[seaway.dev/backends]";

/// Of one port of a Service: annotations that say nothing, and slices that lead nowhere though others of it do.
pub(crate) fn problems(demand: &Demand, wanted: &DemandPort, found: &Members) -> Vec<Problem> {
    let object = demand.owner.object();
    let problem =
        |reason, message: String| Problem::new(object.clone(), reason, message).at(wanted.field.clone());
    let about = |slice: &Name, field: Name| {
        let slice = ObjectRef::new(Kind::EndpointSlice, object.namespace.clone(), slice.clone());
        ProblemDetail::Field(slice, field)
    };
    let annotation = |key: &str| Name::from(format!("metadata.annotations[{key}]"));
    let mut problems = Vec::new();
    for (slice, text) in &found.bad_weights {
        let message =
            format!("EndpointSlice {slice}: {WEIGHT} {text:?} is not a whole number from 0 to 1000000");
        let problem = problem(Reason::BadAnnotation, message).about(about(slice, annotation(WEIGHT)));
        problems.push(problem.fix(
            "Write such a number, in quotes; weight 0 gets no new clients. Until then its endpoints have weight 1, or 1000000 if the number is larger.",
        ));
    }
    for at in &found.twice {
        let counts = found.list.iter().find(|it| it.at == *at);
        let weight = counts.map(|it| format!(", with weight {}", it.weight)).unwrap_or_default();
        let message = format!("{at} is written twice: it counts once{weight}");
        let problem = Problem::new(object.clone(), Reason::Duplicate, message).at(BACKENDS_FIELD);
        problems
            .push(problem.fix(
                "Remove one of the two. For a larger share of the clients, give it a weight: weight=2.",
            ));
    }
    for (slice, key) in &found.unknown_annotations {
        let message =
            format!("EndpointSlice {slice}: the annotation {key} has no effect on an EndpointSlice");
        let problem = problem(Reason::BadAnnotation, message).about(about(slice, annotation(key)));
        problems.push(problem.fix(match nearest(key, &[WEIGHT]) {
            Some(name) => format!("Did you mean {name}?"),
            None => format!("Write it on the Service, or remove it: an EndpointSlice has {WEIGHT} only."),
        }));
    }
    for (slice, name) in misspelt(demand, wanted, found) {
        let meant = &wanted.port.name;
        let message = format!(
            "EndpointSlice {slice} has no port {:?}: its endpoints are not used for it",
            meant.as_str()
        );
        let fix = format!(
            "The slice has a port {:?}, which the Service does not have. Did you mean {:?}?",
            name.as_str(),
            meant.as_str()
        );
        problems.push(problem(Reason::NoSuchPort, message).about(about(slice, "ports".into())).fix(fix));
    }
    // A demand may be of one port alone; slices are of the Service.
    let is_first = demand.ports.first().is_some_and(|it| it.field == wanted.field);
    if !found.by_hand || found.list.is_empty() || !is_first {
        return problems;
    }
    let unused =
        found.portless.iter().filter(|(_, ports)| !demand.service.ports.iter().any(|it| has_port(ports, it)));
    for (slice, ports) in unused {
        let message =
            format!("EndpointSlice {slice} has no port of this Service: its endpoints are not used");
        let problem = problem(Reason::NoSuchPort, message).about(about(slice, "ports".into()));
        problems.push(problem.fix(format!(
            "EndpointSlices are matched by port name, then by target port. The Service has {}; this slice has {}.",
            wanted_ports(demand),
            listed(ports)
        )));
    }
    problems
}

/// Slices with a port whose name is nearly that of one that they lack: of other ports of theirs nothing is said, for what
/// people write may have more than a Service uses.
fn misspelt<'m>(
    demand: &'m Demand,
    wanted: &'m DemandPort,
    found: &'m Members,
) -> impl Iterator<Item = (&'m Name, &'m Name)> {
    let ports = &demand.service.ports;
    let is_told_elsewhere = !found.by_hand || found.list.is_empty() || wanted.port.name.is_empty();
    let slices = found.portless.iter().filter(move |_| !is_told_elsewhere);
    let in_use = slices.filter(move |(_, its)| ports.iter().any(|it| has_port(its, it)));
    in_use.flat_map(move |(slice, its)| {
        let unknown =
            its.iter().filter(move |it| !ports.iter().any(|port| has_port(std::slice::from_ref(*it), port)));
        let near = unknown.filter(move |it| nearest(&it.name, &[wanted.port.name.as_str()]).is_some());
        near.map(move |it| (slice, &it.name))
    })
}

fn wanted_ports(demand: &Demand) -> String {
    let all: Vec<String> = (demand.service.ports.iter())
        .map(|port| format!("{:?} with target port {}", port.name.as_str(), target(&port.target)))
        .collect();
    all.join(", ")
}

/// `8080`, or `"web"`.
pub(crate) fn target(target: &TargetPort) -> String {
    match target {
        TargetPort::Number(number) => number.to_string(),
        TargetPort::Name(name) => format!("{:?}", name.as_str()),
    }
}

/// `8080/TCP "web", 53/UDP ""`
pub(crate) fn listed(ports: &[EndpointPort]) -> String {
    let mut text = String::new();
    for EndpointPort { name, protocol, port } in ports {
        let number = port.map_or("every port".to_owned(), |it| it.to_string());
        let before = if text.is_empty() { "" } else { ", " };
        let _ = write!(text, "{before}{number}/{} {:?}", L4::as_str(*protocol), name.as_str());
    }
    if text.is_empty() { "none".to_owned() } else { text }
}

/// Slices that were probably meant for this Service: they name one that is not there, in nearly the same word, or are called as
/// its slices are.
pub(crate) fn nearly_of<'w>(
    world: &'w World,
    key: &'w ServiceKey,
) -> impl Iterator<Item = &'w Arc<Endpoints>> {
    let index = world.index();
    let lost = index.all_endpoints().filter(move |(its, _)| {
        its.namespace == key.namespace && *its != key && index.service(its).is_none()
    });
    lost.flat_map(move |(its, slices)| {
        let is_near = nearest(&its.name, &[key.name.as_str()]).is_some();
        slices.filter(move |slice| {
            let is_called_so =
                slice.object.name.strip_prefix(key.name.as_str()).is_some_and(|it| it.starts_with('-'));
            is_near || is_called_so
        })
    })
}

/// Slices of Services that are not there. In a cluster that is so for a moment whenever a Service is deleted, so it is for
/// whoever checks a folder.
pub fn without_service(world: &World) -> Vec<Problem> {
    let index = world.index();
    let mut problems: Vec<Problem> = Vec::new();
    for (key, slices) in index.all_endpoints().filter(|(key, _)| index.service(key).is_none()) {
        let names: Vec<Name> = (index.services())
            .filter(|(it, _)| it.namespace == key.namespace)
            .map(|(it, _)| it.name.clone())
            .collect();
        let names: Vec<&str> = names.iter().map(Name::as_str).collect();
        let ServiceKey { namespace, name } = key;
        for slice in slices {
            let object: ObjectRef = slice.object.clone();
            let message = format!("there is no Service {namespace}/{name}: its endpoints are not used");
            let problem = Problem::new(object, Reason::NoSuchService, message)
                .at("metadata.labels[kubernetes.io/service-name]");
            problems.push(match nearest(name, &names) {
                Some(near) => {
                    let meant = ObjectRef::new(Kind::Service, namespace.clone(), near);
                    problem.about(ProblemDetail::Meant(meant)).fix(format!("Did you mean {near}?"))
                }
                None => problem.fix("Create the Service, or delete the EndpointSlice."),
            });
        }
    }
    problems.sort();
    problems
}

/// The line that would end the Problem in a folder, and the manifest that would anywhere.
pub(crate) fn slice_to_write(demand: &Demand) -> String {
    let meta = &demand.service.meta;
    let port = match demand.ports.as_slice() {
        [DemandPort { port, .. }] => match &port.target {
            TargetPort::Number(number) => format!(":{number}"),
            TargetPort::Name(_) => ":8080".to_owned(),
        },
        _ => String::new(),
    };
    let mut text = format!(
        "In a folder, name its backends in metadata.annotations, yours in place of 192.0.2.1: {BACKENDS}: \"192.0.2.1{port}\". \
         In a cluster, write an EndpointSlice:\n\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: {name}-1\n  namespace: {namespace}\n  labels:\n    kubernetes.io/service-name: {name}\naddressType: IPv4\nendpoints:\n- addresses: [192.0.2.1]   # yours\nports:\n",
        name = meta.name,
        namespace = meta.namespace,
    );
    for DemandPort { port, .. } in &demand.ports {
        let number = match &port.target {
            TargetPort::Number(number) => number.to_string(),
            TargetPort::Name(name) => format!("{}   # the number of {name}", port.port),
        };
        let name = if port.name.is_empty() { String::new() } else { format!("name: {}\n  ", port.name) };
        let _ = writeln!(text, "- {name}protocol: {}\n  port: {number}", port.protocol);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_a_slice_are_listed_with_number_protocol_and_name() {
        let port = |name: &str, port| EndpointPort { name: name.into(), protocol: L4::Tcp, port };
        assert_eq!(listed(&[port("web", Some(80)), port("", None)]), "80/TCP \"web\", every port/TCP \"\"");
        assert_eq!(listed(&[]), "none");
    }
}
