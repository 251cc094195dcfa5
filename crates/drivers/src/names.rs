//! DNS names of members outside: looked up again by their TTL, the last good answer kept.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::{Duration, Instant},
};

use hickory_resolver::{
    TokioResolver,
    config::{LookupIpStrategy, NameServerConfig, ResolverConfig},
    net::runtime::TokioRuntimeProvider,
};
use seaway_engine::{Context, Driver, Effect, Effects, Failure, Report};
use seaway_model::{Desired, Fact, Name, Unit, fact::ResolvedName};

/// However short a TTL says: a name server is not asked more often.
const SHORTEST: Duration = Duration::from_secs(1);
const LONGEST: Duration = Duration::from_secs(300);

/// Resolves the DNS names of members: a driver whose Units are names, and whose answers are facts.
pub struct MemberNames {
    resolver: TokioResolver,
}

/// What a name stands for now, and for how long.
#[derive(Debug)]
pub struct ResolvedAddresses {
    pub addresses: Vec<IpAddr>,
    pub valid: Duration,
}

/// No step: looking is all there is to do.
#[derive(Debug)]
pub enum NoStep {}

impl std::fmt::Display for NoStep {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match *self {}
    }
}

impl Effects for NoStep {
    fn effect(&self) -> Effect {
        match *self {}
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the DNS resolver cannot be set up; check `resolvers` in seaway.yaml, or /etc/resolv.conf: {0}")]
pub struct ResolverSetupError(String);

impl MemberNames {
    /// By these name servers, or by those of /etc/resolv.conf.
    pub fn new(servers: &[SocketAddr]) -> Result<MemberNames, ResolverSetupError> {
        let built = if servers.is_empty() {
            TokioResolver::builder_tokio()
        } else {
            let servers = servers.iter().map(|at| {
                let mut server = NameServerConfig::udp_and_tcp(at.ip());
                for connection in &mut server.connections {
                    connection.port = at.port();
                }
                server
            });
            let config = ResolverConfig::from_parts(None, Vec::new(), servers.collect());
            Ok(TokioResolver::builder_with_config(config, TokioRuntimeProvider::default()))
        };
        let mut builder = built.map_err(|error| ResolverSetupError(error.to_string()))?;
        let options = builder.options_mut();
        options.ip_strategy = LookupIpStrategy::Ipv4AndIpv6;
        // The engine asks again when the answer has run out; a second cache would only make it older.
        options.cache_size = 0;
        options.timeout = Duration::from_secs(2);
        options.attempts = 2;
        Ok(MemberNames { resolver: builder.build().map_err(|error| ResolverSetupError(error.to_string()))? })
    }
}

impl Driver for MemberNames {
    type Observed = Option<ResolvedAddresses>;
    type Step = NoStep;

    /// Each name server has its own time, and there may be several.
    fn attempt_timeout(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn serves(&self, unit: &Unit) -> bool {
        matches!(unit, Unit::Name(_))
    }

    fn steps(&self, _: &Desired, _: &Option<ResolvedAddresses>) -> Vec<NoStep> {
        Vec::new()
    }

    async fn observe(
        &self,
        _: &Context,
        unit: &Unit,
        desired: &Desired,
    ) -> Result<Option<ResolvedAddresses>, Failure> {
        let (Unit::Name(name), Desired::Name(_)) = (unit, desired) else { return Ok(None) };
        // With its final dot the name is whole: no search domain is tried.
        let whole = format!("{}.", name.trim_end_matches('.'));
        let found = self.resolver.lookup_ip(whole).await;
        let found = found.map_err(|error| Failure::retry(format!("{name} has no answer: {error}")))?;
        let mut addresses: Vec<IpAddr> = found.iter().collect();
        addresses.sort();
        addresses.dedup();
        let valid = found.valid_until().saturating_duration_since(Instant::now()).clamp(SHORTEST, LONGEST);
        Ok(Some(ResolvedAddresses { addresses, valid }))
    }

    async fn apply(
        &self,
        _: &Context,
        _: &Unit,
        step: &NoStep,
        _: &mut Option<ResolvedAddresses>,
    ) -> Result<(), Failure> {
        match *step {}
    }

    fn conclude(&self, _: &Unit, desired: &Desired, observed: &Option<ResolvedAddresses>) -> Report {
        let (Desired::Name(name), Some(answer)) = (desired, observed) else { return Report::default() };
        Report {
            facts: vec![Fact::Name(Arc::new(ResolvedName {
                name: Name::clone(name),
                addresses: answer.addresses.clone(),
            }))],
            again: Some(answer.valid),
            ..Report::default()
        }
    }

    fn width(&self) -> usize {
        16
    }
}
