//! A cloud that we are signed in to.

pub(crate) mod fuzz;
mod settings;
mod verdict;
mod versions;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use tracing::Instrument;

use crate::{
    call::{Call, Reply, Service},
    clock::Clock,
    credentials::Source,
    error::{Class, Error},
    http::{Exchange, ExchangeOptions, HttpReply, HttpRequest, RandomSource, RequestLimiter, TimeBudget},
    identity::{
        Session, SessionKeeper, SignInContext,
        catalog::{ServiceAddress, versioned},
    },
};

pub use settings::{Fence, Settings, Timing};
pub use versions::Versions;

/// Cheap to clone; all clones share one session, one limit and one set of metrics. A process has one for each project, or
/// that project's limit is twice what was said.
#[derive(Clone)]
pub struct Cloud(Arc<Inner>, Option<Fence>);

struct Inner {
    context: Arc<SignInContext>,
    keeper: SessionKeeper,
    versions: Mutex<HashMap<Service, (Instant, Arc<Versions>)>>,
    refused_writes: Mutex<Vec<String>>,
}

/// A call under way.
struct CallInProgress<'a> {
    call: &'a Call,
    session: Arc<Session>,
    /// Of the request, by our own count.
    id: String,
    left: TimeBudget,
}

/// More writes than a human reads.
const LISTED_WRITES: usize = 10_000;

impl Cloud {
    /// Reads the credentials and signs in.
    pub async fn connect(source: Source, settings: Settings) -> Result<Cloud, Error> {
        let gate = RequestLimiter::new(settings.limits);
        let context = Arc::new(SignInContext { settings, gate, random: RandomSource::default() });
        let keeper = SessionKeeper::start(source, context.clone()).await?;
        let (versions, refused_writes) = Default::default();
        Ok(Cloud(Arc::new(Inner { context, keeper, versions, refused_writes }), None))
    }

    /// The same, for who writes under another Lease.
    #[must_use]
    pub fn with_fence(&self, fence: Fence) -> Cloud {
        Cloud(self.0.clone(), Some(fence))
    }

    /// Asks a service: within limits and time-outs, repeated where that is safe, signed in anew once when need be.
    pub async fn call(&self, call: Call) -> Result<Reply, Error> {
        self.instrumented(&call, self.ask(&call)).await
    }

    /// With a span, a count and a time.
    async fn instrumented<T>(
        &self,
        call: &Call,
        doing: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let span = tracing::debug_span!(
            "openstack",
            service = %call.service,
            operation = call.operation,
            method = %call.method,
            path = call.path,
        );
        let start = self.clock().now();
        let outcome = doing.instrument(span).await;
        let took = self.clock().now().saturating_duration_since(start);
        self.settings().metrics.count_call(call, outcome.as_ref().err(), took);
        outcome
    }

    async fn ask(&self, call: &Call) -> Result<Reply, Error> {
        if self.settings().dry_run && call.is_write() {
            return Err(self.refuse(call));
        }
        let mut asking = self.asking(call).await?;
        let place = |session: &Session| {
            let address = address(session, call.service)?;
            Ok(ServiceAddress {
                url: format!("{}{}", versioned(&address.url, call.service), call.path),
                ..address
            })
        };
        let outcome = self.ask_at(&mut asking, &place).await?;
        verdict::read_outcome(call, outcome, &asking.id)
    }

