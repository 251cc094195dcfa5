//! What came of it: outcomes re-enter the World as changes, and statuses are folded from them.

use std::{collections::BTreeSet, net::IpAddr, sync::Arc, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    MemberWeights,
    announced::AnnouncedCondition,
    config::Config,
    fact::{Fact, FactRef, OtherControllerSigns},
    load_balancer::L4,
    name::{Kind, Name, ObjectRef, Owner, Time},
    problem::Problem,
    reason::Reason,
    unit::Unit,
};

/// One thing that the World learns. Sources and workers say nothing else to it.
#[derive(Clone, Debug)]
pub enum Change {
    Put(Fact),
    Gone(FactRef),
    /// It was known and a list lacks it: nobody saw that it was deleted.
    Missing(FactRef),
    /// A source has told all it knows of a kind; nothing is planned before every required kind has.
    Synced(Kind),
    /// Nobody asked the source for objects of this kind, for nobody needs one: it is not known which there are. From then on
    /// each that becomes named is asked for, and is told as gone if it is not there.
    NotWatched(Kind),
    /// The source was set back to an older state: all it knows is told again, as at the start, down to the last `Synced`.
    SourceRestored,
    /// A host that was told is not heard of any more. It may still serve and hold what it did, until it is told as gone.
    HostSilent(Name),
    /// A host that was not told yet: it has a Lease, and has not reported. It may serve and hold what was written while it lived.
    HostUnreported(Name, UnreportedHostState),
    /// What a source could not read: replaces its earlier problems about that object. Empty clears them.
    Reported(ObjectRef, Vec<Problem>),
    /// What we say of this object was written by somebody else, who may have led before us: it is looked at again.
    Overwritten(ObjectRef),
    Outcome(Outcome),
    /// An attempt ended before it could report: what was reported before stays valid.
    Unfinished(UnfinishedAttempt),
    Config(Arc<Config>),
    /// Whether this process leads: gives addresses out and writes statuses, or follows what another writes.
    Leads(bool),
    /// Whether this host is to serve nobody new, while who is connected may finish.
    HostDrains(bool),
    /// Whoever runs the cluster wrote down which addresses are this host's own, or did so no more.
    DeclaredAddresses(Option<BTreeSet<IpAddr>>),
    /// What an operator says of members while this process runs.
    Weights(Arc<MemberWeights>),
    /// Something of ours that was found in a cloud: if nobody wants it, it goes.
    FoundInCloud(Unit),
    /// All of ours that a cloud has, as it was listed: what is not here is not there.
    CloudInventory(Vec<Unit>),
    /// Deletions that were seen before, by this process or another.
    Deletions(Vec<Deletion>),
    /// What tells that another controller runs; nothing: it is being asked, and until it is known nothing is adopted.
    OtherSigns(Option<OtherControllerSigns>),
    /// What would be done for a Unit whose Service is not adopted.
    Previewed(Unit, Vec<Name>),
    /// What is there for a Unit was found to be ours: its Service was adopted before.
    AdoptedBefore(Unit),
    /// What a Unit waits for, where that takes long; nothing: it does not.
    PendingOn(Unit, Option<Name>),
    /// The load balancer that its owner names is gone, and another serves it; nothing: that is not so.
    Replaced(Unit, Option<ReplacedLoadBalancer>),
    /// It is not as it was left: somebody has to look at it.
    Drifted(Unit),
    /// What time it is, told now and then: certificates age.
    Time(Time),
}

/// A host that lived, and has not reported so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnreportedHostState {
    Lives,
    /// Its Lease has ended.
    Silent,
    /// It holds nothing any more.
    Gone,
}

/// A deletion that was seen: what a cloud has for it goes, also if it comes back there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deletion {
    /// The uid of a Service; what else can end is called by the plan.
    pub of: Name,
    pub at: Time,
}

/// What came of working on a Unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    pub unit: Unit,
    pub state: UnitState,
    /// What the driver learned (an address the cloud chose, a name's answers).
    pub facts: Vec<Fact>,
    /// Problems of this Unit with who has them; replaces its earlier ones.
    pub problems: Vec<(Owner, Problem)>,
    /// Where listeners serve now (native), for the status.
    pub serving: Vec<ServingSocket>,
}

/// An attempt on a Unit that failed or waits, and saw too little to say where the Unit is served.
#[derive(Clone, Debug, PartialEq)]
pub struct UnfinishedAttempt {
    pub unit: Unit,
    pub state: UnitState,
    /// Replace the earlier ones; None: those stay.
    pub problems: Option<Vec<(Owner, Problem)>>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UnitState {
    /// As desired.
    Done,
    /// Parked: looked at again after this time, or when something changes.
    Pending(Duration),
    /// Parked until something changes.
    PendingChange,
    /// Observed absent and not desired: may be forgotten.
    Absent,
    /// Failed; tried again after this time.
    Failed { why: Name, retry: Duration },
    /// Only the user can mend it; a change of the object or the resync tries again.
    UserMustFix,
}

/// One socket address that answers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ServingSocket {
    pub ip: IpAddr,
    pub protocol: L4,
    pub port: u16,
}

impl std::fmt::Display for ServingSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", std::net::SocketAddr::new(self.ip, self.port), self.protocol)
    }
}

/// What an owner is told: its addresses, where it is served, and what is wrong.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    pub owner: Owner,
    /// In the order of the Service's families; empty while there is none.
    pub addresses: Vec<IpAddr>,
    /// What answers now.
    pub serving: Vec<ServingSocket>,
    pub members: usize,
    /// All of its listeners answer.
    pub ready: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<Problem>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Name>,
    /// Of hosts' own addresses, which several Services may have: each port that it asks for.
    #[serde(skip)]
    pub ports: Vec<PortStatus>,
    /// Whether its addresses are announced; nothing where that is no question.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub announced: Option<AnnouncedCondition>,
    #[serde(default)]
    pub shown: PublishedAs,
    /// What it waits for, and since when: `load balancer 8c1f… is PENDING_CREATE since 12:03:00Z`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits: Option<Name>,
    /// What another controller published may be replaced by it.
    #[serde(skip)]
    pub takes_over: bool,
    /// No driver has reported since this process started: what was written before may still be so.
    #[serde(skip)]
    pub unreported: bool,
    /// Its annotation names a load balancer that is gone: it is to name the one that serves it.
    #[serde(skip)]
    pub replaced: Option<ReplacedLoadBalancer>,
    /// Its addresses stay as they are published, and nothing else is said of it: another controller is to follow it.
    #[serde(skip)]
    pub left: bool,
}

/// A port that an owner asks for at one of its addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortStatus {
    pub at: ServingSocket,
    /// Why it does not have it.
    pub lacks: Option<Reason>,
}

/// The load balancer of a cloud that an owner names by its id, and that is gone; and the one that serves the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplacedLoadBalancer {
    pub gone: Name,
    pub by: Name,
}

/// How addresses are told to whoever wants to reach them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PublishedAs {
    /// Nobody may answer for them but who serves them.
    #[default]
    Proxy,
    /// Whoever is in the cluster may take a short cut.
    Vip,
    /// By this name alone.
    Name(Name),
    /// By names: `192.0.2.1.nip.io`.
    Suffixed(Name),
}
