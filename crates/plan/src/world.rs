//! Index, ledger and last outcomes in one value. Its owner is one task; it alone decides which Units exist.

mod adopt;
mod announced;
mod asked;
mod bgp;
mod certified;
mod clouds;
mod desire;
mod dns_names;
mod door;
mod dry;
mod entrances;
mod freed;
mod groups;
mod hosts;
mod late;
mod layer2;
mod lost_time;
mod nodes;
mod orders;
mod orphans;
mod outcomes;
mod own_listeners;
mod owners;
mod released;
mod report_limit;
mod settle;
mod silent;
mod status;
mod takeover;
mod vanished;
mod versions;
mod weights;
mod written;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    net::IpAddr,
    sync::Arc,
};

use seaway_model::{
    Address, Change, Config, Desired, Fact, Kind, ListenerId, Name, ObjectRef, Outcome, Owner, Pool, PoolId,
    Problem, Unit, WorkItem, fact::FactRef, outcome::ReplacedLoadBalancer, unit::Place,
};

pub(crate) use self::dns_names::{may_have, names};
use self::{
    adopt::Adoptions, asked::Changes, clouds::Holds, dns_names::DnsNames, door::FrontDoorState,
    freed::ReleaseTracker, lost_time::RestoredStore, orphans::Deletions, owners::OwnerState,
    released::GivenAway, silent::Silent, versions::Versions,
};
pub use self::{
    adopt::{Adoption, CompetingController, NotAdopted, OtherControllerEvidence, Waiting},
    asked::AskedFor,
    dns_names::{DnsNameView, DnsZoneCounts},
    dry::dry_run,
    layer2::Layer2Wanted,
    status::Overview,
};
use crate::{
    announcing::AnnouncingObjects,
    certificates::Certificates,
    demand::Demand,
    index::{ChangeScope, Index, ServiceKey},
    ledger::{self, Ledger},
    own_listeners::PoolOwner,
    unit_rules::UnitRules,
};

/// What this process does.
#[derive(Clone, Debug, Default)]
pub struct Roles {
    /// Give addresses out and write statuses; where several could, [`Change::Leads`] says who does. Others have the
    /// addresses that are written.
    pub allocate: bool,
    /// Serve as this host.
    pub host: Option<Name>,
}

/// A driver's pure mapping from what an owner asks to the Units that make it real.
pub trait Placement: Send + Sync {
    fn units(&self, demand: &Demand) -> Vec<Unit>;

    /// The Units of the front door, which is one for many Services; a place that cannot have one has none.
    fn front_door(&self, _owner: &Owner) -> Vec<Unit> {
        Vec::new()
    }
}

/// Nothing is planned before a source has told all it knows of these. Without its pools, an address would be taken from
/// whoever has it; what a cluster does not have is told as empty.
const REQUIRED: [Kind; 7] = [
    Kind::Service,
    Kind::EndpointSlice,
    Kind::Node,
    Kind::Namespace,
    Kind::Address,
    Kind::AddressPool,
    Kind::IPAddressPool,
];

