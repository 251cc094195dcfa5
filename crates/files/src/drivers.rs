//! The drivers that write Addresses and statuses, where there is no cluster to write them to.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use seaway_engine::{Context, Driver, Effect, Effects, Failure, ProblemLog, Report, chain, unwritten};
use seaway_model::{Address, AddressState, Desired, Fact, Owner, Problem, Status, Unit};

use crate::{
    state::{LedgerFile, StatusFile},
    watch::Locator,
};

/// A disk that is full may have room again.
const TRY_AGAIN: Duration = Duration::from_secs(2);

/// Writes the claims of addresses into the ledger's file.
pub struct AddressDriver {
    ledger: LedgerFile,
    written: Mutex<BTreeMap<IpAddr, Arc<Address>>>,
}

/// An address as it is written, and why it could not be written otherwise.
#[derive(Debug, Default)]
pub struct ObservedAddress {
    address: Option<Arc<Address>>,
    trouble: Option<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum AddressStep {
    Put(Arc<Address>),
    Remove(IpAddr),
}

impl fmt::Display for AddressStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressStep::Put(address) => {
                write!(f, "write {} for {} owners", address.ip, address.owners.len())
            }
            AddressStep::Remove(ip) => write!(f, "remove {ip}"),
        }
    }
}

impl Effects for AddressStep {
    fn effect(&self) -> Effect {
        match self {
            AddressStep::Put(it) => match it.state {
                AddressState::Held => Effect::EXPOSES,
                AddressState::Releasing => Effect::DELETES,
            },
            AddressStep::Remove(_) => Effect::DELETES,
        }
    }
}

impl AddressDriver {
    /// With what the ledger held when it was opened.
    pub fn new(ledger: LedgerFile, held: impl IntoIterator<Item = Address>) -> AddressDriver {
        let written = held.into_iter().map(|it| (it.ip, Arc::new(it))).collect();
        AddressDriver { ledger, written: Mutex::new(written) }
    }

    fn note(&self, ip: IpAddr, address: Option<Arc<Address>>) {
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        match address {
            Some(address) => written.insert(ip, address),
            None => written.remove(&ip),
        };
    }
}

impl Driver for AddressDriver {
    type Observed = ObservedAddress;
    type Step = AddressStep;

    /// A disk may take its time.
    fn attempt_timeout(&self) -> Duration {
        Duration::from_secs(600)
    }

    fn serves(&self, unit: &Unit) -> bool {
        matches!(unit, Unit::Address(_))
    }

    fn steps(&self, desired: &Desired, observed: &ObservedAddress) -> Vec<AddressStep> {
        match (desired, &observed.address) {
            (Desired::Address(wanted), Some(written)) if wanted == written => Vec::new(),
            (Desired::Address(wanted), _) => vec![AddressStep::Put(wanted.clone())],
            (_, Some(written)) => vec![AddressStep::Remove(written.ip)],
            (_, None) => Vec::new(),
        }
    }

    async fn observe(
        &self,
        _: &Context,
        unit: &Unit,
        _desired: &Desired,
    ) -> Result<ObservedAddress, Failure> {
        let Unit::Address(ip) = unit else { return Ok(ObservedAddress::default()) };
        let address = self.written.lock().unwrap_or_else(PoisonError::into_inner).get(ip).cloned();
        Ok(ObservedAddress { address, trouble: None })
    }

    async fn apply(
        &self,
        _: &Context,
        _unit: &Unit,
        step: &AddressStep,
        observed: &mut ObservedAddress,
    ) -> Result<(), Failure> {
        let (ip, address) = match step {
            AddressStep::Put(address) => (address.ip, Some(address.clone())),
            AddressStep::Remove(ip) => (*ip, None),
        };
        let done = match &address {
            Some(address) => self.ledger.put(Address::clone(address)).await,
            None => self.ledger.remove(ip).await,
        };
        match done {
            Ok(()) => {
                self.note(ip, address.clone());
                observed.address = address;
            }
            Err(error) => observed.trouble = Some(chain(&error)),
        }
        Ok(())
    }