    async fn asking<'a>(&self, call: &'a Call) -> Result<CallInProgress<'a>, Error> {
        let timing = self.settings().timing.within(self.session().credentials.timeout);
        let mut left = TimeBudget::of(timing);
        let session = self
            .0
            .keeper
            .usable_session(self.clock(), &mut left)
            .await
            .map_err(|it| it.with_operation(call.operation))?;
        Ok(CallInProgress { call, session, id: self.request_id(), left })
    }

    /// Once more with another token, if one was revoked, or our clocks disagree.
    async fn ask_at(
        &self,
        asking: &mut CallInProgress<'_>,
        place: &(dyn Fn(&Session) -> Result<ServiceAddress, Error> + Send + Sync),
    ) -> Result<Result<HttpReply, crate::http::AttemptError>, Error> {
        let outcome = self.ask_once(asking, place).await?;
        if !matches!(&outcome, Ok(HttpReply { status: 401, .. })) {
            return Ok(outcome);
        }
        let CallInProgress { session, left, call, .. } = asking;
        let renewed = self.0.keeper.renew(session.number, self.clock(), left).await;
        *session = renewed.map_err(|it| it.with_operation(call.operation))?;
        self.ask_once(asking, place).await
    }

    async fn ask_once(
        &self,
        asking: &mut CallInProgress<'_>,
        place: &(dyn Fn(&Session) -> Result<ServiceAddress, Error> + Send + Sync),
    ) -> Result<Result<HttpReply, crate::http::AttemptError>, Error> {
        let CallInProgress { call, session, id, left } = asking;
        let address = place(session).map_err(|error| error.during(call))?;
        let mut headers = vec![("x-openstack-request-id", id.clone())];
        if let Some(version) = call.microversion {
            headers.push(("openstack-api-version", format!("{} {version}", call.service)));
        }
        if let Some(revision) = call.revision {
            headers.push(("if-match", format!("revision_number={revision}")));
        }
        let ask = HttpRequest {
            method: call.method.clone(),
            url: &address.url,
            query: &call.query,
            headers,
            token: Some(&session.token),
            body: call.body.as_ref(),
            accept: call.accept,
            address_from: &address.from,
        };
        let Settings { timing, backoff, metrics, fence, .. } = self.settings();
        let attempt = timing.within(session.credentials.timeout).attempt;
        let terms = ExchangeOptions { attempt, backoff: *backoff, repeatable: call.is_repeatable() };
        let repeated = || metrics.count_repeat(call);
        let SignInContext { gate, random, .. } = &*self.0.context;
        let fence = self.1.as_ref().unwrap_or(fence);
        let may = || !call.is_write() || fence.is_open();
        let exchange = Exchange { clock: self.clock(), gate, random, may: &may, repeated: &repeated };
        // Everything that asks holds this: on the heap it makes nobody's own state large.
        Ok(Box::pin(exchange.run(&session.transport, &ask, &terms, left)).await)
    }

    /// Who we are now. It changes when a token is renewed.
    pub fn session(&self) -> Arc<Session> {
        self.0.keeper.current_session()
    }

    /// The root of a service that calls' paths are below.
    pub fn endpoint(&self, service: Service) -> Result<String, Error> {
        address(&self.session(), service).map(|address| versioned(&address.url, service))
    }

    /// Asks a service what it speaks; what it said an hour ago still counts.
    pub async fn versions(&self, service: Service) -> Result<Arc<Versions>, Error> {
        let now = self.clock().now();
        if let Some((since, known)) = lock(&self.0.versions).get(&service)
            && now.saturating_duration_since(*since) < versions::LASTING
        {
            return Ok(known.clone());
        }
        let call = Call::get(service, "list versions", "");
        let found = Arc::new(self.instrumented(&call, self.discover(&call)).await?);
        lock(&self.0.versions).insert(service, (now, found.clone()));
        Ok(found)
    }

    async fn discover(&self, call: &Call) -> Result<Versions, Error> {
        let mut asking = self.asking(call).await?;
        let mut last = None;
        for place in versions::PLACES {
            let at = |session: &Session| {
                let address = address(session, call.service)?;
                Ok(ServiceAddress { url: place(&address.url, call.service), ..address })
            };
            let outcome = self.ask_at(&mut asking, &at).await?;
            let found = outcome.as_ref().ok().and_then(|answer| Versions::read(answer.body.json()));
            match found {
                Some(versions) => return Ok(versions),
                None => last = verdict::read_outcome(call, outcome, &asking.id).err().or(last),
            }
        }
        Err(last.unwrap_or_else(|| {
            let service = call.service.project();
            Error::new(Class::NotOpenStack, format!("{service} lists no versions")).during(call)
        }))
    }

    /// Whoever waits for the cloud waits by this one.
    pub fn clock(&self) -> &dyn Clock {
        &*self.settings().clock
    }

    /// What is counted of this cloud.
    pub fn metrics(&self) -> &crate::Metrics {
        &self.settings().metrics
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
        tracing::info!(%call, "dry run: request not sent");
        Error::new(Class::DryRun, format!("{call} was not done: this is a dry run")).during(call)
    }

    fn settings(&self) -> &Settings {
        &self.0.context.settings
    }

    /// Ours, which a service logs beside its own: the only one there is when a reply is lost.
    fn request_id(&self) -> String {
        let (high, low) = (self.0.context.random.roll(), self.0.context.random.roll());
        let (a, b, c) = (high >> 32, high >> 16 & 0xffff, high & 0xfff);
        let (d, e) = (low >> 48 & 0x3fff | 0x8000, low & 0xffff_ffff_ffff);
        format!("req-{a:08x}-{b:04x}-4{c:03x}-{d:04x}-{e:012x}")
    }
}

/// Keystone is asked where we signed in: that much is known to be reachable.
fn address(session: &Session, service: Service) -> Result<ServiceAddress, Error> {
    let credentials = &session.credentials;
    if service == Service::Identity && !credentials.overrides.contains_key(&service) {
        let from = format!("auth_url ({})", credentials.auth_url.place);
        return Ok(ServiceAddress { url: session.auth_url.clone(), from });
    }
    session.catalog.find(service, credentials)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
