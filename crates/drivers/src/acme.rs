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
//! certificate that is stored is never ordered again before two thirds of its life are over.

mod attempt;
mod reach;
mod schedule;

use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use seaway_acme::{Account, AcmeError, Directory, Key};
use seaway_engine::{Conclusion, Driver, Failure};
use seaway_files::state::{CertificateStore, FailedOrders};
use seaway_model::{
    Desired, Fact, Name, Owner, Problem, Reason, Time, Unit,
    acme::{Acme, CertificateOrder, Challenge, ordered_certificate},
    fact::{Secret, TLS_SECRET},
};
use seaway_plan::{CertificateDates, FRONT_DOOR, certificate_dates};
use tracing::{info, warn};

use self::attempt::Attempt;

/// Where nothing is under way: a certificate that somebody put there, or removed, is noticed within this time.
const LOOK_EVERY: Duration = Duration::from_secs(3600);
/// The same where an order waits: whoever mended what was wrong removes the file of failures.
const LOOK_WHILE_WAITING: Duration = Duration::from_secs(60);
/// The front door is not open yet, or has not taken over what it is to answer.
const SOON: Duration = Duration::from_millis(200);

pub struct Certificates {
    store: CertificateStore,
    /// One for each authority; made when the first order wants it.
    accounts: tokio::sync::Mutex<HashMap<Acme, Account>>,
    attempts: Mutex<Attempts>,
}

#[derive(Default)]
struct Attempts {
    under_way: HashMap<Name, Attempt>,
    /// Why the last attempt failed.
    failed: HashMap<Name, String>,
    /// Whose stored certificate was told.
    told: HashSet<Name>,
}

/// What is stored for a host name, and what is under way.
pub struct Observed {
    /// What is wanted.
    order: Option<Arc<CertificateOrder>>,
    now: SystemTime,
    stored: Option<Stored>,
    attempt: Option<Attempt>,
    failed: FailedOrders,
    /// Why the last attempt failed.
    why: Option<String>,
    /// Nothing was told of it yet, and what is stored comes first.
    is_first: bool,
}

/// A certificate with its key.
#[derive(Clone)]
struct Stored {
    pem: String,
    dates: CertificateDates,
    is_current: bool,
}

#[derive(Debug, PartialEq)]
pub enum Step {
    Begin,
    Answer,
    Finalize,
    Keep,
    Abandon(String),
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Step::Begin => f.write_str("order a certificate"),
            Step::Answer => f.write_str("let the certificate authority check the host name"),
            Step::Finalize => f.write_str("ask for the certificate to be signed"),
            Step::Keep => f.write_str("store the certificate"),
            Step::Abandon(why) => write!(f, "end the order: {why}"),
        }
    }
}

impl Certificates {
    pub fn new(store: CertificateStore) -> Certificates {
        Certificates { store, accounts: tokio::sync::Mutex::default(), attempts: Mutex::default() }
    }

    fn attempts(&self) -> MutexGuard<'_, Attempts> {
        self.attempts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn account(&self, acme: &Acme) -> Result<Account, AcmeError> {
        let mut accounts = self.accounts.lock().await;
        if let Some(account) = accounts.get(acme) {
            return Ok(account.clone());
        }
        let directory = Directory::open(&acme.directory, acme.authorities.as_deref()).await?;
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
        let account = Account::open(&directory, Arc::new(key), acme.email.as_deref()).await?;
        info!(directory = %acme.directory, ?account, "certificates are ordered with this account");
        accounts.insert(acme.clone(), account.clone());
        Ok(account)
    }

    fn stored(&self, order: &CertificateOrder) -> Option<Stored> {
        let CertificateOrder { host, acme, .. } = order;
        let stored = match self.store.certificate(&acme.directory, host) {
            Ok(stored) => stored?,
            Err(error) => {
                warn!(%host, %error, "the stored certificate cannot be read; another one is ordered");
                return None;
            }
        };
        let dates = certificate_dates(&stored.pem);
        if dates.is_none() {
            warn!(%host, "the stored file has no certificate; another one is ordered");
        }
        Some(Stored { dates: dates?, pem: stored.pem, is_current: stored.is_current })
    }