    fn conclude(&self, _unit: &Unit, desired: &Desired, observed: &ObservedAddress) -> Report {
        let Some(trouble) = &observed.trouble else {
            let facts = observed.address.iter().map(|it| Fact::Address(it.clone())).collect();
            return Report { facts, ..Report::default() };
        };
        let fix = "Make room, or make the folder writable. Seaway tries again every 2 seconds.";
        Report {
            problems: unwritten(desired, observed.address.as_deref(), trouble, fix),
            again: Some(TRY_AGAIN),
            ..Report::default()
        }
    }

    fn width(&self) -> usize {
        // They are written together: one sync to the disk for as many as wait.
        4_096
    }
}

/// Writes statuses into `status.json`, their Problems with file and line, and logs each Problem once.
pub struct StatusDriver {
    file: StatusFile,
    places: Option<Locator>,
    log: ProblemLog,
    /// As they were wanted, which is without places.
    written: Mutex<HashMap<Owner, Arc<Status>>>,
}

impl StatusDriver {
    pub fn new(file: StatusFile, places: Option<Locator>, log: ProblemLog) -> StatusDriver {
        StatusDriver { file, places, log, written: Mutex::default() }
    }

    fn written(&self) -> MutexGuard<'_, HashMap<Owner, Arc<Status>>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, owner: &Owner, wanted: &Arc<Status>) {
        let before = self.written().insert(owner.clone(), wanted.clone());
        let known: &[Problem] = before.as_ref().map_or(&[], |it| &it.problems);
        let mut status = Status::clone(wanted);
        if let Some(places) = self.places.as_ref().filter(|_| !status.problems.is_empty()) {
            places.locate(&mut status.problems);
        }
        // Locating changes neither their number nor their order.
        self.log.log_changes_located(known, &wanted.problems, &status.problems);
        self.file.put(owner.clone(), Arc::new(status));
    }
}

#[derive(Clone, Debug, PartialEq)]
pub enum StatusStep {
    Put(Arc<Status>),
    Remove,
}

impl fmt::Display for StatusStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StatusStep::Put(status) => write!(f, "write the status of {}", status.owner),
            StatusStep::Remove => f.write_str("remove the status"),
        }
    }
}

impl Effects for StatusStep {
    fn effect(&self) -> Effect {
        match self {
            StatusStep::Put(_) => Effect::CHANGES,
            StatusStep::Remove => Effect::DELETES,
        }
    }
}

impl Driver for StatusDriver {
    type Observed = Option<Arc<Status>>;
    type Step = StatusStep;

    fn serves(&self, unit: &Unit) -> bool {
        matches!(unit, Unit::Status(_))
    }

    fn steps(&self, desired: &Desired, observed: &Option<Arc<Status>>) -> Vec<StatusStep> {
        match (desired, observed) {
            (Desired::Status(wanted), Some(written)) if wanted == written => Vec::new(),
            (Desired::Status(wanted), _) => vec![StatusStep::Put(wanted.clone())],
            (_, Some(_)) => vec![StatusStep::Remove],
            (_, None) => Vec::new(),
        }
    }

    async fn observe(
        &self,
        _: &Context,
        unit: &Unit,
        _desired: &Desired,
    ) -> Result<Option<Arc<Status>>, Failure> {
        let Unit::Status(owner) = unit else { return Ok(None) };
        Ok(self.written().get(owner).cloned())
    }

    async fn apply(
        &self,
        _: &Context,
        unit: &Unit,
        step: &StatusStep,
        observed: &mut Option<Arc<Status>>,
    ) -> Result<(), Failure> {
        let Unit::Status(owner) = unit else { return Ok(()) };
        match step {
            StatusStep::Put(status) => {
                self.put(owner, status);
                *observed = Some(status.clone());
            }
            StatusStep::Remove => {
                let gone = self.written().remove(owner);
                self.log.log_changes(gone.as_ref().map_or(&[], |it| &it.problems), &[]);
                self.file.remove(owner);
                *observed = None;
            }
        }
        Ok(())
    }

    fn conclude(&self, _unit: &Unit, _desired: &Desired, _observed: &Option<Arc<Status>>) -> Report {
        Report::default()
    }

    fn width(&self) -> usize {
        64
    }
}

#[cfg(test)]
mod tests {
    use seaway_testkit::conformance::{each_walk, passes, wanders};

    use super::*;
    use crate::state::{StateDir, stored_addresses};

