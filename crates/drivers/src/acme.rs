//! Certificates that the front door orders from a certificate authority by ACME (RFC 8555), one for each host name.
//!
//! ```text
//!   stored? ──due──► Begin: order, challenges ─► fact: the front door answers for them ─► it does (reach) ─► Answer
//!      ▲                                                                                                        │
//!      └── Keep: chain and key, one file ◄── Finalize: a new key, signed for by the authority ◄── proven ◄──────┘
//!
//!   any step fails ─► Abandon: remembered, told, begun again later; what is stored stays in use
//! ```
//!
//! Nothing is ever removed. An authority bounds how often it may be asked, so that failures are remembered over restarts, and a
//! certificate that is stored is never ordered again before it is due: after two thirds of its life, or up to a twentieth of it
//! earlier (`schedule.rs`), or when its authority says so (`renewal.rs`). What is added to DNS is removed (`records.rs`).

mod attempt;
mod backoff;
mod observed;
mod reach;
mod records;
mod renewal;
mod schedule;
mod step;
mod stored;

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use seaway_acme::{Account, AcmeError, Directory, ExternalAccount, Key};
use seaway_engine::{Background, Context, Driver, Failure, Report};
use seaway_files::state::{CertificateStore, DnsRecordStore, FailedOrders};
use seaway_model::{
    Desired, Fact, Name, Owner, Unit,
    acme::{Acme, CertificateOrder, Challenge, ChallengeType, DnsRecord},
};
use seaway_plan::FRONT_DOOR;
use secrecy::ExposeSecret;
use tokio::sync::watch;
use tracing::{info, warn};

pub(crate) use self::records::tsig_key;
use self::schedule::{millis, seconds};
use self::{
    attempt::Attempt,
    backoff::Backoffs,
    records::Records,
    renewal::{CachedDirectory, Renewals},
    stored::StoredCertificate,
};
pub use self::{
    observed::Observed,
    records::{read_mounted_secret, read_secret},
    step::Step,
};

/// The same where an order waits: whoever mended what was wrong removes the file of failures.
const LOOK_WHILE_WAITING: Duration = Duration::from_secs(60);
/// Until the process ends, for what its orders have left in DNS.
const TO_SWEEP: Duration = Duration::from_secs(5);
/// The front door has not taken over what it is to answer.
const SOON: Duration = Duration::from_millis(200);
/// Of the process. Nothing is ordered before it serves, and no order keeps it from ending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessPhase {
    Starting,
    Serving,
    Ending,
}

pub struct Certificates {
    store: CertificateStore,
    records: Records,
    life: watch::Receiver<ProcessPhase>,
    /// One for each authority, by what it offered then; made when the first order wants it.
    accounts: tokio::sync::Mutex<HashMap<Acme, (Account, Arc<Directory>)>>,
    directories: tokio::sync::Mutex<HashMap<Acme, CachedDirectory>>,
    attempts: Mutex<Attempts>,
}

#[derive(Default)]
struct Attempts {
    under_way: HashMap<Name, Attempt>,
    /// Why the last attempt failed, and for how long the next one waits.
    why: HashMap<Name, (String, Duration)>,
    /// Those that could not be stored.
    unstored: HashMap<Name, FailedOrders>,
    /// Whose stored certificate was told.
    told: HashSet<Name>,
    gates: Backoffs,
    renewals: Renewals,
}

impl Certificates {
    pub fn new(
        store: CertificateStore,
        records: DnsRecordStore,
        life: watch::Receiver<ProcessPhase>,
    ) -> Certificates {
        let (accounts, directories) = (tokio::sync::Mutex::default(), tokio::sync::Mutex::default());
        let (records, attempts) = (Records::new(records), Mutex::default());
        Certificates { store, records, life, accounts, directories, attempts }
    }

    fn needs(&self, record: &DnsRecord) -> bool {
        let attempts = self.attempts();
        let mut needed = attempts.under_way.values().flat_map(Attempt::records);
        needed.any(|(name, value)| name == record.name && value == record.value)
    }

    /// The process ends: orders that are under way are nobody's failure.
    pub async fn end(&self) {
        let under_way = std::mem::take(&mut self.attempts().under_way);
        for (host, attempt) in under_way {
            self.note(&host, &attempt.acme, attempt.before);
        }
        // What cannot be removed in time is removed by the next process.
        let _ = tokio::time::timeout(TO_SWEEP, self.records.sweep(&|_: &DnsRecord| false)).await;
    }