pub struct World {
    roles: Roles,
    placements: Vec<Arc<dyn Placement>>,
    config: Arc<Config>,
    index: Index,
    certificates: Certificates,
    dns_names: DnsNames,
    /// Each that becomes named is asked for.
    secrets_by_name: bool,
    /// This host is to serve nobody new.
    drains: bool,
    /// Which addresses of this host are its own, if people wrote them down.
    declared: Option<BTreeSet<IpAddr>>,
    /// Who names each Secret.
    certified: HashMap<ObjectRef, BTreeSet<ServiceKey>>,
    secrets_of: HashMap<ServiceKey, BTreeSet<ObjectRef>>,
    ledger: Ledger,
    /// As they are written, which is later than as the ledger wants them.
    addresses: BTreeMap<IpAddr, Arc<Address>>,
    versions: Versions,
    /// The highest version told, of whatever is still there or not.
    newest: u64,
    /// To be written as somebody's; nobody knows yet whether they were.
    under_way: BTreeSet<IpAddr>,
    /// What statuses say, for whoever begins to give addresses out.
    published: HashMap<ServiceKey, Vec<IpAddr>>,
    /// Of those, what Seaway wrote; of hosts' own addresses, with the ports that each has there.
    published_by_us: hosts::PublishedPorts,
    /// Addresses whose objects somebody deleted, and that are in use all the same.
    vanished: BTreeSet<IpAddr>,
    /// Of how many Addresses, as they are written.
    holders: HashMap<Owner, usize>,
    holds: Holds,
    /// Written by rules that we do not know: what they said before goes on.
    unknown: BTreeMap<IpAddr, Arc<Address>>,
    owners: HashMap<Owner, OwnerState>,
    door: FrontDoorState,
    of_service: HashMap<ServiceKey, Vec<Owner>>,
    /// Owners that ask this Service about requests.
    asked_by: HashMap<ServiceKey, Vec<Owner>>,
    unit_owners: HashMap<Unit, Vec<Owner>>,
    outcomes: HashMap<Unit, Outcome>,
    /// Load balancers in clouds whose driver has reported since this process started.
    heard: HashSet<Unit>,
    freed: ReleaseTracker,
    silent: Silent,
    lost_time: RestoredStore,
    reported: BTreeMap<ObjectRef, Vec<Problem>>,
    /// Those that wait for something.
    stands: HashMap<Unit, Name>,
    replaced: HashMap<Unit, ReplacedLoadBalancer>,
    /// Those that live, and have a load balancer in a cloud that nothing we know of wants.
    released: BTreeMap<Owner, BTreeSet<Unit>>,
    /// Services, by UID, whose load balancer is another controller's by now.
    given_away: GivenAway,
    deletions: Deletions,
    changes: Changes,
    adoption: Adoptions,
    announcing: AnnouncingObjects,
    /// In clouds, before it is known who wants it.
    found: BTreeSet<Unit>,
    synced: HashSet<Kind>,
    settled: bool,
    was_set_back: bool,
    /// How often: what this host did before is by versions of before.
    epoch: u64,
    own_writes: late::OwnWrites,
    /// What changed while all is listed again.
    meanwhile: Vec<ChangeScope>,
    counts: outcomes::Counts,
    dirt: BTreeSet<WorkItem>,
    /// Whose members may be listeners of our own now, or no more.
    dependents_to_replan: BTreeSet<PoolOwner>,
    /// They are being looked at.
    replans_dependents: bool,
    /// Where owners may listen, and processes that are not ours do.
    foreign: HashMap<Owner, Vec<(IpAddr, ListenerId)>>,
}

/// What only one process in a cluster may work on.
fn is_for_one(unit: &Unit) -> bool {
    matches!(
        unit,
        Unit::Address(_)
            | Unit::DnsName(_)
            | Unit::Status(_)
            | Unit::Finalizer(_)
            | Unit::LoadBalancer(Place::Cloud { .. }, _)
            | Unit::SecurityGroup { .. }
    )
}

impl World {
    pub fn new(roles: Roles, placements: Vec<Arc<dyn Placement>>, config: Arc<Config>) -> World {
        let mut ledger = if roles.allocate { Ledger::new() } else { Ledger::following() };
        ledger.set_rules(config.pools);
        ledger.set_machine_ports(&config.tenants.reserved_ports);
        let mut index = Index::default();
        index.configure(&config);
        let mut door = FrontDoorState::default();
        door.guests.configure(&config);
        let mut world = World {
            roles,
            placements,
            config,
            index,
            certificates: Certificates::default(),
            dns_names: DnsNames::default(),
            secrets_by_name: false,
            drains: false,
            declared: None,
            certified: HashMap::new(),
            secrets_of: HashMap::new(),
            ledger,
            addresses: BTreeMap::new(),
            versions: Versions::default(),
            newest: 0,
            under_way: BTreeSet::new(),
            published: HashMap::new(),
            published_by_us: hosts::PublishedPorts::new(),
            vanished: BTreeSet::new(),
            holders: HashMap::new(),
            holds: Holds::default(),
            unknown: BTreeMap::new(),
            owners: HashMap::new(),
            door,
            of_service: HashMap::new(),
            asked_by: HashMap::new(),
            unit_owners: HashMap::new(),
            outcomes: HashMap::new(),
            heard: HashSet::new(),
            freed: ReleaseTracker::default(),
            silent: Silent::default(),
            lost_time: RestoredStore::default(),
            reported: BTreeMap::new(),
            stands: HashMap::new(),
            replaced: HashMap::new(),
            released: BTreeMap::new(),
            given_away: GivenAway::default(),
            deletions: Deletions::default(),
            changes: Changes::default(),
            adoption: Adoptions::default(),
            announcing: AnnouncingObjects::default(),
            found: BTreeSet::new(),
            synced: HashSet::new(),
            settled: false,
            was_set_back: false,
            epoch: 0,
            own_writes: late::OwnWrites::default(),
            meanwhile: Vec::new(),
            counts: outcomes::Counts::default(),
            dirt: BTreeSet::new(),
            dependents_to_replan: BTreeSet::new(),
            replans_dependents: false,
            foreign: HashMap::new(),
        };
        world.limit_certificates();
        world
    }

