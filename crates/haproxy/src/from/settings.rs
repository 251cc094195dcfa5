//! A pool's options as a backend has them.

use seaway_model::{
    Pool, Reason,
    load_balancer::{
        Affinity, BackendProtocol, CheckKind, ConnectionReuse as Wanted, CookieMode, HealthCheck,
        ProxyVersion, Timeouts, Trust,
    },
};

use super::{DocumentBuilder, frontends::FrontendContext, tls::is_pem};
use crate::{
    document::{
        Balance, Check, ConnectionReuse, HttpCheck, ImmediateResponse, ServerSettings, ServerTimeouts,
        ServerTls, Settings, Stickiness,
    },
    words::{Key, Label, Text, digest},
};

/// No body is so long, and from 2^63 on HAProxy takes no number.
const NO_LIMIT: u64 = 1 << 62;

/// What a listener says of the backends that it leads to.
#[derive(Clone, Copy, Debug)]
pub(super) struct ListenerSettings {
    pub(super) is_http: bool,
    pub(super) timeouts: Timeouts,
    pub(super) body: u64,
}

impl DocumentBuilder<'_> {
    pub(super) fn settings(
        &mut self,
        here: &FrontendContext<'_>,
        pool: &Pool,
        timed: ListenerSettings,
    ) -> Settings {
        use seaway_model::load_balancer::Balance as Of;
        let (owner, http, timeouts) = (&pool.owner, &pool.http, timed.timeouts);
        let Some(tls) = self.server_tls(pool) else { return closed(timed.is_http) };
        if pool.transparent {
            let what =
                "with HAProxy, members see the host's address and not the client's: the port is closed";
            self.unsupported(owner, "transparent", what);
            return closed(timed.is_http);
        }
        if pool.limits.connections.is_some() || pool.limits.new_per_second.is_some() {
            self.unsupported(
                owner,
                "max-connections",
                "HAProxy limits connections by port, not by Service: the limit is ignored",
            );
        }
        let (idle, answer) = (http.idle.unwrap_or(timeouts.idle), http.answer.unwrap_or(timeouts.answer));
        let body = http.body.unwrap_or(timed.body);
        Settings {
            is_http: timed.is_http,
            balance: match pool.balance {
                Of::RoundRobin => Balance::RoundRobin,
                Of::LeastConnections => Balance::LeastConnections,
                Of::RandomTwo => Balance::RandomTwo,
                Of::SourceHash => Balance::Source,
                Of::First => Balance::First,
            },
            check: self.check(pool),
            stick: self.stick(pool, timed.is_http),
            timeouts: ServerTimeouts {
                connect: http.connect.unwrap_or(timeouts.connect),
                answer: if timed.is_http { answer } else { idle },
                half_closed: http.half_closed.unwrap_or(timeouts.half_closed),
                idle,
                queue: pool.member_limit.map(|it| it.wait),
            },
            retries: None,
            reuse: match http.reuse {
                Wanted::Safe => ConnectionReuse::Safe,
                Wanted::Always => ConnectionReuse::Always,
                // HAProxy does not tell connections by whether they carried a body.
                Wanted::Strict | Wanted::Never => ConnectionReuse::Never,
            },
            body: (timed.is_http && body < NO_LIMIT).then_some(body),
            compression: self.compression(pool, timed.is_http),
            server: ServerSettings {
                http2: timed.is_http && pool.protocol == BackendProtocol::Http2,
                tls,
                proxy: pool.proxy.map(|it| match it {
                    ProxyVersion::V1 => 1,
                    ProxyVersion::V2 => 2,
                }),
                connections: pool.member_limit.map(|it| it.connections),
                slow_start: pool.slow_start.filter(|_| here.listener.l4 == pool.l4),
            },
            rules: Vec::new(),
            answer: None,
        }
    }

    fn check(&mut self, pool: &Pool) -> Option<Check> {
        let health = pool.health.as_ref()?;
        let http = match &health.kind {
            CheckKind::Tcp => None,
            CheckKind::Http { path, host, status, expect } => {
                let text = |it: &Option<seaway_model::Name>| match it.as_ref().filter(|it| !it.is_empty()) {
                    None => Some(None),
                    Some(it) => Text::new(it).map(Some),
                };
                let path = Some(path)
                    .filter(|it| it.starts_with('/') && !it.contains(' '))
                    .and_then(|it| Text::new(it));
                let (Some(path), Some(host), Some(expect)) = (path, text(host), text(expect)) else {
                    let what = "the check has a quote, a backslash or a space where HAProxy takes none: members are not checked";
                    self.unsupported(&pool.owner, "health-check", what);
                    return None;
                };
                Some(HttpCheck { path, host, status: *status, expect })
            }
            CheckKind::Grpc { .. } | CheckKind::Udp { .. } => {
                let what = "HAProxy has no gRPC or UDP health checks: it opens a TCP connection instead";
                self.unsupported(&pool.owner, "health-check", what);
                None
            }
        };
        let HealthCheck { interval, timeout, rise, fall, port, .. } = *health;
        let observe = pool.passive.map(|it| it.failures);
        Some(Check { interval, timeout, rise, fall, port, http, observe })
    }

    fn stick(&mut self, pool: &Pool, is_http: bool) -> Option<Stickiness> {
        match pool.affinity.as_ref()? {
            Affinity::ClientIp(time) => Some(Stickiness::ClientIp(*time)),
            Affinity::Cookie { name, mode, .. } if is_http => match Label::new(name) {
                Some(name) => Some(Stickiness::Cookie { name, insert: *mode == CookieMode::Insert }),
                None => {
                    let what = "the cookie name may contain only letters, digits, - _ . and : with HAProxy: session affinity is off";
                    self.unsupported(&pool.owner, "sticky-cookie", what);
                    None
                }
            },
            Affinity::Cookie { .. } => None,
        }
    }

    /// `None`: it cannot be spoken as it is asked for, so the members get nothing.
    fn server_tls(&mut self, pool: &Pool) -> Option<Option<ServerTls>> {
        let Some(tls) = &pool.tls else { return Some(None) };
        let names =
            pool.members.iter().filter_map(|it| it.host_name.as_ref()).chain(&tls.name).chain([&tls.usual]);
        let bad = names.filter(|it| Label::new(it).is_none()).count();
        let trust = match &tls.trust {
            Trust::SystemRoots => Some(ServerTls::SystemRoots),
            Trust::InsecureSkipVerify => Some(ServerTls::Unverified),
            Trust::CaBundle(bundle)
                if is_pem(bundle, "CERTIFICATE") && !self.wanted.unusable.authorities.contains(bundle) =>
            {
                let name = Label::of(&digest(bundle)).and(".pem");
                self.document.authorities.insert(name.clone(), bundle.clone());
                Some(ServerTls::Authorities(name))
            }
            Trust::CaBundle(_) => None,
        };
        if trust.is_none() || bad > 0 {
            let what = "certificates of members cannot be verified: the CA certificate cannot be read, or the name is \
                 not a host name. Members get no requests";
            self.problem(&pool.owner, "backend-tls", Reason::BadCertificate, what.to_owned());
            return None;
        }
        Some(trust)
    }

    fn compression(&mut self, pool: &Pool, is_http: bool) -> Option<Vec<Key>> {
        let wanted = pool.http.compression.as_ref().filter(|_| is_http)?;
        if !wanted.private {
            let what = "HAProxy would also compress private responses, which can leak secrets (BREACH): responses are \
                 not compressed";
            self.unsupported(&pool.owner, "compress", what);
            return None;
        }
        let types = wanted.types.iter().filter(|it| !it.contains('*'));
        Some(types.filter_map(|it| Key::new(it)).collect())
    }
}

/// A backend of nobody: 503, and the end of a connection of TCP. Without an answer, members would get into it.
fn closed(is_http: bool) -> Settings {
    let answer = Some(ImmediateResponse::Return { code: 503, page: None });
    Settings { is_http, answer, ..Settings::default() }
}
