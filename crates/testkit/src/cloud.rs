//! An OpenStack that lives in the test: Keystone and Octavia over HTTP on the loopback.
//!
//! ```text
//!   client ──HTTP──► server ──► faults ──► routes ──► identity · octavia · …  ──►  state
//!                       │                                                       (one plain value)
//!                    journal                                                         ▲
//!   test ──► fail, requests, advance, pace, …  ──────────────────────────────────────┘
//! ```
//!
//! It behaves like the real services as far as a client can tell: one suite runs against both. It serves until it is dropped,
//! from a thread of its own, so that tests with and without a runtime can use it.
//!
//! ```
//! use seaway_testkit::cloud::{Cloud, Fault};
//!
//! let cloud = Cloud::start();
//! cloud.fail(Fault::on("POST */lbaas/loadbalancers").status(503));
//! // … a client that signs in at `cloud.auth_url()` as demo, with demopw …
//! assert_eq!(cloud.count("POST *"), 0);
//! ```

mod barbican;
mod clock;
mod exchange;
mod identity;
mod journal;
mod neutron;
mod nova;
mod octavia;
mod operator;
mod python;
mod routes;
mod sockets;
mod state;
mod store;

use std::{
    net::Ipv4Addr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, SystemTime},
};

use tokio::task::JoinSet;

use self::{
    clock::FakeTime,
    exchange::{Refusal, Reply, Request},
    routes::Service,
    state::State,
};
pub use self::{identity::IdentityVersions, journal::Recorded, octavia::ChangeDuration};
pub use crate::faults::{Fault, RequestHold, RequestMatcher};
use crate::{
    faults::{CannedBody, Script, TriggeredFault},
    server::{Server, bind},
};

const SERVICES: [Service; 5] =
    [identity::SERVICE, neutron::SERVICE, octavia::SERVICE, nova::SERVICE, barbican::SERVICE];

/// A running fake. Dropping it closes its sockets.
#[derive(Debug)]
pub struct Cloud {
    url: String,
    shared: Arc<Shared>,
    _serves: ServerHandle,
}

/// Ends when it is dropped.
#[derive(Debug)]
enum ServerHandle {
    Thread { _server: Server },
    Tasks { _all: JoinSet<()> },
}

impl Cloud {
    /// An empty cloud, with users `admin` (adminpw), `demo` and `alt` (demopw) in projects of the same names.
    ///
    /// # Panics
    /// If the loopback has no free port.
    pub fn start() -> Cloud {
        Cloud::served(|listener, shared| {
            let serve = move || sockets::serve(listener, shared);
            ServerHandle::Thread { _server: Server::start("fake-cloud", serve).expect("a thread") }
        })
    }

    /// The same, served by the runtime of the caller: with paused time, no time passes while a request is under way.
    ///
    /// # Panics
    /// If the loopback has no free port, or outside of a runtime.
    pub fn start_here() -> Cloud {
        Cloud::served(|listener, shared| {
            let mut all = JoinSet::new();
            all.spawn(sockets::serve(listener, shared));
            ServerHandle::Tasks { _all: all }
        })
    }

    fn served(serve: impl FnOnce(std::net::TcpListener, Arc<Shared>) -> ServerHandle) -> Cloud {
        let (listener, address) = bind(Ipv4Addr::LOCALHOST.into()).expect("a free port on the loopback");
        let url = format!("http://{address}");
        let state = State::new(&url, FakeTime::of(SystemTime::now()));
        let shared =
            Arc::new(Shared(Mutex::new(Inner { state, script: Script::default(), journal: Vec::new() })));
        let serves = serve(listener, Arc::clone(&shared));
        Cloud { url, shared, _serves: serves }
    }

    /// `http://127.0.0.1:40123`
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where version 3 of the identity API is.
    pub fn auth_url(&self) -> String {
        format!("{}/identity/v3", self.url)
    }

    /// Scripts what goes wrong.
    pub fn fail(&self, fault: Fault) {
        let mut inner = self.shared.locked();
        let Inner { state, script, .. } = &mut *inner;
        script.add(fault, state);
    }

    /// Forgets all that was scripted.
    pub fn heal(&self) {
        self.shared.locked().script.clear();
    }

    /// All requests so far, in order.
    pub fn requests(&self) -> Vec<Recorded> {
        self.shared.locked().journal.clone()
    }

    /// How many of them fit a pattern like `"GET */lbaas/*"`.
    pub fn count(&self, pattern: &str) -> usize {
        self.shared.locked().journal.iter().filter(|it| it.fits(pattern)).count()
    }

    /// Counts anew.
    pub fn forget_requests(&self) {
        self.shared.locked().journal.clear();
    }

    pub fn now(&self) -> SystemTime {
        self.shared.locked().state.now.time()
    }

    /// Moves the fake's clock, which else stands still.
    pub fn advance(&self, time: Duration) {
        let state = &mut self.shared.locked().state;
        state.now = state.now.after(time);
    }

    /// Takes an extension away from Neutron, as if it had never been there: `extraroute-atomic`.
    pub fn without_extension(&self, alias: &str) {
        self.shared.locked().state.neutron.without.push(alias.to_owned());
    }

    /// What neutron.conf says of `max_routes` and `max_allowed_address_pair`.
    pub fn network_limits(&self, routes: usize, pairs: usize) {
        self.shared.locked().state.neutron.limits = neutron::Limits { routes, pairs };
    }

    /// How long changes of load balancers take.
    pub fn pace(&self, pace: ChangeDuration) {
        self.shared.locked().state.octavia.pace = pace;
    }
}

/// What the thread and the test share. No lock is held while anybody waits.
#[derive(Debug)]
struct Shared(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    state: State,
    script: Script<State>,
    journal: Vec<Recorded>,
}

impl Shared {
    fn locked(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the request down. Tells its number, and what is to go wrong with it.
    fn record(&self, request: &Request, query: &str) -> (usize, Option<TriggeredFault<State>>) {
        let mut inner = self.locked();
        let at = inner.state.now.time();
        inner.journal.push(Recorded::of(request, query, at));
        let struck = inner.script.strike(&request.method, &request.path);
        (inner.journal.len() - 1, struck)
    }

    fn replied(&self, number: usize, status: u16) {
        if let Some(recorded) = self.locked().journal.get_mut(number) {
            recorded.status = Some(status);
        }
    }

    fn answer(&self, request: Request) -> Reply {
        respond(&mut self.locked().state, request)
    }

    /// From the state as it was; nothing comes of it.
    fn answer_from(&self, then: Option<Box<State>>, request: Request) -> Reply {
        match then {
            Some(mut then) => {
                then.identity = self.locked().state.identity.clone();
                respond(&mut then, request)
            }
            None => self.answer(request),
        }
    }

    fn canned(
        &self,
        request: &Request,
        status: u16,
        headers: Vec<(String, String)>,
        body: CannedBody,
    ) -> Reply {
        let service = SERVICES.iter().find(|it| request.path.starts_with(it.prefix));
        let mut reply = match (body, service) {
            (CannedBody::Json(body), _) => Reply::json(status, body),
            (CannedBody::Html(page), _) => Reply::raw(status, page, "text/html"),
            (CannedBody::OwnWords, Some(service)) => {
                (service.refuse)(&Refusal::new(status, "Scripted by a test."))
            }
            (CannedBody::OwnWords, None) => Reply::empty(status),
        };
        reply.headers.extend(headers);
        reply
    }
}

fn respond(state: &mut State, request: Request) -> Reply {
    state.settle();
    state.settle_servers();
    routes::answer(state, &SERVICES, request)
}