    /// Learns one thing, and tells what has to be looked at again because of it.
    pub fn apply(&mut self, change: Change) -> Vec<WorkItem> {
        self.learn(change);
        self.take_dirt()
    }

    /// What has to be looked at again by now.
    fn take_dirt(&mut self) -> Vec<WorkItem> {
        self.refresh_orders();
        self.free_released();
        self.refresh_dns_names();
        let mut dirt = std::mem::take(&mut self.dirt);
        if !self.roles.allocate {
            // Somebody else writes those.
            dirt.retain(|it| !is_for_one(it.unit()));
        }
        self.send_on_the_way(&dirt);
        dirt.into_iter().collect()
    }

    /// Whether the same was told of its Unit before.
    pub fn knows(&self, outcome: &Outcome) -> bool {
        self.outcomes.get(&outcome.unit) == Some(outcome)
    }

    /// Every required kind has been told, so that what is missing is really not there.
    pub fn is_settled(&self) -> bool {
        self.settled
    }

    /// The rules of this moment, for whoever asks about Services elsewhere.
    pub fn uses(&self) -> UnitRules {
        UnitRules { config: self.config.clone(), placements: self.placements.clone() }
    }

    /// One pool of a Unit, for a change of its members alone.
    pub fn member_pool(&self, unit: &Unit, id: &PoolId) -> Option<Arc<Pool>> {
        if let Some(pool) = self.door_pool(unit, id) {
            return Some(pool);
        }
        match self.desire(unit) {
            Desired::LoadBalancer(it) => it.pools.get(id).cloned(),
            _ => None,
        }
    }

    fn learn(&mut self, change: Change) {
        match change {
            Change::Put(fact) if self.own_writes.precede(&fact) => {}
            Change::Put(fact) => self.put(&fact),
            Change::Gone(reference) => {
                self.note_gone_service(&reference);
                if let FactRef::Host(host) = &reference {
                    self.lost_time.forget_host(host);
                    self.end_silence(host);
                }
                self.remove(&reference);
            }
            Change::Missing(FactRef::Host(host)) => self.miss_host(&host),
            Change::Missing(reference) => self.remove(&reference),
            Change::Synced(kind) => {
                self.synced.insert(kind);
                self.announcing.note_listed(kind);
                if kind == Kind::Secret {
                    self.note_asked(true);
                }
                self.settle();
            }
            Change::HostSilent(host) => self.fall_silent(&host),
            Change::HostUnreported(host, life) => self.note_unreported(&host, life),
            Change::SourceRestored => self.begin_again(),
            Change::NotWatched(Kind::Secret) => self.note_asked(false),
            Change::NotWatched(kind) => self.announcing.note_refused(kind),
            Change::Reported(object, problems) => self.report(object, problems),
            Change::Overwritten(object) => self.say_again(&object),
            Change::Outcome(outcome) => {
                self.note_report(&outcome.unit);
                self.conclude(outcome);
            }
            Change::Unfinished(unfinished) => self.conclude(self.outcome_of(&unfinished)),
            Change::Config(config) => {
                self.note_adopt_config(&config.adopt);
                self.reconfigure(config);
                self.look_at_adoptions();
                self.look_at_orphans();
            }
            Change::Leads(leads) => {
                self.lead(leads);
                self.note_lead(leads);
            }
            Change::HostDrains(drains) => self.drain(drains),
            Change::DeclaredAddresses(addresses) => self.declare(addresses),
            Change::Weights(weights) => self.weigh(weights),
            Change::FoundInCloud(unit) => self.find(unit),
            Change::CloudInventory(there) => {
                self.survey(&there);
                self.note_listed(&there);
            }
            Change::OtherSigns(signs) => self.note_other_signs(signs),
            Change::Previewed(unit, steps) => self.note_preview(unit, steps),
            Change::AdoptedBefore(unit) => self.note_ours(&unit),
            Change::Deletions(seen) => self.recall_deletions(seen),
            Change::PendingOn(unit, what) => self.stand(unit, what),
            Change::Replaced(unit, what) => self.replace(unit, what),
            Change::Drifted(unit) => {
                self.dirt.insert(WorkItem::Unit(unit));
            }
            Change::Time(now) => self.age_all(now),
        }
    }