    fn attempts(&self) -> MutexGuard<'_, Attempts> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn account(&self, acme: &Acme) -> Result<Account, AcmeError> {
        let mut accounts = self.accounts.lock().await;
        // Others who waited for this one have heard by now that it cannot be had.
        let closed = self.attempts().gates.closed(acme, seconds(SystemTime::now())).cloned();
        if let Some(gate) = closed.filter(|_| !accounts.contains_key(acme)) {
            return Err(AcmeError::Unreachable { url: acme.directory.to_string(), why: gate.why });
        }
        let opened = match self.directory(acme).await {
            Ok(directory) => match accounts.get(acme) {
                Some((account, by)) if Arc::ptr_eq(by, &directory) => return Ok(account.clone()),
                _ => self.open_account(acme, &directory).await.map(|account| (account, directory)),
            },
            Err(error) => Err(error),
        };
        // What is valid stays in use until what replaces it works.
        match (opened, accounts.get(acme)) {
            (Ok((account, directory)), _) => {
                info!(directory = %acme.directory, ?account, "certificates are ordered with this account");
                accounts.insert(acme.clone(), (account.clone(), directory));
                Ok(account)
            }
            (Err(error), Some((account, _))) => {
                let directory = &acme.directory;
                warn!(%directory, %error, "the ACME directory has changed, and its account cannot be opened; orders use the previous directory");
                Ok(account.clone())
            }
            (Err(error), None) => {
                self.attempts().gates.note_failure(acme, &error, seconds(SystemTime::now()));
                Err(error)
            }
        }
    }

    async fn open_account(&self, acme: &Acme, directory: &Arc<Directory>) -> Result<Account, AcmeError> {
        let unwritable =
            |error: std::io::Error| AcmeError::Key(format!("the key of the ACME account: {error}"));
        let key = match self.store.account_key(&acme.directory).map_err(unwritable)? {
            Some(pem) => Key::from_pem(&pem)?,
            None => {
                let key = Key::generate()?;
                self.store.keep_account_key(&acme.directory, &key.to_pem()).map_err(unwritable)?;
                key
            }
        };
        let secret = acme.binding.as_ref().map(|it| read_secret(&it.hmac_file)).transpose();
        let secret = secret
            .map_err(|why| AcmeError::Key(format!("frontDoor.acme.externalAccount.hmacFile: {why}")))?;
        let external = acme.binding.as_ref().zip(secret.as_ref());
        let external = external.map(|(binding, secret)| ExternalAccount {
            key_id: &binding.key_id,
            hmac: secret.expose_secret(),
        });
        Account::open(directory, Arc::new(key), acme.email.as_deref(), external).await
    }

    /// Failures of that name, as they are stored or could not be.
    fn failed(&self, order: &CertificateOrder) -> FailedOrders {
        let unstored = self.attempts().unstored.get(&order.host).copied();
        unstored.unwrap_or_else(|| self.store.failed(&order.acme.directory, &order.host))
    }

    /// Whether it is stored. A process that starts again and again would else ask more often than it may.
    fn note(&self, host: &Name, acme: &Acme, failed: FailedOrders) -> bool {
        let written = self.store.keep_failed(&acme.directory, host, failed);
        let mut attempts = self.attempts();
        match &written {
            Ok(()) => attempts.unstored.remove(host),
            Err(_) => attempts.unstored.insert(host.clone(), failed),
        };
        written
            .inspect_err(|error| warn!(%host, %error, "the count of failed orders cannot be stored"))
            .is_ok()
    }

    /// It counts as failed until it has ended well: what ends in between was not nothing to the authority.
    async fn begin(&self, order: &CertificateOrder, observed: &mut Observed) -> Result<(), AcmeError> {
        let CertificateOrder { host, acme, challenge, .. } = order;
        if *challenge == Some(ChallengeType::Dns01) {
            let updates = acme.dns.as_ref();
            let updates = updates.ok_or_else(|| AcmeError::Key("frontDoor.acme.dns is not set".into()))?;
            // What is wrong here is no reason to ask the authority.
            self.records.check(updates).map_err(AcmeError::Dns)?;
        }
        let before = observed.failed;
        let counted =
            schedule::after_failure(before, None, observed.remaining_seconds(), seconds(observed.now));
        if !self.note(host, acme, counted) {
            return Err(AcmeError::Key(
                "the state folder cannot be written, so that nothing is ordered".into(),
            ));
        }
        let replaces = observed.renewable().and_then(|it| it.id.as_deref());
        let begun = match self.account(acme).await {
            Ok(account) => Attempt::begin(account, order, before, replaces).await,
            Err(error) => Err(error),
        };
        match begun {
            Ok(attempt) => {
                self.attempts().gates.open(acme);
                self.attempts().under_way.insert(host.clone(), attempt.clone());
                observed.attempt = Some(attempt);
                Ok(())
            }
            Err(error) => {
                let now = seconds(SystemTime::now());
                if error.is("urn:ietf:params:acme:error:accountDoesNotExist") {
                    self.accounts.lock().await.remove(acme);
                }
                if matches!(error, AcmeError::Refused { status: 404 | 410, .. }) {
                    // It takes orders elsewhere now.
                    self.directories.lock().await.remove(acme);
                }
                let closed = self.attempts().gates.closed(acme, now).is_some();
                // Who opens the account has said it of the authority before.
                let of_authority = error.is_transient() && !error.is_rate_limit();
                if of_authority {
                    if !closed {
                        self.attempts().gates.note_failure(acme, &error, now);
                    }
                    self.note(host, acme, before);
                    observed.gate = self.attempts().gates.closed(acme, now).cloned();
                    return Ok(());
                }
                self.attempts().gates.note_failure(acme, &error, now);
                Err(error)
            }
        }
    }

    /// One step of an attempt; an error ends it.
    async fn advance(
        &self,
        order: &CertificateOrder,
        step: &Step,
        observed: &mut Observed,
    ) -> Result<(), AcmeError> {
        let Some(attempt) = &mut observed.attempt else {
            return match step {
                Step::Begin => self.begin(order, observed).await,
                Step::AskWhen => {
                    self.ask_when(order, observed).await;
                    Ok(())
                }
                _ => Ok(()),
            };
        };
        let done = match step {
            Step::Begin | Step::AskWhen => Ok(()),
            Step::Publish => attempt.publish(&self.records).await,
            Step::Answer => attempt.answer().await,
            Step::Finalize => attempt.finalize(&order.host).await,
            Step::Keep => match attempt.certificate().await {
                Ok(pem) => return self.keep(order, pem, observed).await,
                Err(error) => Err(error),
            },
            Step::Abandon(why) => {
                let url = order.acme.directory.to_string();
                return Err(AcmeError::Unexpected { url, why: why.clone() });
            }
        };
        match done {
            // It goes on, for as long as an order may take.
            Err(error) if error.is_transient() => {
                attempt.pause(&error);
                Ok(())
            }
            done => done,
        }
    }

    async fn keep(
        &self,
        order: &CertificateOrder,
        pem: String,
        observed: &mut Observed,
    ) -> Result<(), AcmeError> {
        let CertificateOrder { host, acme, .. } = order;
        let unexpected = |why: String| AcmeError::Unexpected { url: acme.directory.to_string(), why };
        let stored = StoredCertificate::read(pem, host, true).map_err(|why| {
            unexpected(format!("the certificate that the authority issued cannot be used: {why}"))
        })?;
        let (store, directory, name) = (self.store.clone(), acme.directory.clone(), host.clone());
        let pem = stored.pem.clone();
        let written =
            tokio::task::spawn_blocking(move || store.keep_certificate(&directory, &name, &pem)).await;
        let written =
            written.map_err(|error| error.to_string()).and_then(|it| it.map_err(|it| it.to_string()));
        if let Err(why) = written {
            // The authority has it still.
            warn!(%host, why, "the certificate cannot be stored; tried again");
            if let Some(attempt) = &mut observed.attempt {
                attempt.wait(LOOK_WHILE_WAITING);
            }
            return Ok(());
        }
        info!(%host, "a certificate was issued");
        observed.stored = Some(stored);
        if observed.due_in(order).is_zero() {
            let why = "the authority issued a certificate that is due for renewal already: check the clock of this machine";
            return Err(unexpected(why.to_owned()));
        }
        (observed.attempt, observed.failed, observed.why) = (None, FailedOrders::default(), None);
        self.attempts().why.remove(host);
        self.note(host, acme, FailedOrders::default());
        Ok(())
    }

    fn fail(&self, order: &CertificateOrder, error: &AcmeError, observed: &mut Observed) {
        let CertificateOrder { host, acme, .. } = order;
        let before = observed.attempt.as_ref().map_or(observed.failed, |it| it.before);
        let (now, left) = (seconds(observed.now), observed.remaining_seconds());
        observed.failed = schedule::after_failure(before, error.retry_after(), left, now);
        let why = match error {
            // What we say ourselves needs no address.
            AcmeError::Unexpected { url, why } if **url == *acme.directory => why.clone(),
            other => other.to_string(),
        };
        let wait = schedule::retry_delay(observed.failed, now).unwrap_or_default();
        warn!(%host, why, failures = observed.failed.count, "no certificate was issued");
        observed.attempt = None;
        observed.why = Some((why.clone(), wait));
        self.attempts().why.insert(host.clone(), (why, wait));
        self.note(host, acme, observed.failed);
    }

    /// Never, unless the process ends.
    async fn ending(&self) -> Failure {
        let mut life = self.life.clone();
        if life.wait_for(|it| *it == ProcessPhase::Ending).await.is_err() {
            // Nobody says so any more.
            std::future::pending::<()>().await;
        }
        Failure::retry("the process is ending".into())
    }
}

