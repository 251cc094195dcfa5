//! The addresses of our pools on this host: on `lo`, marked as ours, and silent towards the network. Where a pool says so, another
//! part of the process answers for them (`node/layer2.rs`).
//!
//! Addresses that are local already need nothing. The calls block for as long as the kernel takes for one message.

mod announced;
mod guarding;
mod steps;

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use ipnet::IpNet;
use seaway_announce::{
    ARP_DEFAULTS, AddOutcome, ArpSettings, Error, Links, ObservedLinks as Kernel, RemovableAddress, Steering,
    UnmetSetting,
};
use seaway_engine::{Context, Driver, Failure, Report};
use seaway_model::{
    Desired, Fact, Name, Problem, Reason, Unit, bgp::BgpReport, fact::HostReport, layer2::Layer2State,
    unit::HostAddresses,
};
use tracing::{info, warn};

use self::{announced::AnnouncementState, guarding::FirewallGuard};
pub use self::{
    announced::{AFTER_WITHDRAWAL, AFTER_WITHDRAWAL_OF_ROUTES},
    steps::{Step, steps},
};

/// Makes the settings where a host may not do it when it serves.
const PREPARE: &str = "`seaway node --prepare`";

/// What could not be done is tried again this often: somebody may have typed the commands.
const TRY_AGAIN: Duration = Duration::from_secs(5);

/// What is over so soon may be done as often as it likes.
const NOTHING: Duration = Duration::from_millis(5);
const LONGEST_REST: Duration = Duration::from_secs(1);

pub struct Presence {
    host: Name,
    /// The host's own addresses as the configuration names them; empty: those that are found.
    named: Vec<IpAddr>,
    arp: ArpSettings,
    /// What we added, for kernels that keep no mark.
    recorded: Mutex<HashSet<IpAddr>>,
    /// What was desired last; nothing yet, at the start.
    wanted: Mutex<Option<HostAddresses>>,
    /// The settings that could not be made, as they were told last.
    told: Mutex<Vec<UnmetSetting>>,
    /// What we put there, as it was looked at last.
    marked: Mutex<BTreeSet<IpAddr>>,
    /// What is said of addresses that are announced.
    announced: Mutex<AnnouncementState>,
    /// Whether what we put there answers at our ports alone.
    guarding: Option<FirewallGuard>,
}

/// What is on this host.
#[derive(Debug, Default)]
pub struct Observed {
    kernel: Kernel,
    /// What sockets may bind, to be asked for each of many.
    local: HashSet<IpAddr>,
    ours: BTreeMap<IpAddr, RemovableAddress>,
    /// ARP settings that do not hold on the interfaces that are up.
    pub unmet: Vec<UnmetSetting>,
    /// What could not be added, and why.
    pub denied: BTreeMap<IpAddr, AddressRejection>,
}

#[derive(Clone, Debug)]
pub struct AddressRejection {
    pub reason: Reason,
    pub message: String,
    pub fix: String,
}

impl AddressRejection {
    /// The message is one line; what to type stands below it.
    fn by(error: &Error) -> AddressRejection {
        let (reason, message, fix) = match error {
            Error::NotPermitted { doing, commands } => (
                Reason::NotPermitted,
                format!("{doing} needs the Linux capability NET_ADMIN"),
                format!(
                    "As root, either for good:\n  setcap cap_net_admin,cap_net_bind_service+ep seaway\nor by hand:\n  {}",
                    commands.join("\n  ")
                ),
            ),
            Error::NoIpv6 { doing } => (
                Reason::NotPermitted,
                format!("{doing} needs IPv6 on lo"),
                "As root:\n  sysctl -w net.ipv6.conf.lo.disable_ipv6=0".to_owned(),
            ),
            _ => (Reason::Failed, error.to_string(), String::new()),
        };
        AddressRejection { reason, message, fix }
    }
}

impl Presence {
    pub fn new(host: Name, named: Vec<IpAddr>, recorded: impl IntoIterator<Item = IpAddr>) -> Presence {
        let recorded = Mutex::new(recorded.into_iter().collect());
        Presence {
            host,
            named,
            arp: ArpSettings::default(),
            recorded,
            wanted: Mutex::default(),
            told: Mutex::default(),
            marked: Mutex::default(),
            announced: Mutex::default(),
            guarding: None,
        }
    }

