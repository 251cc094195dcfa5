//! What one check asks, how an answer is judged, and when judgements in a row change anything.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use seaway_model::{
    Member, Name, Pool,
    load_balancer::{BackendProtocol, BackendTls, CheckKind, ProxyVersion},
};
use seaway_wire::{
    http::{STATUS_LINE_MAX, StatusLine, status},
    proxy::{Origin, Version, encode},
};

/// Everything that makes two checks the same: members that share it share one prober.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Check {
    pub(super) at: SocketAddr,
    pub(super) kind: CheckKind,
    pub(super) interval: Duration,
    pub(super) timeout: Duration,
    rise: u8,
    fall: u8,
    /// A member that expects a PROXY header gets one that says "local", or it would answer nothing else.
    proxy: Option<ProxyVersion>,
    /// It is asked by HTTP/2, as clients ask it.
    h2: bool,
    /// How the question is asked by TLS, and the name that the member was found by.
    pub(super) tls: Option<(Arc<BackendTls>, Option<Name>)>,
}

/// What one check of a member showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CheckResult {
    Passed,
    Failed(String),
    /// This host lacked something, such as descriptors: that says nothing about the member.
    NotRun(String),
}

/// More of an answer is not looked at.
pub(super) const LONGEST: usize = 64 << 10;

impl Check {
    pub(super) fn of(pool: &Pool, member: &Member) -> Option<Check> {
        let health = pool.health.as_ref()?;
        let mut at = member.at;
        if let Some(port) = health.port {
            at.set_port(port);
        }
        Some(Check {
            at,
            kind: health.kind.clone(),
            interval: health.interval.max(Duration::from_millis(1)),
            timeout: health.timeout.max(Duration::from_millis(1)),
            rise: health.rise.max(1),
            fall: health.fall.max(1),
            proxy: pool.proxy,
            // Nobody says what is spoken at another port: HTTP/1.1, as a rule.
            h2: pool.protocol == BackendProtocol::Http2 && health.port.is_none(),
            // A connection alone says nothing about TLS.
            tls: (pool.tls.clone())
                .filter(|_| matches!(health.kind, CheckKind::Http { .. } | CheckKind::Grpc { .. }))
                .map(|tls| (tls, member.host_name.clone())),
        })
    }

    /// How much of an answer is wanted.
    pub(super) fn longest_answer(&self) -> usize {
        match self.kind {
            CheckKind::Http { expect: Some(_), .. } => LONGEST,
            _ => STATUS_LINE_MAX,
        }
    }

    /// By HTTP/2: more than a few lines to say and to read.
    pub(super) fn uses_http2(&self) -> bool {
        match self.kind {
            CheckKind::Grpc { .. } => true,
            CheckKind::Http { .. } => self.h2,
            CheckKind::Tcp | CheckKind::Udp { .. } => false,
        }
    }

    /// Host and path that an HTTP check asks for.
    pub(super) fn target(&self) -> (String, String) {
        let CheckKind::Http { path, host, .. } = &self.kind else { return (self.at.to_string(), "/".into()) };
        let host = host.as_ref().map_or_else(|| self.at.to_string(), |host| host.to_string());
        let path = if path.starts_with('/') { path.to_string() } else { format!("/{path}") };
        (host, path)
    }

    pub(super) fn is_udp(&self) -> bool {
        matches!(self.kind, CheckKind::Udp { .. })
    }

    /// What is said before anything else, TLS included.
    pub(super) fn proxy_header(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self.proxy {
            Some(ProxyVersion::V2) => encode(Version::V2, &Origin::Local, &mut out),
            Some(ProxyVersion::V1) if !self.is_udp() => encode(Version::V1, &Origin::Local, &mut out),
            Some(ProxyVersion::V1) | None => {}
        }
        out
    }

    /// What is asked; empty if a connection is all that is wanted.
    pub(super) fn question(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match &self.kind {
            // What is said of gRPC is said by a call.
            CheckKind::Tcp | CheckKind::Grpc { .. } => {}
            CheckKind::Udp { send, .. } => out.extend_from_slice(send.as_bytes()),
            CheckKind::Http { .. } => {
                let (host, path) = self.target();
                let request = format!(
                    "GET {path} HTTP/1.1\r\nHost: {host}\r\nUser-Agent: seaway\r\nAccept: */*\r\nConnection: close\r\n\r\n"
                );
                out.extend_from_slice(request.as_bytes());
            }
        }
        out
    }

    /// The verdict once a connection stands and the question is sent, if that is enough.
    pub(super) fn on_connected(&self) -> Option<CheckResult> {
        matches!(self.kind, CheckKind::Tcp).then_some(CheckResult::Passed)
    }

    /// The verdict on the bytes so far; `ended` when no more will come.
    pub(super) fn on_answer(&self, bytes: &[u8], ended: bool) -> Option<CheckResult> {
        match &self.kind {
            CheckKind::Tcp | CheckKind::Grpc { .. } | CheckKind::Udp { expect: None, .. } => {
                Some(CheckResult::Passed)
            }
            CheckKind::Udp { expect: Some(expect), .. } => Some(if contains(bytes, expect.as_bytes()) {
                CheckResult::Passed
            } else {
                CheckResult::Failed("answered something other than the expected text".into())
            }),
            CheckKind::Http { status: (low, high), expect, .. } => match status(bytes) {
                StatusLine::Partial if ended => {
                    Some(CheckResult::Failed("closed the connection before it answered".into()))
                }
                StatusLine::Partial => None,
                StatusLine::Invalid => {
                    Some(CheckResult::Failed("answered something that is not HTTP".into()))
                }
                StatusLine::Code(code) if !(*low..=*high).contains(&code) => {
                    Some(CheckResult::Failed(format!("answered status {code}")))
                }
                StatusLine::Code(_) => match expect {
                    Some(expect) if !contains(bytes, expect.as_bytes()) => (ended || bytes.len() >= LONGEST)
                        .then(|| CheckResult::Failed("answered without the text that is expected".into())),
                    _ => Some(CheckResult::Passed),
                },
            },
        }
    }