impl Driver for Certificates {
    type Observed = Observed;
    type Step = Step;

    fn serves(&self, unit: &Unit) -> bool {
        matches!(unit, Unit::CertificateOrder(_))
    }

    /// A step is a few requests, each with a bound of its own.
    fn attempt_timeout(&self) -> Duration {
        Duration::from_secs(180)
    }

    /// An authority is asked for few at once.
    fn width(&self) -> usize {
        4
    }

    async fn observe(&self, _: &Context, unit: &Unit, desired: &Desired) -> Result<Observed, Failure> {
        let (now, life) = (SystemTime::now(), *self.life.borrow());
        let Desired::CertificateOrder(order) = desired else {
            if let Unit::CertificateOrder(host) = unit {
                let mut attempts = self.attempts();
                attempts.under_way.remove(host);
                attempts.why.remove(host);
                attempts.told.remove(host);
                attempts.renewals.forget(host);
                drop(attempts);
                self.records.note_change();
            }
            let (stored, attempt, failed) = (None, None, FailedOrders::default());
            let (order, why, gate, renewal, is_first) = (None, None, None, None, true);
            return Ok(Observed { order, now, life, stored, attempt, failed, why, gate, renewal, is_first });
        };
        let (under_way, why, gate, renewal, is_first) = {
            let mut attempts = self.attempts();
            let under_way = attempts.under_way.get(&order.host).cloned();
            let why = attempts.why.get(&order.host).cloned();
            let gate = attempts.gates.closed(&order.acme, seconds(now)).cloned();
            let renewal = attempts.renewals.renewal_of(order, seconds(now));
            (under_way, why, gate, renewal, attempts.told.insert(order.host.clone()))
        };
        // Somebody wants it from elsewhere now.
        let mut attempt =
            under_way.filter(|it| it.acme == order.acme && Some(it.challenge()) == order.challenge);
        if let Some(attempt) = &mut attempt {
            tokio::select! {
                () = attempt.observe(order, &self.records) => {}
                failure = self.ending() => return Err(failure),
            }
        }
        Ok(Observed {
            order: Some(order.clone()),
            now,
            life,
            stored: self.stored(order),
            attempt,
            failed: self.failed(order),
            why,
            gate,
            renewal,
            is_first,
        })
    }