    /// One step of an attempt; an error ends it.
    async fn advance(
        &self,
        order: &CertificateOrder,
        step: &Step,
        observed: &mut Observed,
    ) -> Result<(), AcmeError> {
        match step {
            Step::Begin => {
                let account = self.account(&order.acme).await?;
                observed.attempt = Some(Attempt::begin(account, order).await?);
            }
            Step::Answer => {
                if let Some(attempt) = &mut observed.attempt {
                    attempt.answer().await?;
                }
            }
            Step::Finalize => {
                if let Some(attempt) = &mut observed.attempt {
                    attempt.finalize(&order.host).await?;
                }
            }
            Step::Keep => {
                let Some(attempt) = &observed.attempt else { return Ok(()) };
                let pem = attempt.certificate().await?;
                self.keep(order, pem, observed)?;
                observed.attempt = None;
            }
            Step::Abandon(why) => {
                let url = order.acme.directory.to_string();
                return Err(AcmeError::Unexpected { url, why: why.clone() });
            }
        }
        Ok(())
    }

    fn keep(&self, order: &CertificateOrder, pem: String, observed: &mut Observed) -> Result<(), AcmeError> {
        let CertificateOrder { host, acme, .. } = order;
        let unexpected =
            |why: &str| AcmeError::Unexpected { url: acme.directory.to_string(), why: why.into() };
        let dates = certificate_dates(&pem).ok_or_else(|| unexpected("what it issued is no certificate"))?;
        let written = self.store.keep_certificate(&acme.directory, host, &pem);
        written.map_err(|error| AcmeError::Key(format!("the certificate cannot be stored: {error}")))?;
        info!(%host, "a certificate was issued");
        observed.stored = Some(Stored { pem, dates, is_current: true });
        if observed.failed != FailedOrders::default() {
            observed.failed = FailedOrders::default();
            self.note_failed(order, observed);
        }
        observed.why = None;
        self.attempts().failed.remove(host);
        Ok(())
    }

    fn fail(&self, order: &CertificateOrder, error: &AcmeError, observed: &mut Observed) {
        let CertificateOrder { host, acme, .. } = order;
        observed.failed =
            schedule::after_failure(observed.failed, error.retry_after(), seconds(observed.now));
        let why = match error {
            // What we say ourselves needs no address.
            AcmeError::Unexpected { url, why } if **url == *acme.directory => why.clone(),
            other => other.to_string(),
        };
        warn!(%host, why, failures = observed.failed.count, "no certificate was issued");
        observed.attempt = None;
        self.attempts().failed.insert(host.clone(), why.clone());
        observed.why = Some(why);
        self.note_failed(order, observed);
    }

    /// Without that, a process that starts again and again would ask more often than it may.
    fn note_failed(&self, order: &CertificateOrder, observed: &Observed) {
        let CertificateOrder { host, acme, .. } = order;
        if let Err(error) = self.store.keep_failed(&acme.directory, host, observed.failed) {
            warn!(%host, %error, "failed orders cannot be remembered");
        }
    }
}

impl Driver for Certificates {
    type Observed = Observed;
    type Step = Step;

    fn serves(&self, unit: &Unit) -> bool {
        matches!(unit, Unit::CertificateOrder(_))
    }

    /// A step is a few requests, each with a bound of its own.
    fn patience(&self) -> Duration {
        Duration::from_secs(120)
    }

    /// An authority is asked for few at once.
    fn width(&self) -> usize {
        4
    }

    async fn observe(&self, unit: &Unit, desired: &Desired) -> Result<Observed, Failure> {
        let now = SystemTime::now();
        let Desired::CertificateOrder(order) = desired else {
            if let Unit::CertificateOrder(host) = unit {
                let mut attempts = self.attempts();
                attempts.under_way.remove(host);
                attempts.failed.remove(host);
                attempts.told.remove(host);
            }
            return Ok(Observed {
                order: None,
                now,
                stored: None,
                attempt: None,
                failed: FailedOrders::default(),
                why: None,
                is_first: true,
            });
        };
        let (under_way, why, is_first) = {
            let mut attempts = self.attempts();
            let under_way = attempts.under_way.remove(&order.host);
            let why = attempts.failed.get(&order.host).cloned();
            (under_way, why, attempts.told.insert(order.host.clone()))
        };
        // Somebody wants it from elsewhere now.
        let mut attempt = under_way.filter(|it| it.acme == order.acme);
        if let Some(attempt) = &mut attempt {
            attempt.look(order).await;
        }
        Ok(Observed {
            order: Some(order.clone()),
            now,
            stored: self.stored(order),
            attempt,
            failed: self.store.failed(&order.acme.directory, &order.host),
            why,
            is_first,
        })
    }