    /// The verdict when the time is up.
    pub(super) fn on_silence(&self, connected: bool) -> CheckResult {
        match &self.kind {
            // UDP owes nobody an answer; a dead port would have refused by now.
            CheckKind::Udp { expect: None, .. } => CheckResult::Passed,
            _ if !connected => CheckResult::Failed(format!("no connection within {:?}", self.timeout)),
            _ => CheckResult::Failed(format!("no answer within {:?}", self.timeout)),
        }
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    part.is_empty() || bytes.windows(part.len()).any(|window| window == part)
}

/// Findings in a row, until they change the verdict. A new member counts as well: it rises only after a fall.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RiseFallCounter {
    pub(super) down: bool,
    against: u8,
}

impl RiseFallCounter {
    /// Of a member that other checks judged before.
    pub(super) fn with_state(down: bool) -> RiseFallCounter {
        RiseFallCounter { down, against: 0 }
    }

    /// Nothing was found lately that more checks have to confirm or to end.
    pub(super) fn is_settled(&self) -> bool {
        !self.down && self.against == 0
    }

    /// True when this finding turned the verdict.
    pub(super) fn note(&mut self, well: bool, check: &Check) -> bool {
        if well != self.down {
            self.against = 0;
            return false;
        }
        self.against = self.against.saturating_add(1);
        let enough = if self.down { check.rise } else { check.fall };
        if self.against < enough {
            return false;
        }
        self.down = !self.down;
        self.against = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(kind: CheckKind) -> Check {
        Check {
            at: "192.0.2.1:80".parse().unwrap(),
            kind,
            interval: Duration::from_secs(2),
            timeout: Duration::from_secs(1),
            rise: 2,
            fall: 3,
            proxy: None,
            h2: false,
            tls: None,
        }
    }

    #[test]
    fn a_member_falls_and_rises_after_so_many_in_a_row() {
        let check = check(CheckKind::Tcp);
        let mut sequence = RiseFallCounter::default();
        let turns: Vec<bool> = [false, false, true, false, false, false, true, false, true, true]
            .iter()
            .map(|well| sequence.note(*well, &check))
            .collect();
        assert_eq!(turns, [false, false, false, false, false, true, false, false, false, true]);
        assert!(!sequence.down);
    }

    #[test]
    fn udp_silence_is_health_unless_an_answer_is_expected() {
        let silent = check(CheckKind::Udp { send: "x".into(), expect: None });
        assert_eq!(silent.on_silence(true), CheckResult::Passed);
        let asking = check(CheckKind::Udp { send: "x".into(), expect: Some("pong".into()) });
        assert!(matches!(asking.on_silence(true), CheckResult::Failed(_)));
        assert_eq!(asking.on_answer(b"a pong!", false), Some(CheckResult::Passed));
        assert!(matches!(asking.on_answer(b"what", false), Some(CheckResult::Failed(_))));
    }

    #[test]
    fn an_http_check_names_its_host_and_closes() {
        let http =
            check(CheckKind::Http { path: "/up".into(), host: None, status: (200, 399), expect: None });
        let question = String::from_utf8(http.question()).unwrap();
        assert!(question.starts_with("GET /up HTTP/1.1\r\nHost: 192.0.2.1:80\r\n"), "{question}");
        assert!(question.ends_with("Connection: close\r\n\r\n"), "{question}");
        assert_eq!(http.on_answer(b"HTTP/1.1 302 Found\r\n", false), Some(CheckResult::Passed));
        assert!(matches!(http.on_answer(b"HTTP/1.1 500 x\r\n", false), Some(CheckResult::Failed(_))));
        assert_eq!(http.on_answer(b"HTTP/1.1 5", false), None);
        assert!(matches!(http.on_answer(b"HTTP/1.1 5", true), Some(CheckResult::Failed(_))));
    }

    #[test]
    fn an_http_check_may_expect_a_text() {
        let (path, status) = ("/".into(), (200, 299));
        let http = check(CheckKind::Http { path, host: None, status, expect: Some("ready".into()) });
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nnot ready";
        assert_eq!(http.on_answer(&answer[..answer.len() - 1], false), None, "more is to come");
        assert_eq!(http.on_answer(answer, false), Some(CheckResult::Passed));
        assert!(matches!(http.on_answer(b"HTTP/1.1 200 OK\r\n\r\nno", true), Some(CheckResult::Failed(_))));
        assert!(matches!(http.on_answer(b"HTTP/1.1 500 ready\r\n", false), Some(CheckResult::Failed(_))));
        let endless = [&b"HTTP/1.1 200 OK\r\n\r\n"[..], &[b'x'; LONGEST]].concat();
        assert!(matches!(http.on_answer(&endless, false), Some(CheckResult::Failed(_))));
    }

    #[test]
    fn a_member_that_expects_a_proxy_header_is_told_that_the_check_is_local() {
        let mut check = check(CheckKind::Tcp);
        assert!(check.question().is_empty() && check.proxy_header().is_empty());
        check.proxy = Some(ProxyVersion::V2);
        let question = check.proxy_header();
        assert_eq!(&question[..12], b"\r\n\r\n\0\r\nQUIT\n");
        assert_eq!(question[12], 0x20);
    }
}