    fn steps(&self, desired: &Desired, observed: &Observed) -> Vec<Step> {
        let Desired::CertificateOrder(order) = desired else { return Vec::new() };
        let step = match &observed.attempt {
            Some(attempt) => attempt.next(),
            None if observed.may_begin(order) => Some(Step::Begin),
            None => observed.may_ask(order).then_some(Step::AskWhen),
        };
        step.into_iter().collect()
    }

    /// What fails is told, and never keeps what is stored from being shown.
    async fn apply(
        &self,
        _: &Context,
        _: &Unit,
        step: &Step,
        observed: &mut Observed,
    ) -> Result<(), Failure> {
        let Some(order) = observed.order.clone() else { return Ok(()) };
        let before = observed.failed;
        let done = tokio::select! {
            done = self.advance(&order, step, observed) => done,
            failure = self.ending() => {
                if *step == Step::Begin {
                    // What was begun by then is nobody's failure either.
                    self.note(&order.host, &order.acme, before);
                }
                return Err(failure);
            }
        };
        if let Err(error) = done {
            self.fail(&order, &error, observed);
        }
        Ok(())
    }

    /// What orders of this process or of another have left in DNS is removed from there.
    async fn run(self: Arc<Self>, _: Background) {
        self.records.keep_swept(|record| self.needs(record)).await;
    }

    fn conclude(&self, unit: &Unit, desired: &Desired, observed: &Observed) -> Report {
        let (Unit::CertificateOrder(host), Desired::CertificateOrder(order)) = (unit, desired) else {
            return Report::default();
        };
        {
            let mut attempts = self.attempts();
            match &observed.attempt {
                Some(attempt) => attempts.under_way.insert(host.clone(), attempt.clone()),
                None => attempts.under_way.remove(host),
            };
        }
        if order.acme.dns.is_some() {
            self.records.note_change();
        }
        let answers = observed.attempt.as_ref().map(Attempt::answers).unwrap_or_default();
        let validation = observed.attempt.as_ref().and_then(Attempt::validation);
        let asked = Fact::Challenge(Arc::new(Challenge { host: host.clone(), answers, validation }));
        let secret = observed.stored.as_ref().map(|it| Fact::Secret(Arc::new(it.secret(host))));
        let owner = Owner::Config(FRONT_DOOR.into());
        Report {
            facts: secret.into_iter().chain([asked]).collect(),
            problems: observed.problem(order).map(|it| (owner, it)).into_iter().collect(),
            again: Some(observed.again(order)),
            ..Report::default()
        }
    }
}

#[cfg(test)]
mod tests;
