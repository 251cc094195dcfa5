//! A thousand changes, each seen by clients before the next is made, while others use all protocols.

use std::{
    net::{IpAddr, SocketAddr},
    time::{Duration, Instant},
};

use rustls::pki_types::{CertificateDer, pem::PemObject};
use seaway_testkit::{
    topology::{Backend, Datagrams, until},
    traffic::{Clients, Kind, Load, LoadResults, Member, Target, trusting},
};

const CHANGES: usize = 1_000;
/// How slow an answer may be where other tests have the machine: what is asked here is whether one is lost.
const PATIENCE: Duration = Duration::from_secs(60);
const NAMES: [&str; 3] = ["a", "b", "c"];
const SHOP: &str = "shop.example";
const CALL: &str = "call.example";
/// Where members are.
const ECHO: u16 = 7_000;
const WEB: u16 = 7_001;
const DNS: u16 = 7_002;
/// Ports of the Service `echo`: one stays, one comes and goes.
pub(crate) const STAYS: u16 = 9_080;
const COMES: u16 = 9_081;
pub(crate) const UDP: u16 = 5_353;

/// Answers for all Services, by the names `a`, `b` and `c`.
pub(crate) struct Members {
    ips: [IpAddr; 3],
    _webs: [Member; 3],
    _echoes: [Backend; 3],
    _datagrams: [Datagrams; 3],
}

impl Members {
    /// In the network of the calling thread.
    pub(crate) fn at(ips: [IpAddr; 3]) -> Members {
        let all = [0, 1, 2].map(|number| (NAMES[number], ips[number]));
        Members {
            ips,
            _webs: all.map(|(name, ip)| Member::start_at(name, (ip, WEB))),
            _echoes: all.map(|(name, ip)| Backend::start_at(name, (ip, ECHO))),
            _datagrams: all.map(|(name, ip)| Datagrams::start_at(name, (ip, DNS))),
        }
    }
}

/// Where Seaway serves.
pub(crate) struct ListenerAddresses {
    pub(crate) http: SocketAddr,
    pub(crate) https: SocketAddr,
    pub(crate) echo: SocketAddr,
    pub(crate) dns: SocketAddr,
}

struct Pair {
    certificate: CertificateDer<'static>,
    secret: String,
}

impl Pair {
    fn new() -> Pair {
        let made = rcgen::generate_simple_self_signed([SHOP.to_owned()]).expect("a certificate");
        let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let secret = format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: shop-tls}}\ntype: kubernetes.io/tls\nstringData: {{tls.crt: {chain:?}, tls.key: {key:?}}}\n"
        );
        Pair { certificate: CertificateDer::from_pem_slice(chain.as_bytes()).expect("PEM"), secret }
    }
}

/// What is changed, in manifests that a folder and an API server take alike.
pub(crate) struct Changes<'a> {
    members: &'a Members,
    pairs: [Pair; 2],
    /// Whose routes are taken: `{name: any}`.
    parent: &'a str,
    /// Takes the name of a file and manifests.
    apply: &'a dyn Fn(&str, &str),
}

/// The members of a pool after so many of its changes: with each, one comes that was not there before.
fn set(step: usize) -> &'static [usize] {
    [&[0_usize][..], &[0, 1], &[2], &[2, 0], &[1], &[1, 2]][step % 6]
}

/// Who came with that.
fn newcomer(step: usize) -> &'static str {
    NAMES[[0, 1, 2, 0, 1, 2][step % 6]]
}

