//! One load balancer on this host, served by our own data plane.

mod reply_path;
mod steps;

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
    sync::Arc,
    time::Duration,
};

use seaway_engine::{Context, Driver, Failure, Patch, Report, chain};
use seaway_model::{
    Desired, Kind, ListenerId, LoadBalancer, Name, ObjectRef, Owner, Place, Problem, Reason, Unit,
    fact::Secret,
    load_balancer::{Bind, Certificate},
    outcome::ServingSocket,
    unit::LbKey,
};
use seaway_plan::FRONT_DOOR;
use seaway_proxy::{KeyError, OWN_PROCESS, OpenError, Proxy, RunningLoadBalancer};
use secrecy::{ExposeSecret as _, SecretString};
use tracing::{info, warn};

pub use self::{
    reply_path::{ReplyPath, ReplyPathProblem},
    steps::{Step, steps},
};
use crate::HostPlacement;

pub const DRIVER: &str = "native";

/// A listener whose port is somebody else's is tried again this often.
const TRY_AGAIN: Duration = Duration::from_secs(2);

pub struct Native {
    proxy: Proxy,
    place: Place,
    answers: Arc<ReplyPath>,
}

/// What runs for a Unit, which listeners could not be opened, and which certificates cannot be used.
#[derive(Debug, Default)]
pub struct Observed {
    pub running: RunningLoadBalancer,
    pub spoiled: BTreeMap<(IpAddr, ListenerId), (Owner, Problem)>,
    /// Certificates that cannot be used.
    pub unusable: BTreeMap<ObjectRef, Problem>,
    /// Addresses of pools, at which no port is taken from the machine.
    pub pooled: BTreeSet<IpAddr>,
    /// Why clients' addresses cannot be shown to members, where that is wanted.
    pub unseen: Option<ReplyPathProblem>,
}

impl Native {
    pub fn new(proxy: Proxy, host: Name) -> Native {
        Native { proxy, place: HostPlacement::new(host, DRIVER).place(), answers: Arc::default() }
    }

    /// Shares what it knows of answers that are led back.
    #[must_use]
    pub fn with_answers(self, answers: Arc<ReplyPath>) -> Native {
        Native { answers, ..self }
    }

    fn problems(&self, desired: &Desired, observed: &Observed) -> Vec<(Owner, Problem)> {
        let mut problems: Vec<_> = observed.spoiled.values().cloned().collect();
        if let (Desired::LoadBalancer(wanted), Some(why)) = (desired, &observed.unseen) {
            let owners: BTreeSet<&Owner> =
                wanted.pools.values().filter(|it| it.transparent).map(|it| &it.owner).collect();
            problems.extend(owners.into_iter().map(|owner| (owner.clone(), why.problem(owner))));
        }
        if let Desired::LoadBalancer(wanted) = desired
            && !observed.unusable.is_empty()
        {
            // Whoever's listener names it suffers from it.
            for listener in wanted.listeners.values() {
                let named = listener.tls.as_ref().map(|tls| tls.objects()).unwrap_or_default();
                let unusable = named.iter().filter_map(|name| observed.unusable.get(name));
                problems.extend(unusable.map(|problem| (listener.owner.clone(), problem.clone())));
            }
        }
        problems
    }

    fn open(&self, key: &LbKey, ip: IpAddr, listener: &Arc<seaway_model::Listener>, observed: &mut Observed) {
        let opened = match observed.pooled.contains(&ip) {
            true => self.proxy.open_at_pool_address(key, ip, listener.clone()),
            false => self.proxy.open(key, ip, listener.clone()),
        };
        match opened {
            Ok(()) => {
                let at = ServingSocket { ip, protocol: listener.l4, port: listener.port };
                match self.proxy.lacks_tls(key, ip, listener.id()) {
                    true => warn!(
                        listener = %listener.name,
                        %at,
                        "port opened, but TLS cannot be served there yet: every connection is closed"
                    ),
                    false => info!(listener = %listener.name, %at, "listener opened"),
                }
                observed.running.sockets.insert((ip, listener.id()), listener.clone());
            }
            // Nobody can come by an address that no kernel here knows.
            Err(OpenError::NoFamily { .. }) if ip.is_unspecified() => {}
            Err(error) => {
                let problem = spoiled(ip, listener, &error);
                observed.spoiled.insert((ip, listener.id()), (listener.owner.clone(), problem));
            }
        }
    }
}