    fn address(ip: &str, owners: &[&str]) -> Desired {
        Desired::Address(Arc::new(Address {
            ip: ip.parse().expect("an address"),
            pool: "public".into(),
            sharing: None,
            owners: owners.iter().map(|it| Owner::Config((*it).into())).collect(),
            plan_version: 1,
            ends: None,
            conflicts: Vec::new(),
            state: AddressState::Held,
            version: 0,
        }))
    }

    #[tokio::test]
    async fn addresses_pass_the_suite_of_all_drivers() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = StateDir::open(folder.path()).expect("a state folder");
        let (ledger, held, _) = LedgerFile::open(&state).expect("a ledger");
        let driver = AddressDriver::new(ledger, held);
        let unit = Unit::Address("192.0.2.1".parse().expect("an address"));
        let wanted =
            [address("192.0.2.1", &["a"]), address("192.0.2.1", &["a", "b"]), address("192.0.2.1", &["b"])];
        passes(&driver, &unit, &wanted).await;
        drop(driver);
        let (_, held, problems) = LedgerFile::open(&state).expect("a ledger");
        assert!(held.is_empty() && problems.is_empty());
    }

    /// Whatever is cut off and started again, the file says at each rest what is desired.
    #[test]
    fn addresses_survive_cuts_and_restarts_at_any_step() {
        let wanted = [&["a"][..], &["a", "b"], &["b"], &[]].map(|owners| address("192.0.2.1", owners));
        let ip = "192.0.2.1".parse().expect("an address");
        each_walk(64, wanted.len(), async |turns| {
            let folder = tempfile::tempdir().expect("a folder");
            let start = async || {
                let state = StateDir::open(folder.path()).expect("a state folder");
                let (ledger, held, problems) = LedgerFile::open(&state).expect("a ledger");
                assert!(problems.is_empty(), "{problems:?}");
                AddressDriver::new(ledger, held)
            };
            let written = async |_: &AddressDriver, desired: &Desired| {
                let held = match desired {
                    Desired::Address(it) => vec![Address::clone(it)],
                    _ => Vec::new(),
                };
                assert_eq!(stored_addresses(folder.path()), held);
            };
            wanders(start, &Unit::Address(ip), &wanted, &turns, written).await;
        });
    }

    #[tokio::test]
    async fn who_shares_an_address_already_is_not_told_that_it_is_not_used() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = StateDir::open(folder.path()).expect("a state folder");
        let (ledger, held, _) = LedgerFile::open(&state).expect("a ledger");
        let driver = AddressDriver::new(ledger, held);
        let (before, wanted) = (address("192.0.2.1", &["a"]), address("192.0.2.1", &["a", "b"]));
        let Desired::Address(written) = before else { panic!("an address") };
        let unit = Unit::Address(written.ip);
        let observed = ObservedAddress { address: Some(written), trouble: Some("no room".into()) };
        let concluded = driver.conclude(&unit, &wanted, &observed);
        let told: Vec<Owner> = concluded.problems.into_iter().map(|(owner, _)| owner).collect();
        assert_eq!(told, [Owner::Config("b".into())]);
        assert_eq!(concluded.again, Some(TRY_AGAIN));
    }

    #[tokio::test]
    async fn statuses_pass_the_suite_of_all_drivers() {
        let folder = tempfile::tempdir().expect("a folder");
        let state = StateDir::open(folder.path()).expect("a state folder");
        let driver = StatusDriver::new(
            StatusFile::open(&state, None, |_, _| {}).expect("a file"),
            None,
            ProblemLog::default(),
        );
        let owner = Owner::Config("tcpServices[0]".into());
        let status = |members| {
            Desired::Status(Arc::new(Status {
                owner: owner.clone(),
                addresses: Vec::new(),
                serving: Vec::new(),
                members,
                ready: false,
                problems: Vec::new(),
                pool: None,
                announced: None,
                shown: seaway_model::outcome::PublishedAs::default(),
                waits: None,
                takes_over: true,
                unreported: false,
                replaced: None,
                ports: Vec::new(),
                left: false,
            }))
        };
        let wanted = [status(1), status(2)];
        passes(&driver, &Unit::Status(owner.clone()), &wanted).await;
    }
}