impl<'a> Changes<'a> {
    pub(crate) fn new(members: &'a Members, parent: &'a str, apply: &'a dyn Fn(&str, &str)) -> Changes<'a> {
        Changes { members, pairs: [Pair::new(), Pair::new()], parent, apply }
    }

    /// All of it, as it is before the first change.
    pub(crate) fn begin(&self) {
        (self.apply)("tls", &self.pairs[1].secret);
        let web = |name: &str, more: &str, protocol: &str| {
            format!(
                "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  annotations: {{{more}}}\nspec:\n  ports: [{{name: main, port: 80, appProtocol: {protocol}}}]\n"
            )
        };
        (self.apply)(
            "web",
            &web("shop", &format!("seaway.dev/host: {SHOP}, seaway.dev/tls: shop-tls, "), "http"),
        );
        (self.apply)("call", &web("call", &format!("seaway.dev/host: {CALL}, "), "kubernetes.io/h2c"));
        (self.apply)("echo", &echo(false));
        (self.apply)("dns", &balancer("dns", &format!("{{name: main, port: {UDP}, protocol: UDP}}")));
        for (name, protocol, port) in SLICES {
            self.set_members(name, protocol, port, 0);
        }
        self.set_route(0);
    }

    fn set_members(&self, name: &str, protocol: &str, port: u16, step: usize) {
        let ips = set(step).iter().map(|number| self.members.ips[*number]);
        let endpoints: String = ips.map(|ip| format!("- addresses: [\"{ip}\"]\n")).collect();
        let ports = match name {
            "echo" => format!("[{{name: main, port: {port}}}, {{name: more, port: {port}}}]"),
            _ => format!("[{{name: main, port: {port}, protocol: {protocol}}}]"),
        };
        let text = format!(
            "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: {name}-1\n  labels: {{kubernetes.io/service-name: {name}}}\naddressType: IPv4\nendpoints:\n{endpoints}ports: {ports}\n"
        );
        (self.apply)(&format!("{name}-slice"), &text);
    }

    fn set_route(&self, turn: usize) {
        let text = format!(
            "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: route}}\nspec:\n  parentRefs: [{}]\n  hostnames: [route.example]\n  rules:\n  - filters:\n    - type: ResponseHeaderModifier\n      responseHeaderModifier: {{set: [{{name: x-turn, value: \"{turn}\"}}]}}\n    backendRefs: [{{name: shop, port: 80}}]\n",
            self.parent
        );
        (self.apply)("route", &text);
    }

    /// Makes all of them, under a load that is so many times less than 300 requests a second; tells how many were seen, how long the slowest took to be seen, and what became of the load.
    pub(crate) fn make(
        &self,
        clients: &Clients,
        doors: &ListenerAddresses,
        slower: u32,
    ) -> (usize, Duration, LoadResults) {
        let new = |kind: Kind, at: SocketAddr| Target::new("what changed", kind, at).host(SHOP);
        let plain = |kind: Kind, at: SocketAddr, name: &str| clients.is_answered_by(&new(kind, at), name);
        let is_shown = |pair: &Pair| {
            let config = trusting(std::slice::from_ref(&pair.certificate));
            clients.ask(&new(Kind::Tls(config), doors.https)).is_ok()
        };
        let calls = new(Kind::Grpc, doors.http).host(CALL);
        let route = new(Kind::Http, doors.http).host("route.example");
        let has_turn =
            |turn: usize| clients.ask(&route).is_ok_and(|it| it.head.contains(&format!("x-turn: {turn}\n")));
        let comes = SocketAddr::new(doors.echo.ip(), COMES);
        let is_open = || clients.ask(&new(Kind::Tcp, comes)).is_ok();
        until("the route is served", || has_turn(0));
        until("https is served", || is_shown(&self.pairs[1]));
        until("calls are served", || clients.is_answered_by(&calls, "a"));
        until("bytes are served", || plain(Kind::Tcp, doors.echo, "a"));
        until("datagrams are served", || plain(Kind::Udp, doors.dns, "a"));
        assert!(!is_open());

        let load = self.load(clients, doors, slower);
        load.goes_on(5);
        let (mut seen, mut slowest) = (0, Duration::ZERO);
        for change in 0..CHANGES {
            let (what, turn) = (change % 8, change / 8 + 1);
            let name = newcomer(turn);
            let began = Instant::now();
            match what {
                0..4 => {
                    let (service, protocol, port) = SLICES[what];
                    self.set_members(service, protocol, port, turn);
                }
                4 => (self.apply)("tls", &self.pairs[(turn + 1) % 2].secret),
                5 => self.set_route(turn),
                _ => (self.apply)("echo", &echo(what == 6)),
            }
            until(&format!("change {change} is served"), || match what {
                0 => plain(Kind::Http, doors.http, name),
                1 => clients.is_answered_by(&calls, name),
                2 => plain(Kind::Tcp, doors.echo, name),
                3 => plain(Kind::Udp, doors.dns, name),
                4 => is_shown(&self.pairs[(turn + 1) % 2]) && !is_shown(&self.pairs[turn % 2]),
                5 => has_turn(turn),
                _ => is_open() == (what == 6),
            });
            slowest = slowest.max(began.elapsed());
            seen += 1;
        }
        load.goes_on(5);
        (seen, slowest, load.end())
    }

    /// New and kept connections of each protocol; 300 requests a second in all, divided by `slower`.
    fn load(&self, clients: &Clients, doors: &ListenerAddresses, slower: u32) -> Load {
        let both = self.pairs.each_ref().map(|it| it.certificate.clone());
        let tls = || Kind::Tls(trusting(&both));
        let all = vec![
            Target::new("TCP", Kind::Tcp, doors.echo).times(30),
            Target::new("TCP, kept", Kind::Tcp, doors.echo).keep_alive(),
            Target::new("HTTP/1.1", Kind::Http, doors.http).times(50),
            Target::new("HTTP/1.1, kept", Kind::Http, doors.http).times(30).keep_alive(),
            Target::new("HTTP/2", Kind::Http2, doors.http).times(10),
            Target::new("HTTP/2, kept", Kind::Http2, doors.http).times(30).keep_alive(),
            Target::new("gRPC, kept", Kind::Grpc, doors.http).host(CALL).times(30).keep_alive(),
            Target::new("gRPC stream", Kind::GrpcStream, doors.http).host(CALL).keep_alive(),
            Target::new("WebSocket", Kind::WebSocket, doors.http).times(10),
            Target::new("WebSocket, kept", Kind::WebSocket, doors.http).keep_alive(),
            Target::new("TLS", tls(), doors.https).times(10),
            Target::new("TLS, kept", tls(), doors.https).keep_alive(),
            Target::new("UDP", Kind::Udp, doors.dns),
            Target::new("UDP, kept", Kind::Udp, doors.dns).keep_alive(),
        ];
        // A datagram that is lost has no answer, however long one waits; all else is only slow on a machine that is busy.
        clients.load(all.into_iter().map(|it| it.slower(slower).patience(PATIENCE)).collect())
    }
}

const SLICES: [(&str, &str, u16); 4] =
    [("shop", "TCP", WEB), ("call", "TCP", WEB), ("echo", "TCP", ECHO), ("dns", "UDP", DNS)];

fn balancer(name: &str, ports: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  annotations: {{seaway.dev/drain: 1h}}\nspec:\n  type: LoadBalancer\n  ports: [{ports}]\n"
    )
}

fn echo(with_more: bool) -> String {
    let more = format!(", {{name: more, port: {COMES}}}");
    let more = if with_more { &more } else { "" };
    balancer("echo", &format!("{{name: main, port: {STAYS}}}{more}"))
}

/// Each was seen, and nobody noticed.
pub(crate) fn nobody_noticed((seen, slowest, heard): (usize, Duration, LoadResults)) {
    eprintln!("{seen} changes were seen, the slowest after {slowest:?}:\n{heard}");
    assert_eq!(seen, CHANGES);
    heard.was_always_answered();
}
