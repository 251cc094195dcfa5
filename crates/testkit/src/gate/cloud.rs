use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use futures::future::join_all;
use http_body_util::BodyExt;
use hyper::{
    Request, Response, Uri,
    body::Incoming,
    client::conn::http1::handshake,
    header::{ACCEPT_ENCODING, CONNECTION, CONTENT_LENGTH, HOST, HeaderValue, TRANSFER_ENCODING},
};
use hyper_util::rt::TokioIo;
use kube::client::Body;
use tokio::{
    net::TcpStream,
    sync::Mutex,
    time::{Instant, sleep_until},
};

use super::{Answer, GateState};
use crate::{
    faults::Fault,
    server::{ConnectionLost, Server, accept, bind, converse, whole},
};

/// A way to the services of an OpenStack on loopback: whoever signs in by it is told that all of them are here.
#[derive(Debug)]
pub struct CloudGate {
    at: Vec<ProxiedService>,
    between: Arc<GateState>,
    _server: Server,
}

/// When the last change of a load balancer was answered, and how long the next one is held after that.
#[derive(Debug)]
struct ChangePacing {
    rest: Duration,
    last: Mutex<Option<Instant>>,
}

/// Where a service is, and where it seems to be.
#[derive(Clone, Copy, Debug)]
struct ProxiedService {
    beyond: SocketAddr,
    here: SocketAddr,
}

impl CloudGate {
    /// The ports of Keystone, and of what else is to be reached by it. Other services are reached past it.
    #[track_caller]
    pub fn before(ports: &[u16]) -> CloudGate {
        CloudGate::paced(ports, Duration::ZERO)
    }

    /// As above, and changes of load balancers go through one by one, each so long after the one before was answered. The
    /// driver of OVN loses what comes right after another change, and leaves the load balancer PENDING_UPDATE.
    #[track_caller]
    pub fn paced(ports: &[u16], rest: Duration) -> CloudGate {
        let opened = ports.iter().map(|port| {
            let (listener, here) = bind(Ipv4Addr::LOCALHOST.into()).expect("a free port");
            (listener, ProxiedService { beyond: (Ipv4Addr::LOCALHOST, *port).into(), here })
        });
        let opened: Vec<(TcpListener, ProxiedService)> = opened.collect();
        let at: Vec<ProxiedService> = opened.iter().map(|(_, door)| *door).collect();
        let between = Arc::<GateState>::default();
        let (serves, doors) = (between.clone(), Arc::new(at.clone()));
        let pace = Arc::new(ChangePacing { rest, last: Mutex::default() });
        let serve = move || async move {
            let each = opened.into_iter().map(|(listener, door)| {
                accept(listener, {
                    let (serves, doors, pace) = (serves.clone(), doors.clone(), pace.clone());
                    move |stream| {
                        let (serves, doors, pace) = (serves.clone(), doors.clone(), pace.clone());
                        converse(stream, move |request| {
                            respond(request, door, doors.clone(), serves.clone(), pace.clone())
                        })
                    }
                })
            });
            join_all(each).await;
        };
        let server = Server::start("cloud gate", serve).expect("a thread");
        CloudGate { at, between, _server: server }
    }

    /// Of Keystone, whose port was the first.
    pub fn auth_url(&self) -> String {
        format!("http://{}/v3", self.at[0].here)
    }

    /// The same address as services tell it to clients of this gate: what was read past it names the services themselves.
    pub fn through(&self, address: &str) -> String {
        String::from_utf8_lossy(&led_here(address.as_bytes(), &self.at)).into_owned()
    }

    /// Scripts what goes wrong. A path is as in `"POST */lbaas/loadbalancers"`.
    pub fn fail(&self, fault: Fault) {
        self.between.fail(fault);
    }

    /// Forgets all that was scripted; what is held is still held.
    pub fn heal(&self) {
        self.between.heal();
    }

    /// How many requests so far fit a pattern like `"GET */floatingips"`.
    pub fn count(&self, pattern: &str) -> usize {
        self.between.count(pattern)
    }

    /// `METHOD PATH` of all that was to change something since the last call, in order; signing in is no change.
    pub fn take_writes(&self) -> Vec<String> {
        let all = self.between.requests();
        self.between.forget_requests();
        let is_write = |(method, path): &&(String, String)| method != "GET" && !path.contains("/auth/tokens");
        all.iter().filter(is_write).map(|(method, path)| format!("{method} {path}")).collect()
    }

    /// How many of them were answered with success so far.
    pub fn done(&self, pattern: &str) -> usize {
        self.between.done(pattern)
    }
}

async fn respond(
    request: Request<Incoming>,
    door: ProxiedService,
    doors: Arc<Vec<ProxiedService>>,
    between: Arc<GateState>,
    pace: Arc<ChangePacing>,
) -> Result<Answer, ConnectionLost> {
    let (mut head, body) = request.into_parts();
    let (method, path) = (head.method.to_string(), head.uri.path().to_owned());
    let target = head.uri.path_and_query().map_or("/", |it| it.as_str());
    head.uri = target.parse::<Uri>().map_err(|_| ConnectionLost)?;
    for name in [CONNECTION, ACCEPT_ENCODING] {
        head.headers.remove(name);
    }
    let beyond = HeaderValue::try_from(door.beyond.to_string()).expect("an address is a word");
    head.headers.insert(HOST, beyond);
    // Some services look whether what they are told of is theirs.
    let said = whole(body).await?;
    let body = renamed(&said, &doors, |it| (it.here, it.beyond));
    if body.len() != said.len() {
        head.headers.remove(CONTENT_LENGTH);
    }
    let request = Request::from_parts(head, Body::from(body));
    let is_change = method != "GET" && path.contains("/lbaas/") && !pace.rest.is_zero();
    let mut last = if is_change { Some(pace.last.lock().await) } else { None };
    if let Some(last) = last.as_ref().and_then(|it| **it) {
        sleep_until(last + pace.rest).await;
    }
    let answer = between.respond(&method, &path, forward(request, door, doors), |_| "{}".to_owned()).await;
    if let Some(last) = &mut last {
        **last = Some(Instant::now());
    }
    answer
}

async fn forward(
    request: Request<Body>,
    door: ProxiedService,
    doors: Arc<Vec<ProxiedService>>,
) -> Result<Answer, ConnectionLost> {
    let stream = TcpStream::connect(door.beyond).await.map_err(|_| ConnectionLost)?;
    let (mut sender, talk) = handshake(TokioIo::new(stream)).await.map_err(|_| ConnectionLost)?;
    let talk = tokio::spawn(talk);
    let (mut head, body) = sender.send_request(request).await.map_err(|_| ConnectionLost)?.into_parts();
    let body = body.collect().await.map_err(|_| ConnectionLost)?.to_bytes();
    talk.abort();
    for name in [CONTENT_LENGTH, TRANSFER_ENCODING, CONNECTION] {
        head.headers.remove(name);
    }
    Ok(Response::from_parts(head, Body::from(led_here(&body, &doors))))
}

/// The catalog, and links, name where services seem to be.
fn led_here(body: &[u8], doors: &[ProxiedService]) -> Vec<u8> {
    renamed(body, doors, |it| (it.beyond, it.here))
}

fn renamed(
    body: &[u8],
    doors: &[ProxiedService],
    names: impl Fn(&ProxiedService) -> (SocketAddr, SocketAddr),
) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(body) else { return body.to_vec() };
    let rename = |text: String, door: &ProxiedService| {
        let (from, to) = names(door);
        text.replace(&from.to_string(), &to.to_string())
    };
    doors.iter().fold(text.to_owned(), rename).into_bytes()
}