    fn put(&mut self, fact: &Fact) {
        match fact {
            Fact::AddressPool(pool) => self.put_pool(pool),
            Fact::Announcing(it) => self.put_announcing(it),
            Fact::Address(address) => self.put_address(address.clone()),
            Fact::Secret(secret) if self.is_of_nobody(&secret.object) => {}
            Fact::Secret(secret) => self.put_secret(secret),
            Fact::Challenge(challenge) => self.put_challenge(challenge),
            Fact::NameOwner(it) => self.record_names(&it.namespace, Some(it.clone())),
            Fact::Host(report) => self.put_report(report),
            Fact::Service(service) => {
                // Our own writing comes back here: it is no reason to plan anything again.
                let key = ServiceKey::new(service.meta.namespace.clone(), service.meta.name.clone());
                self.note_other_write(&key, service.other_write.as_ref());
                self.note_names(&key, Some(service));
                self.note_change(service);
                self.note_kept_ports(&key, Some(service));
                self.note_whether_given_away(service);
                self.note_end(service);
                let held_otherwise = self.note_held(&key, service.held);
                let bare = self.note_published(service);
                let touched = self.index.put(&Fact::Service(bare));
                touched.into_iter().for_each(|it| self.follow(it));
                if held_otherwise {
                    self.held_otherwise(&key);
                }
            }
            _ => {
                if let Fact::Node(node) = fact {
                    self.note_node(&node.meta.name, Some(node));
                }
                for touched in self.index.put(fact) {
                    self.follow(touched);
                }
            }
        }
    }

    fn remove(&mut self, reference: &FactRef) {
        match reference {
            FactRef::Object(object) if matches!(object.kind, Kind::AddressPool | Kind::IPAddressPool) => {
                self.remove_pool(object);
            }
            FactRef::Object(object)
                if matches!(object.kind, Kind::Secret | Kind::File | Kind::Certificate) =>
            {
                self.remove_secret(object);
            }
            FactRef::Object(object) if object.kind.is_announcing() => self.remove_announcing(object),
            FactRef::Object(object) if object.kind == Kind::NameOwner => {
                self.record_names(&object.name, None)
            }
            FactRef::Object(object) if object.kind == Kind::Service => {
                let key = ServiceKey::new(object.namespace.clone(), object.name.clone());
                let before = self.published.remove(&key).unwrap_or_default();
                self.published_by_us.remove(&key);
                self.unpublish(&before);
                let uid = self.index.service(&key).map(|it| it.meta.uid.clone());
                self.note_kept_ports(&key, None);
                for touched in self.index.remove(reference) {
                    self.follow(touched);
                }
                self.forget_adoption(&key, uid);
            }
            FactRef::Address(ip) => self.remove_address(*ip),
            FactRef::Host(host) => {
                let touched = self.ledger.remove_host(host);
                self.index.remove(reference);
                let dependents = self.index.own.set_host(host, &[]);
                self.regrant(touched);
                self.replan_dependents(dependents);
                self.refresh_statuses();
                self.look_at_all_released();
            }
            _ => {
                if let FactRef::Object(object) = reference
                    && object.kind == Kind::Node
                {
                    self.note_node(&object.name, None);
                    self.look_at_kept_names();
                    self.end_silence_without_report(&object.name);
                }
                for touched in self.index.remove(reference) {
                    self.follow(touched);
                }
            }
        }
    }

    fn follow(&mut self, touched: ChangeScope) {
        let Some(touched) = self.unless_settling(touched) else { return };
        match touched {
            ChangeScope::Nothing | ChangeScope::Host => {}
            ChangeScope::Service(key) => self.refresh_service(&key),
            ChangeScope::Namespace(namespace) => {
                let of_namespace: Vec<ServiceKey> =
                    self.of_service.keys().filter(|key| key.namespace == namespace).cloned().collect();
                for key in of_namespace {
                    self.refresh_service(&key);
                }
            }
            ChangeScope::Name(name) => {
                for owner in self.unit_owners.get(&Unit::Name(name.clone())).cloned().unwrap_or_default() {
                    self.replan(&owner);
                }
                self.refresh_name_at_door(&name);
            }
            ChangeScope::Route(route) => self.refresh_route(&route),
            ChangeScope::Node(node) => self.refresh_nodes(&node),
            ChangeScope::Labels => self.select_anew(),
            ChangeScope::Members(dependents) => self.replan_dependents(dependents),
        }
    }

    fn regrant(&mut self, touched: ledger::LedgerChange) {
        for owner in touched.owners {
            self.replan(&owner);
        }
        if self.settled {
            self.freed.look_at(touched.addresses.iter().copied());
            self.dirt.extend(touched.addresses.into_iter().map(|ip| WorkItem::Unit(Unit::Address(ip))));
        }
    }
}