    /// From the first address on, they answer at our ports alone, and at some by a socket that is bound elsewhere.
    #[must_use]
    pub fn guarded(self, steering: Arc<Steering>) -> Presence {
        Presence { guarding: Some(FirewallGuard::new(steering)), ..self }
    }

    /// What this host says of itself now.
    pub fn report(&self) -> Result<HostReport, Error> {
        Ok(self.report_of(&self.look()?))
    }

    /// Addresses that the configuration names as the host's own, and that none of its interfaces has now.
    pub fn missing(&self) -> Result<Vec<IpAddr>, Error> {
        if self.named.is_empty() {
            return Ok(Vec::new());
        }
        let observed = self.look()?;
        let is_missing = |ip: &&IpAddr| !ip.is_unspecified() && !observed.is_local(**ip);
        Ok(self.named.iter().filter(is_missing).copied().collect())
    }

    /// Whether that is news.
    pub fn note_layer2(&self, states: BTreeMap<IpAddr, Layer2State>) -> bool {
        self.announced().note_layer2(states)
    }

    /// Whether that is news.
    pub fn note_bgp(&self, report: BgpReport) -> bool {
        self.announced().note_bgp(report)
    }

    /// What is reported now is to be reported again, [`AFTER_WITHDRAWAL`] later.
    pub fn has_withdrawn(&self) -> bool {
        self.announced().has_withdrawn()
    }

    pub fn layer2(&self) -> BTreeMap<IpAddr, Layer2State> {
        self.announced().layer2.clone()
    }

    pub fn bgp(&self) -> BgpReport {
        self.announced().bgp.clone()
    }

    fn announced(&self) -> MutexGuard<'_, AnnouncementState> {
        self.announced.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// We put it there; what was local before is not ours.
    pub fn is_ours(&self, ip: IpAddr) -> bool {
        self.marked.lock().unwrap_or_else(PoisonError::into_inner).contains(&ip)
    }

