//! A cloud that we are signed in to.

mod settings;
mod verdict;
mod versions;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tracing::Instrument;

use crate::{
    call::{Accept, Call, Reply, Service},
    clock::Clock,
    credentials::Source,
    error::{Class, Error},
    http::{Answer, Ask, Dice, Exchange, Gate, Terms},
    identity::{
        Door, Keeper, Session,
        catalog::{Address, versioned},
    },
};

pub use settings::{Settings, Timing};
pub use versions::Versions;

/// Cheap to clone; all clones share one session, one limit and one set of metrics.
#[derive(Clone)]
pub struct Cloud(Arc<Inner>);

struct Inner {
    door: Arc<Door>,
    keeper: Keeper,
    versions: Mutex<HashMap<Service, Arc<Versions>>>,
    refused_writes: Mutex<Vec<String>>,
}

/// More writes than a human reads.
const LISTED_WRITES: usize = 10_000;

impl Cloud {
    /// Reads the credentials and signs in.
    pub async fn connect(source: Source, settings: Settings) -> Result<Cloud, Error> {
        let gate = Gate::new(settings.limits);
        let door = Arc::new(Door { settings, gate, dice: Dice::default() });
        let keeper = Keeper::start(source, door.clone()).await?;
        Ok(Cloud(Arc::new(Inner {
            door,
            keeper,
            versions: Mutex::default(),
            refused_writes: Mutex::default(),
        })))
    }

    /// Asks a service: within limits and time-outs, repeated where that is safe, signed in anew once when need be.
    pub async fn call(&self, call: Call) -> Result<Reply, Error> {
        let span = tracing::debug_span!(
            "openstack",
            service = %call.service,
            operation = call.operation,
            method = %call.method,
            path = call.path,
        );
        let start = self.clock().now();
        let outcome = self.ask(&call).instrument(span).await;
        let took = self.clock().now().saturating_duration_since(start);
        self.settings().metrics.called(&call, outcome.as_ref().err(), took);
        outcome
    }

    async fn ask(&self, call: &Call) -> Result<Reply, Error> {
        if self.settings().dry_run && call.writes() {
            return Err(self.refuse(call));
        }
        let mut session = self.0.keeper.good(self.clock().now()).await?;
        let id = self.request_id();
        let mut outcome = self.ask_as(&session, call, &id).await?;
        // The token was revoked, or our clocks disagree: one more try with another.
        if matches!(&outcome, Ok(Answer { status: 401, .. })) {
            session = self.0.keeper.renew(session.number).await?;
            outcome = self.ask_as(&session, call, &id).await?;
        }
        verdict::of(call, outcome, &id)
    }

    async fn ask_as(
        &self,
        session: &Session,
        call: &Call,
        id: &str,
    ) -> Result<Result<Answer, crate::http::Trouble>, Error> {
        let address = address(session, call.service).map_err(|error| error.during(call))?;
        let url = format!("{}{}", versioned(&address.url, call.service), call.path);
        let mut headers = vec![("x-openstack-request-id", id.to_owned())];
        if let Some(version) = call.microversion {
            headers.push(("openstack-api-version", format!("{} {version}", call.service)));
        }
        if let Some(revision) = call.revision {
            headers.push(("if-match", format!("revision_number={revision}")));
        }
        let ask = Ask {
            method: call.method.clone(),
            url: &url,
            query: &call.query,
            headers,
            token: Some(&session.token),
            body: call.body.as_ref(),
            accept: call.accept,
            address_from: &address.from,
        };
        let terms = self.terms(session, call.repeatable());
        Ok(self
            .exchange(&|| self.settings().metrics.repeated(call))
            .with(&session.transport, &ask, &terms)
            .await)
    }

    /// Who we are now. It changes when a token is renewed.
    pub fn session(&self) -> Arc<Session> {
        self.0.keeper.current()
    }

    /// The root of a service that calls' paths are below.
    pub fn endpoint(&self, service: Service) -> Result<String, Error> {
        address(&self.session(), service).map(|address| versioned(&address.url, service))
    }