impl Driver for Native {
    type Observed = Observed;
    type Step = Step;

    fn serves(&self, unit: &Unit) -> bool {
        matches!(unit, Unit::LoadBalancer(place, _) if *place == self.place)
    }

    fn steps(&self, desired: &Desired, observed: &Observed) -> Vec<Step> {
        match desired {
            Desired::LoadBalancer(wanted) => steps(Some(wanted), &observed.running),
            _ => steps(None, &observed.running),
        }
    }

    async fn observe(&self, _: &Context, unit: &Unit, desired: &Desired) -> Result<Observed, Failure> {
        let running = key(unit).and_then(|key| self.proxy.running(key)).unwrap_or_default();
        let shows = |it: &LoadBalancer| it.pools.values().any(|pool| pool.transparent);
        let unseen = match desired {
            Desired::LoadBalancer(wanted) if shows(wanted) => self.answers.route_replies_back().err(),
            _ => None,
        };
        let pooled = match desired {
            Desired::LoadBalancer(wanted) => pooled(wanted),
            _ => BTreeSet::new(),
        };
        Ok(Observed { running, unseen, pooled, ..Observed::default() })
    }

    async fn apply(
        &self,
        _: &Context,
        unit: &Unit,
        step: &Step,
        observed: &mut Observed,
    ) -> Result<(), Failure> {
        let Some(key) = key(unit) else { return Ok(()) };
        match step {
            Step::PutPool(pool) => {
                self.proxy.put_pool(key, self.answers.servable(pool));
                observed.running.pools.insert(pool.id.clone(), pool.clone());
            }
            Step::RemovePool(id) => {
                self.proxy.remove_pool(key, id);
                observed.running.pools.remove(id);
            }
            Step::PutCertificate(name, certificate) => {
                let is_kept =
                    observed.running.certificates.contains_key(name) && !observed.unusable.contains_key(name);
                let done = self.proxy.put_certificate(key, name, certificate);
                // Tried, and not tried again before it is another.
                Arc::make_mut(&mut observed.running.certificates).insert(name.clone(), certificate.clone());
                if let Err(error) = done {
                    observed.unusable.insert(name.clone(), bad_certificate(name, &error, is_kept));
                }
            }
            Step::RemoveCertificate(name) => {
                self.proxy.remove_certificate(key, name);
                Arc::make_mut(&mut observed.running.certificates).remove(name);
            }
            Step::Open(ip, listener) => self.open(key, *ip, listener, observed),
            Step::Retune(ip, listener) => {
                self.proxy.retune(key, *ip, listener.clone());
                observed.running.sockets.insert((*ip, listener.id()), listener.clone());
            }
            Step::Close(ip, id) => {
                self.proxy.close(key, *ip, *id);
                let at = ServingSocket { ip: *ip, protocol: id.l4, port: id.port };
                let name = observed.running.sockets.remove(&(*ip, *id)).map(|it| it.name.clone());
                info!(listener = %name.unwrap_or_default(), %at, "listener closed");
            }
        }
        Ok(())
    }

    async fn patch(&self, _: &Context, unit: &Unit, patch: &Patch) -> Result<bool, Failure> {
        let Some(key) = key(unit) else { return Ok(false) };
        match patch {
            Patch::Members(pool) => {
                self.proxy.put_pool(key, self.answers.servable(pool));
                Ok(true)
            }
            Patch::Certificate(object, certificate) => {
                Ok(self.proxy.put_certificate(key, object, certificate).is_ok())
            }
        }
    }

    fn conclude(&self, _unit: &Unit, desired: &Desired, observed: &Observed) -> Report {
        let serving: BTreeSet<ServingSocket> = (observed.running.sockets.keys())
            .map(|(ip, id)| ServingSocket { ip: *ip, protocol: id.l4, port: id.port })
            .collect();
        let spoiled = !observed.spoiled.is_empty() || observed.unseen.is_some();
        let again = (spoiled && !desired.is_absent()).then_some(TRY_AGAIN);
        Report {
            serving: serving.into_iter().collect(),
            problems: self.problems(desired, observed),
            again,
            ..Report::default()
        }
    }

    fn width(&self) -> usize {
        // Its calls return at once; more at a time would only queue at the data plane's own lock.
        2
    }
}