    fn report_of(&self, observed: &Observed) -> HostReport {
        *self.marked.lock().unwrap_or_else(PoisonError::into_inner) = observed.ours.keys().copied().collect();
        let ours = observed.ours.keys().copied();
        let (holds, applied, epoch) = match &*self.wanted.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(wanted) => {
                let there = wanted.addresses.keys().copied().filter(|ip| observed.is_local(*ip));
                // What could not be taken away is still here.
                (there.chain(ours).collect(), wanted.as_of, wanted.epoch)
            }
            // What a predecessor left here: it counts as held until it is decided about.
            None => (ours.collect(), 0, 0),
        };
        let networks = self.networks(observed);
        let mut announced = self.announced();
        HostReport {
            host: self.host.clone(),
            addresses: self.own(observed),
            holds,
            applied,
            epoch,
            layer2: announced.reported_layer2(),
            bgp: announced.reported_bgp(),
            networks,
            ..HostReport::default()
        }
    }

    /// Takes away whatever is ours: at a clean stop, never at a hand-over. The ARP settings stay, because it is not known who else
    /// needs them by now.
    pub fn clear(&self) -> Result<(), Error> {
        let mut links = Links::open()?;
        let mut needed_arp_settings = false;
        for held in self.ours(&links.observe()?) {
            links.remove(&held)?;
            info!(address = %held.ip(), "address removed from lo");
            needed_arp_settings |= held.ip().is_ipv4();
        }
        self.guarding.iter().for_each(FirewallGuard::clear);
        if needed_arp_settings {
            info!(
                "arp_ignore and arp_announce stay set: another program may need them, such as kube-proxy with strictARP. If none \
                 does, this sets the kernel's defaults, as root: {ARP_DEFAULTS}"
            );
        }
        Ok(())
    }

    fn ours(&self, kernel: &Kernel) -> Vec<RemovableAddress> {
        kernel.ours(&self.recorded.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The host's own addresses: those that reach beyond it, or loopback where there are none.
    fn own(&self, Observed { kernel, ours, .. }: &Observed) -> Vec<IpAddr> {
        if !self.named.is_empty() {
            return self.named.clone();
        }
        let up: HashSet<u32> = kernel.links.iter().filter(|it| it.up).map(|it| it.index).collect();
        let mut own: BTreeSet<IpAddr> = (kernel.addresses.iter())
            .filter(|it| up.contains(&it.link) && reaches_out(it.ip))
            .filter(|it| !ours.contains_key(&it.ip))
            .map(|it| it.ip)
            .collect();
        if own.is_empty() {
            own = kernel.addresses.iter().filter(|it| it.ip.is_loopback()).map(|it| it.ip).collect();
        }
        own.into_iter().collect()
    }

    /// Those of its interfaces, without what we put there.
    fn networks(&self, Observed { kernel, ours, .. }: &Observed) -> Vec<IpNet> {
        let up: HashSet<u32> =
            kernel.links.iter().filter(|it| it.up && !it.loopback).map(|it| it.index).collect();
        let theirs = kernel.addresses.iter().filter(|it| up.contains(&it.link) && !ours.contains_key(&it.ip));
        let nets = theirs.filter(|it| reaches_out(it.ip)).filter_map(|it| IpNet::new(it.ip, it.prefix).ok());
        nets.map(|it| it.trunc()).collect::<BTreeSet<IpNet>>().into_iter().collect()
    }

    /// Addresses alone, without the settings.
    fn look(&self) -> Result<Observed, Error> {
        let kernel = Links::open()?.observe()?;
        let ours = self.ours(&kernel).into_iter().map(|held| (held.ip(), held)).collect();
        Ok(Observed { local: kernel.local(), ours, kernel, ..Observed::default() })
    }

    fn observed(&self) -> Result<Observed, Error> {
        let observed = self.look()?;
        let unmet = self.arp.observe(&reachable_links(&observed.kernel));
        self.guarding.iter().for_each(|it| it.protect(observed.ours.keys().copied()));
        Ok(Observed { unmet, ..observed })
    }

    fn add(&self, ip: IpAddr, observed: &mut Observed) -> Result<(), Error> {
        if ip.is_ipv4() && !observed.unmet.is_empty() {
            let commands: Vec<String> = observed.unmet.iter().map(UnmetSetting::command).collect();
            let message = format!(
                "{ip} is not added to lo: arp_ignore and arp_announce of this host are not set, so it would answer ARP requests for this address although another host serves it; to set them, run {PREPARE} as root"
            );
            let fix = format!(
                "As root:\n  {PREPARE}\nwhich does no more than:\n  {}\nIn a pod, where /proc/sys is read-only, a privileged init container does it.",
                commands.join("\n  ")
            );
            observed.denied.insert(ip, AddressRejection { reason: Reason::NotPermitted, message, fix });
            return Ok(());
        }
        self.guarding.iter().for_each(|it| it.begin(ip, observed.ours.keys().copied()));
        let added = Links::open()?.add(ip)?;
        self.recorded.lock().unwrap_or_else(PoisonError::into_inner).insert(ip);
        info!(address = %ip, "address added to lo");
        // With thousands to add, looking at all of them after each would take minutes.
        match added {
            AddOutcome::New => observed.note_added(ip),
            AddOutcome::WasThere => {
                self.guarding.iter().for_each(|it| it.end(ip));
                *observed = Observed { local: self.look()?.local, ..std::mem::take(observed) };
            }
        }
        Ok(())
    }

    fn remove(&self, ip: IpAddr, observed: &mut Observed) -> Result<(), Error> {
        let Some(held) = observed.ours.get(&ip) else { return Ok(()) };
        Links::open()?.remove(held)?;
        self.guarding.iter().for_each(|it| it.end(ip));
        info!(address = %ip, "address removed from lo");
        observed.note_removed(ip);
        Ok(())
    }
}

impl Presence {
    /// It is tried every few seconds, and told once.
    fn warn_once(&self, unmet: &[UnmetSetting]) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        for unmet in unmet.iter().filter(|it| !told.contains(it)) {
            warn!(setting = unmet.setting.name(), interface = %unmet.interface,
                "cannot be set; run {PREPARE} as root, or type: {}", unmet.command());
        }
        *told = unmet.to_vec();
    }
}

impl Driver for Presence {
    type Observed = Observed;
    type Step = Step;

