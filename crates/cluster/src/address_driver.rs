//! The driver that writes allocated addresses as Address objects.
//!
//! A POST makes an address unique, whoever else may be writing; every later change names the version that it changes.
//! What is there is known from the watch, so a restart writes and asks nothing.

use std::{fmt, sync::Arc, time::Duration};

use kube::api::{DeleteParams, Preconditions};
use seaway_engine::{Context, Driver, Effect, Effects, Failure, Report, unwritten};
use seaway_model::{Address, AddressState, Desired, Fact, Kind, Owner, Problem, Reason, Unit};
use tracing::warn;

use crate::{
    address,
    api_error::{ApiError, INSTALL},
    connect::Cluster,
    decode::{self, DecodeOutcome},
    kinds::WatchedKind,
    object_cache::{AddressObject, Version},
    raw_object::RawObject,
};

/// An administrator may have mended it.
const TRY_AGAIN: Duration = Duration::from_secs(10);

/// Writes Address objects, while it leads.
pub struct AddressDriver {
    cluster: Cluster,
}

/// An Address as it is written, and why it could not be written otherwise.
#[derive(Debug, Default)]
pub struct ObservedAddress {
    found: Option<AddressObject>,
    trouble: Option<ApiError>,
    /// The definition of Address in this cluster does not know all that was written.
    cut_down: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum AddressStep {
    Create(Arc<Address>),
    Replace(Arc<Address>),
    Remove,
}

impl fmt::Display for AddressStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AddressStep::Create(it) => write!(f, "create Address {} for {} owners", it.ip, it.owners.len()),
            AddressStep::Replace(it) => write!(f, "change Address {} to {} owners", it.ip, it.owners.len()),
            AddressStep::Remove => f.write_str("delete the Address"),
        }
    }
}

impl Effects for AddressStep {
    fn effect(&self) -> Effect {
        match self {
            AddressStep::Create(it) | AddressStep::Replace(it) => match it.state {
                AddressState::Held => Effect::EXPOSES,
                AddressState::Releasing => Effect::DELETES,
            },
            AddressStep::Remove => Effect::DELETES,
        }
    }
}

impl AddressDriver {
    pub fn new(cluster: Cluster) -> AddressDriver {
        AddressDriver { cluster }
    }

    fn watched() -> &'static WatchedKind {
        WatchedKind::known(Kind::Address)
    }

    async fn create(&self, wanted: &Arc<Address>, observed: &mut ObservedAddress) -> Result<(), Failure> {
        match self.cluster.create(Self::watched(), "", &address::write(wanted, None)).await {
            Ok(told) => self.note(wanted, &told, observed),
            // Somebody was first: we ourselves, and the answer was lost, or who led before us.
            Err(ApiError::Conflict(why)) => return self.agree(wanted, why, observed).await,
            Err(answer) => return trouble(answer, observed),
        }
        Ok(())
    }

    async fn replace(&self, wanted: &Arc<Address>, observed: &mut ObservedAddress) -> Result<(), Failure> {
        let Some(found) = &observed.found else { return self.create(wanted, observed).await };
        let object = address::write(wanted, Some(&found.version.0));
        match self.cluster.replace(Self::watched(), "", &found.object, &object).await {
            Ok(told) => self.note(wanted, &told, observed),
            Err(ApiError::Conflict(why)) => return self.agree(wanted, why, observed).await,
            Err(ApiError::NotFound) => {
                self.cluster.cache().forget_address(wanted.ip);
                return Err(Failure::retry("the Address was deleted meanwhile".to_owned()));
            }
            Err(answer) => return trouble(answer, observed),
        }
        Ok(())
    }

    async fn remove(&self, observed: &mut ObservedAddress) -> Result<(), Failure> {
        let Some(found) = &observed.found else { return Ok(()) };
        let api = self.cluster.api(Self::watched());
        let of = Preconditions { resource_version: Some(found.version.0.to_string()), uid: None };
        let parameters = DeleteParams { preconditions: Some(of), ..DeleteParams::default() };
        match self.cluster.within_deadline(api.delete(&found.object, &parameters)).await {
            Ok(_) | Err(ApiError::NotFound) => {
                self.cluster.cache().forget_address(found.address.ip);
                observed.found = None;
            }
            Err(ApiError::Conflict(why)) => {
                self.look(&found.address.clone()).await?;
                return Err(Failure::retry(why));
            }
            Err(answer) => return trouble(answer, observed),
        }
        Ok(())
    }

    /// What is there may be somebody's of whom the plan has not heard: who led before gave it out, and the watch tells it in a
    /// moment. Until then it is left as it is, for hosts may serve it.
    fn is_planned_with(wanted: Option<&Address>, there: &Address) -> Result<(), Failure> {
        let (planned_with, owners) = wanted.map_or((0, &[][..]), |it| (it.version, &it.owners[..]));
        let is_heard = wanted.is_some() && there.version <= planned_with;
        if is_heard
            || there.state == AddressState::Releasing
            || there.owners.iter().all(|it| owners.contains(it))
        {
            return Ok(());
        }
        Err(Failure::retry(
            "another leader allocated this address; Seaway plans it again once the watch reports that"
                .to_owned(),
        ))
    }

    /// It is as well if what is there is what was wanted.
    async fn agree(
        &self,
        wanted: &Arc<Address>,
        why: String,
        observed: &mut ObservedAddress,
    ) -> Result<(), Failure> {
        observed.found = self.look(wanted).await?;
        match &observed.found {
            Some(found) if found.address == *wanted => Ok(()),
            _ => Err(Failure::retry(why)),
        }
    }

    fn note(&self, written: &Arc<Address>, told: &RawObject, observed: &mut ObservedAddress) {
        let version = Version(told.version().into());
        let mut address =
            Arc::new(Address { version: version.number().unwrap_or_default(), ..Address::clone(written) });
        if let DecodeOutcome::Fact(Fact::Address(kept)) = decode::read(Kind::Address, told)
            && kept != address
        {
            warn!(address = %written.ip, "the CustomResourceDefinition of Address in this cluster is older \
                                          than this version of Seaway. As an administrator: {INSTALL}");
            observed.cut_down = true;
            address = kept;
        }
        let found = AddressObject { address, object: told.name().into(), version };
        self.cluster.cache().put_address(found.clone());
        observed.found = Some(found);
    }

    /// What the API server has now, where the watch has not told it yet.
    async fn look(&self, wanted: &Arc<Address>) -> Result<Option<AddressObject>, Failure> {
        let api = self.cluster.api(Self::watched());
        let told = match self.cluster.within_deadline(api.get(&address::name(wanted.ip))).await {
            Ok(told) => told,
            Err(ApiError::NotFound) => {
                self.cluster.cache().forget_address(wanted.ip);
                return Ok(None);
            }
            Err(answer) => return Err(answer.into()),
        };
        match decode::read(Kind::Address, &told) {
            DecodeOutcome::Fact(Fact::Address(address)) => {
                let version = Version(told.version().into());
                let found = AddressObject { address, object: told.name().into(), version };
                self.cluster.cache().put_address(found.clone());
                Ok(Some(found))
            }
            _ => Ok(None),
        }
    }
}

