//! Load balancers as HAProxy serves them, and a Problem for what it cannot.
//!
//! Where something restricts who is served and HAProxy cannot do it, what it guards is answered by 503: without it, a
//! wider rule would serve these requests.

mod backends;
mod filters;
mod frontends;
mod respelled;
mod routes;
mod settings;
mod slots;
mod spare;
mod tls;

pub use self::backends::{changed_members, members_in_slots};

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};

use seaway_model::{
    Kind, LoadBalancer, Name, ObjectRef, Owner, Problem, Reason, config::ReservedPorts, load_balancer::Trust,
};

use self::backends::PreviousBackends;
use crate::{
    document::{Backend, Document, Global, ImmediateResponse, Origins, Settings},
    version::Version,
    words::{Label, Text},
};

/// What is to be served, on which HAProxy.
#[derive(Clone, Copy, Debug)]
pub struct ConfigInput<'a> {
    pub load_balancers: &'a BTreeMap<Owner, Arc<LoadBalancer>>,
    pub version: Version,
    pub global: &'a Global,
    pub unusable: &'a Exclusions,
    /// What was served before: members keep their slots, and a new pool takes a spare backend.
    pub before: Option<&'a Document>,
}

/// What cannot be used, and is left out: HAProxy would refuse the whole file because of one.
#[derive(Clone, Debug, Default)]
pub struct Exclusions {
    /// Objects, because of their certificate or key.
    pub certificates: BTreeSet<ObjectRef>,
    /// Texts in which not each certificate of an authority can be read.
    pub authorities: BTreeSet<Name>,
    /// Ports that the machine needs itself: they are not opened at addresses of pools. Of a host of a cluster.
    pub ports: Option<ReservedPorts>,
}

/// The same for the same values, whatever their order in time was, but for what `before` keeps in its place.
pub fn document(wanted: ConfigInput<'_>) -> (Document, Vec<(Owner, Problem)>) {
    let document = Document {
        version: wanted.version,
        global: wanted.global.clone(),
        frontends: BTreeMap::new(),
        backends: BTreeMap::new(),
        maps: BTreeMap::new(),
        crt_lists: BTreeMap::new(),
        certificates: BTreeMap::new(),
        authorities: BTreeMap::new(),
        pages: BTreeMap::new(),
        origins: Origins::default(),
    };
    let mut work = DocumentBuilder {
        wanted,
        document,
        problems: Vec::new(),
        taken: BTreeSet::new(),
        names: BTreeMap::new(),
        before: wanted.before.map(PreviousBackends::of).unwrap_or_default(),
    };
    for (owner, load_balancer) in wanted.load_balancers {
        work.load_balancer(owner, load_balancer);
    }
    work.fill_spares();
    let mut problems = work.problems;
    problems.sort_unstable();
    problems.dedup();
    (work.document, problems)
}

/// Texts of authorities that HAProxy would read for it.
pub fn authorities(load_balancer: &LoadBalancer) -> BTreeSet<&Name> {
    let of_members =
        load_balancer.pools.values().filter_map(|pool| match pool.tls.as_ref().map(|it| &it.trust) {
            Some(Trust::CaBundle(text)) => Some(text),
            _ => None,
        });
    let of_clients = load_balancer.certificates.values().map(|it| &it.authorities);
    of_members.chain(of_clients).filter(|it| !it.is_empty()).collect()
}

/// A [`Document`] that is being made.
struct DocumentBuilder<'a> {
    wanted: ConfigInput<'a>,
    document: Document,
    problems: Vec<(Owner, Problem)>,
    /// Sockets that a frontend has.
    taken: BTreeSet<SocketAddr>,
    /// Backends by what they serve.
    names: BTreeMap<String, Label>,
    before: PreviousBackends<'a>,
}

/// The backend that answers 503 for what must not be served otherwise.
const UNAVAILABLE: &str = "unavailable";

impl DocumentBuilder<'_> {
    fn unsupported(&mut self, owner: &Owner, option: &str, what: impl Into<String>) {
        self.problem(owner, option, Reason::Unsupported, what.into());
    }

    fn problem(&mut self, owner: &Owner, option: &str, reason: Reason, what: String) {
        let problem = Problem::new(owner.object(), reason, what).at(field(owner, option));
        let problem = problem.fix(match reason {
            Reason::NoSuchSecret => "Create or correct the Secret that the setting names.",
            _ => "Remove the setting, or let the native data plane serve this: docs/haproxy.md.",
        });
        self.problems.push((owner.clone(), problem));
    }

    fn unavailable(&mut self) -> Label {
        let name = Label::of(UNAVAILABLE);
        self.document.backends.entry(name.clone()).or_insert_with(|| Backend {
            serves: UNAVAILABLE.into(),
            about: about("what HAProxy cannot serve: docs/haproxy.md"),
            settings: Settings {
                is_http: true,
                answer: Some(ImmediateResponse::Return { code: 503, page: None }),
                ..Settings::default()
            },
            slots: Vec::new(),
        });
        name
    }

    fn page(&mut self, body: &Name) -> Label {
        let name = Label::of(&crate::words::digest(body));
        self.document.pages.insert(name.clone(), body.clone());
        name
    }
}

/// For the reader of the file; a text that cannot stand in a comment is left out.
fn about(text: &str) -> Text {
    Text::new(text).unwrap_or_default()
}

/// `default/shop` is `default.shop`: no name of a namespace or Service has a dot of its own. Others are made unlike all.
fn readable(text: &str) -> Label {
    let plain: String = text.replace(['/', '['], ".").replace(']', "");
    if text.contains('.') { Label::of(&format!("{text}/")) } else { Label::of(&plain) }
}

/// A Service is called by its name alone.
fn called(owner: &Owner) -> String {
    match owner.object() {
        it if it.kind == Kind::Service => format!("{}/{}", it.namespace, it.name),
        it if it.namespace.is_empty() => it.name.to_string(),
        it => format!("{}/{}/{}", it.kind, it.namespace, it.name),
    }
}

/// Where an owner says it: an option is an annotation of a Service and of a route; of ports and rules, the part itself.
fn field(owner: &Owner, option: &str) -> Name {
    match (owner.object().kind, option) {
        (_, option) if option.starts_with("spec.") => option.into(),
        (Kind::Service | Kind::HTTPRoute, "") | (Kind::Config, _) => Name::default(),
        (_, option) => format!("metadata.annotations[seaway.dev/{option}]").into(),
    }
}