    fn serves(&self, unit: &Unit) -> bool {
        *unit == Unit::HostAddresses(self.host.clone())
    }

    fn steps(&self, desired: &Desired, observed: &Observed) -> Vec<Step> {
        let none = HostAddresses::default();
        let wanted = if let Desired::HostAddresses(wanted) = desired { wanted } else { &none };
        steps(
            &wanted.addresses.keys().copied().collect(),
            &observed.ours.keys().copied().collect(),
            |ip| observed.is_local(ip),
            !observed.unmet.is_empty(),
        )
    }

    async fn observe(&self, _: &Context, _unit: &Unit, _desired: &Desired) -> Result<Observed, Failure> {
        self.observed().map_err(|error| Failure::retry(error.to_string()))
    }

    async fn apply(
        &self,
        _: &Context,
        _unit: &Unit,
        step: &Step,
        observed: &mut Observed,
    ) -> Result<(), Failure> {
        let done = match step {
            Step::SettleArp => {
                observed.unmet = self.arp.enforce(&reachable_links(&observed.kernel));
                self.warn_once(&observed.unmet);
                Ok(())
            }
            Step::Add(ip) => self.add(*ip, observed),
            Step::Remove(ip) => self.remove(*ip, observed),
        };
        match (done, step) {
            (Ok(()), _) => Ok(()),
            // One address that cannot be there does not keep the others away.
            (Err(error), Step::Add(ip)) => {
                observed.denied.insert(*ip, AddressRejection::by(&error));
                Ok(())
            }
            (Err(error), _) => Err(Failure::retry(error.to_string())),
        }
    }

    fn conclude(&self, _unit: &Unit, desired: &Desired, observed: &Observed) -> Report {
        let none = HostAddresses::default();
        let wanted = if let Desired::HostAddresses(wanted) = desired { wanted } else { &none };
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = Some(wanted.clone());
        let report = self.report_of(observed);
        let mut problems = Vec::new();
        for (ip, denied) in &observed.denied {
            for owner in wanted.addresses.get(ip).into_iter().flatten() {
                let problem = Problem::new(owner.object(), denied.reason, denied.message.clone())
                    .fix(denied.fix.clone());
                problems.push((owner.clone(), problem));
            }
        }
        problems.extend(self.guarding.iter().flat_map(|it| it.problems(wanted)));
        let is_guarded = self.guarding.is_some() && !wanted.addresses.is_empty();
        let guards = is_guarded.then_some(guarding::LOOK_AGAIN);
        Report {
            facts: vec![Fact::Host(Arc::new(report))],
            again: (!problems.is_empty()).then_some(TRY_AGAIN).or(guards),
            problems,
            ..Report::default()
        }
    }

    fn width(&self) -> usize {
        1
    }

    fn rest(&self, _unit: &Unit, took: Duration) -> Duration {
        rest(took)
    }
}

impl Observed {
    fn is_local(&self, ip: IpAddr) -> bool {
        ip.to_canonical().is_loopback() || self.local.contains(&ip.to_canonical())
    }

    fn note_added(&mut self, ip: IpAddr) {
        self.local.insert(ip);
        self.ours.extend(self.kernel.note_added(ip).map(|held| (ip, held)));
    }

    fn note_removed(&mut self, ip: IpAddr) {
        let Some(held) = self.ours.remove(&ip) else { return };
        self.kernel.note_removed(&held);
        // Another interface may have it, too.
        if !self.kernel.is_local(ip) {
            self.local.remove(&ip);
        }
    }
}

/// How long to leave it alone after all addresses were gone through: where they are thousands, and come one by one, each
/// would cost as much as all.
pub fn rest(took: Duration) -> Duration {
    if took < NOTHING { Duration::ZERO } else { took.saturating_mul(4).min(LONGEST_REST) }
}

/// ARP is spoken on these.
fn reachable_links(kernel: &Kernel) -> Vec<seaway_announce::Link> {
    kernel.links.iter().filter(|it| it.up && !it.loopback).cloned().collect()
}

fn reaches_out(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local() && !ip.is_unspecified(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local() && !ip.is_unspecified(),
    }
}

#[cfg(test)]
mod tests;