    /// Asks a service what it speaks; it is asked once.
    pub async fn versions(&self, service: Service) -> Result<Arc<Versions>, Error> {
        if let Some(known) = lock(&self.0.versions).get(&service) {
            return Ok(known.clone());
        }
        let session = self.0.keeper.good(self.clock().now()).await?;
        let address = address(&session, service)?;
        let call = Call::get(service, "list versions", "");
        let start = self.clock().now();
        let found = self.discover(&session, &address, &call).await;
        let took = self.clock().now().saturating_duration_since(start);
        self.settings().metrics.called(&call, found.as_ref().err(), took);
        let found = Arc::new(found?);
        lock(&self.0.versions).insert(service, found.clone());
        Ok(found)
    }

    async fn discover(&self, session: &Session, address: &Address, call: &Call) -> Result<Versions, Error> {
        let mut last = None;
        for url in versions::places(&address.url, call.service) {
            let ask = Ask {
                method: call.method.clone(),
                url: &url,
                query: &[],
                headers: Vec::new(),
                token: Some(&session.token),
                body: None,
                accept: Accept::Json,
                address_from: &address.from,
            };
            let terms = self.terms(session, true);
            let answer = self.exchange(&|| {}).with(&session.transport, &ask, &terms).await;
            let answer = answer.map_err(|trouble| trouble.error.during(call))?;
            match Versions::read(answer.body.json()) {
                Some(versions) => return Ok(versions),
                None => last = verdict::of(call, Ok(answer), "").err().or(last),
            }
        }
        Err(last.unwrap_or_else(|| {
            Error::new(Class::NotOpenStack, format!("{} lists no versions", address.url)).during(call)
        }))
    }

    /// Whoever waits for the cloud waits by this one.
    pub fn clock(&self) -> &dyn Clock {
        &*self.settings().clock
    }

    /// What is odd about the credentials, though they work: a file that others can read, keys that nobody knows.
    pub fn warnings(&self) -> Vec<String> {
        self.0.keeper.warnings()
    }

    /// What a dry run did not do, in order.
    pub fn refused_writes(&self) -> Vec<String> {
        lock(&self.0.refused_writes).clone()
    }

    fn refuse(&self, call: &Call) -> Error {
        let mut refused = lock(&self.0.refused_writes);
        if refused.len() < LISTED_WRITES {
            refused.push(call.to_string());
        }
        tracing::info!(%call, "not done: this is a dry run");
        Error::new(Class::DryRun, format!("{call} was not done: this is a dry run")).during(call)
    }

    fn exchange<'a>(&'a self, repeated: &'a (dyn Fn() + Send + Sync)) -> Exchange<'a> {
        let Door { gate, dice, .. } = &*self.0.door;
        Exchange { clock: self.clock(), gate, dice, repeated }
    }

    fn terms(&self, session: &Session, repeatable: bool) -> Terms {
        let Settings { timing, backoff, .. } = self.settings();
        Terms { timing: timing.within(session.credentials.timeout), backoff: *backoff, repeatable }
    }

    fn settings(&self) -> &Settings {
        &self.0.door.settings
    }

    /// Ours, which a service logs beside its own: the only one there is when a reply is lost.
    fn request_id(&self) -> String {
        let (high, low) = (self.0.door.dice.roll(), self.0.door.dice.roll());
        let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0xfff);
        let (d, e) = (low >> 48 & 0x3fff | 0x8000, low & 0xffff_ffff_ffff);
        format!("req-{a:08x}-{b:04x}-4{c:03x}-{d:04x}-{e:012x}")
    }
}

/// Keystone is asked where we signed in: that much is known to be reachable.
fn address(session: &Session, service: Service) -> Result<Address, Error> {
    let credentials = &session.credentials;
    if service == Service::Identity && !credentials.overrides.contains_key(&service) {
        let from = format!("auth_url ({})", credentials.auth_url.place);
        return Ok(Address { url: session.auth_url.clone(), from });
    }
    session.catalog.find(service, credentials)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