/// What only an administrator can mend is told to owners; all else is tried again.
fn trouble(answer: ApiError, observed: &mut ObservedAddress) -> Result<(), Failure> {
    match answer {
        ApiError::Forbidden(_) | ApiError::Invalid(_) | ApiError::NotFound => {
            observed.trouble = Some(answer);
            Ok(())
        }
        answer => Err(answer.into()),
    }
}

impl Driver for AddressDriver {
    type Observed = ObservedAddress;
    type Step = AddressStep;

    /// Each question has a limit of its own; a step may ask twice.
    fn attempt_timeout(&self) -> Duration {
        Duration::from_secs(120)
    }

    fn serves(&self, unit: &Unit) -> bool {
        matches!(unit, Unit::Address(_))
    }

    fn steps(&self, desired: &Desired, observed: &ObservedAddress) -> Vec<AddressStep> {
        match (desired, &observed.found) {
            (Desired::Address(wanted), Some(found)) if *wanted == found.address => Vec::new(),
            (Desired::Address(wanted), Some(_)) => vec![AddressStep::Replace(wanted.clone())],
            (Desired::Address(wanted), None) => vec![AddressStep::Create(wanted.clone())],
            (_, Some(_)) => vec![AddressStep::Remove],
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
        Ok(ObservedAddress { found: self.cluster.cache().address(*ip), ..ObservedAddress::default() })
    }

    async fn apply(
        &self,
        context: &Context,
        _unit: &Unit,
        step: &AddressStep,
        observed: &mut ObservedAddress,
    ) -> Result<(), Failure> {
        context.require_lead()?;
        if let Some(there) = &observed.found {
            let wanted = match step {
                AddressStep::Create(wanted) | AddressStep::Replace(wanted) => Some(&**wanted),
                AddressStep::Remove => None,
            };
            Self::is_planned_with(wanted, &there.address)?;
        }
        match step {
            AddressStep::Create(wanted) => self.create(wanted, observed).await,
            AddressStep::Replace(wanted) => self.replace(wanted, observed).await,
            AddressStep::Remove => self.remove(observed).await,
        }
    }

    fn conclude(&self, _unit: &Unit, desired: &Desired, observed: &ObservedAddress) -> Report {
        let facts = observed.found.iter().map(|it| Fact::Address(it.address.clone())).collect();
        if observed.cut_down {
            let owners = if let Desired::Address(wanted) = desired { wanted.owners.as_slice() } else { &[] };
            let told = |owner: &Owner| {
                let message = "the CustomResourceDefinition of Address in this cluster is older than this \
                               version of Seaway: the API server drops fields that Seaway writes";
                let problem = Problem::new(owner.object(), Reason::NotInstalled, message.to_owned());
                (owner.clone(), problem.fix(format!("As an administrator: {INSTALL}")))
            };
            let problems = owners.iter().map(told).collect();
            return Report { facts, problems, again: Some(TRY_AGAIN), ..Report::default() };
        }
        let Some(trouble) = &observed.trouble else { return Report { facts, ..Report::default() } };
        let written = observed.found.as_ref().map(|it| &*it.address);
        let fix = format!("As an administrator: {INSTALL}");
        Report {
            facts,
            problems: unwritten(desired, written, &trouble.why(), &fix),
            again: Some(TRY_AGAIN),
            ..Report::default()
        }
    }

    fn width(&self) -> usize {
        // Ten thousand on the first day, at some milliseconds each.
        64
    }
}