    fn steps(&self, desired: &Desired, observed: &Observed) -> Vec<Step> {
        let Desired::CertificateOrder(order) = desired else { return Vec::new() };
        let step = match &observed.attempt {
            Some(attempt) => attempt.next(observed.now),
            None => {
                let begins = !observed.is_first
                    && !order.answers_at.is_empty()
                    && observed.failed.wait_until <= seconds(observed.now)
                    && observed.due_in(order).is_zero();
                begins.then_some(Step::Begin)
            }
        };
        step.into_iter().collect()
    }

    /// What fails is told, and never keeps what is stored from being shown.
    async fn apply(&self, _: &Unit, step: &Step, observed: &mut Observed) -> Result<(), Failure> {
        let Some(order) = observed.order.clone() else { return Ok(()) };
        if let Err(error) = self.advance(&order, step, observed).await {
            self.fail(&order, &error, observed);
        }
        Ok(())
    }

    fn conclude(&self, unit: &Unit, desired: &Desired, observed: &Observed) -> Conclusion {
        let (Unit::CertificateOrder(host), Desired::CertificateOrder(order)) = (unit, desired) else {
            return Conclusion::default();
        };
        if let Some(attempt) = &observed.attempt {
            self.attempts().under_way.insert(host.clone(), attempt.clone());
        }
        let answers = observed.attempt.as_ref().map(Attempt::answers).unwrap_or_default();
        let asked = Fact::Challenge(Arc::new(Challenge { host: host.clone(), answers }));
        let secret = observed.stored.as_ref().map(|it| Fact::Secret(Arc::new(it.secret(host))));
        let owner = Owner::Config(FRONT_DOOR.into());
        Conclusion {
            facts: secret.into_iter().chain([asked]).collect(),
            problems: observed.problem(host).map(|it| (owner, it)).into_iter().collect(),
            again: Some(observed.again(order)),
            ..Conclusion::default()
        }
    }
}

impl Observed {
    fn due_in(&self, order: &CertificateOrder) -> Duration {
        let Some(stored) = self.stored.as_ref().filter(|it| it.is_current) else { return Duration::ZERO };
        let due = schedule::due(&stored.dates, &order.host);
        Duration::from_millis(due.0.saturating_sub(millis(self.now).0))
    }

    fn again(&self, order: &CertificateOrder) -> Duration {
        match &self.attempt {
            Some(attempt) => attempt.again(),
            None if self.failed.wait_until > seconds(self.now) => {
                let wait = self.failed.wait_until.saturating_sub(seconds(self.now));
                Duration::from_secs(wait).min(LOOK_WHILE_WAITING)
            }
            None => self.due_in(order).clamp(SOON, LOOK_EVERY),
        }
    }

    fn problem(&self, host: &Name) -> Option<Problem> {
        if self.failed.count == 0 {
            return None;
        }
        let why = self.why.as_deref().unwrap_or("an order failed before this process started");
        let still = match &self.stored {
            Some(_) => "the certificate was not renewed, and the previous one is still shown",
            None => "no certificate was issued",
        };
        let message = format!("{still}: {why}");
        let wait = schedule::human(schedule::wait(self.failed.count));
        let fix = format!(
            "Look whether {host} leads to this machine in DNS, and whether port 80 is reachable from outside. \
             Seaway tries again after {wait}."
        );
        Some(Problem::new(ordered_certificate(host), Reason::CertificateOrder, message).fix(fix))
    }
}

impl Stored {
    fn secret(&self, host: &Name) -> Secret {
        let text = || secrecy::SecretString::from(self.pem.clone());
        Secret {
            object: ordered_certificate(host),
            created: None,
            kind: TLS_SECRET.into(),
            values: [("tls.crt".into(), text()), ("tls.key".into(), text())].into(),
            staple: None,
            withheld: false,
        }
    }
}

fn seconds(at: SystemTime) -> u64 {
    at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

fn millis(at: SystemTime) -> Time {
    Time(u64::try_from(at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis()).unwrap_or(u64::MAX))
}