fn pooled(wanted: &LoadBalancer) -> BTreeSet<IpAddr> {
    let of_pools = |bind: &Bind| matches!(bind, Bind::Ledger(_)).then(|| bind.ip()).flatten();
    wanted.binds.iter().filter_map(of_pools).collect()
}

/// At the key of a Secret, or at the file, that holds it.
pub fn bad_certificate(object: &ObjectRef, error: &KeyError, is_kept: bool) -> Problem {
    let message = format!("the certificate cannot be used for TLS: {}", chain(error));
    let problem = Problem::new(object.clone(), Reason::BadCertificate, message)
        .fix(Certificate::fix(object, "tls.crt", is_kept));
    match object.kind {
        Kind::File => problem.in_file(object.name.clone(), 0, 0),
        _ => problem.at("data[tls.crt]"),
    }
}

/// What is wrong with a certificate and its key that nothing uses yet. What cannot be read at all is told by whoever reads it.
pub fn unusable_secret(secret: &Secret) -> Option<Problem> {
    let text = |key: &str| secret.values.get(key).map(SecretString::expose_secret).unwrap_or_default();
    let (chain, key) = (text("tls.crt"), text("tls.key"));
    if !chain.contains("CERTIFICATE-----") || !key.contains("KEY-----") {
        return None;
    }
    let certificate = Certificate {
        chain: chain.into(),
        key: key.to_owned().into(),
        authorities: Name::default(),
        staple: None,
        users: String::new().into(),
    };
    let error = seaway_proxy::look_at(&Arc::new(certificate)).err()?;
    Some(bad_certificate(&secret.object, &error, false))
}

fn key(unit: &Unit) -> Option<&LbKey> {
    match unit {
        Unit::LoadBalancer(_, key) => Some(key),
        _ => None,
    }
}

/// What to tell about a listener that could not be opened.
fn spoiled(ip: IpAddr, listener: &seaway_model::Listener, error: &OpenError) -> Problem {
    let (reason, fix) = match error {
        OpenError::Foreign { holder, .. } if holder == OWN_PROCESS => (
            Reason::PortInUse,
            "Another listener of Seaway has it, such as the status page (admin.listen) or another Service: choose another port."
                .to_owned(),
        ),
        OpenError::Foreign { .. } => (
            Reason::PortInUse,
            // Without rights over others, a host cannot name it.
            format!(
                "Stop that process (as root, ss -tulpn sport = :{} names it), or choose another port. Seaway tries \
                     again every 2 seconds.",
                listener.id().port
            ),
        ),
        OpenError::Denied { .. } => (
            Reason::NotPermitted,
            "Ports below 1024 need a capability: setcap cap_net_bind_service,cap_net_admin+ep seaway, \
             or AmbientCapabilities=CAP_NET_BIND_SERVICE CAP_NET_ADMIN in its unit."
                .to_owned(),
        ),
        OpenError::Reserved { .. } => (
            Reason::NotPermitted,
            "Choose another port; or give seaway the capability NET_ADMIN on a kernel with nft_tproxy (modprobe nft_tproxy)."
                .to_owned(),
        ),
        OpenError::OverShare { .. } => (
            Reason::LimitReached,
            "Remove ports of Services of this namespace, or raise the limit of open files: ulimit -n, or LimitNOFILE= in its \
             unit. Seaway tries again every 2 seconds."
                .to_owned(),
        ),
        OpenError::Exhausted { .. } => (
            Reason::NotPermitted,
            "Raise the limit of open files: ulimit -n, or LimitNOFILE= in its unit.".to_owned(),
        ),
        _ => (Reason::Failed, String::new()),
    };
    let id = listener.id();
    // What the configuration asked for, it can ask for elsewhere.
    let elsewhere = match &listener.owner {
        Owner::Config(key) if key.starts_with("frontDoor.") => {
            " Or give the entrance another port in seaway.yaml: frontDoor.entrances."
        }
        Owner::Config(key) if **key == *FRONT_DOOR => {
            " Or give it another port in seaway.yaml: frontDoor: {port: 8080}. frontDoor: {enabled: false} turns the front door off."
        }
        _ => "",
    };
    let object = listener.owner.object();
    let field = if object.kind == Kind::Service { "spec.ports" } else { "" };
    Problem::new(object, reason, format!("{id} on {ip} cannot be served: {}", chain(error)))
        .at(field)
        .fix(format!("{fix}{elsewhere}"))
}
