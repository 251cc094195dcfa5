//! Which path is answered by what, and the rules that hold for all of them.

pub(super) mod response;

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http_body_util::{BodyExt, Limited};
use hyper::{
    HeaderMap, Method, Request, StatusCode,
    body::Incoming,
    header::{self, HeaderValue},
};
use rustls::ServerConfig;
use serde::Serialize;
use tokio::time;

use self::response::{PageResponse, html, json, text};
use super::{
    LivenessCheck, SocketAccess, ViewSource,
    metrics_guard::MetricsGuard,
    views::{CachedView, ViewCache},
};
use crate::{
    csv,
    history::History,
    logging::LogHandle,
    metrics::Metrics,
    page::{Filter, Page},
    process::Usage,
    rates::Sampler,
    view::View,
};

const BODY_BYTES: usize = 1024;
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

const HELP: &str = "\
/          status page; ?q=TEXT shows the services whose name or address contains TEXT
/state     the same as JSON; ?q=TEXT&limit=N
/;csv      HAProxy's statistics as CSV; also /stats;csv and /haproxy?stats;csv
/metrics   for Prometheus
/live      200 while the process runs and all its parts do, otherwise 503 and which does not
/ready     200 once the first plan is being served, otherwise 503 and why
/log       GET shows the log level; PUT from this machine sets it:
           curl -X PUT --data info,seaway_proxy=debug http://localhost:1936/log
";

const PROBES: &str = "This port has /live and /ready only. The status page is at another port.\n";

const METRICS: &str = "This port has /metrics only, for clients with permission.\n";

pub(super) struct Routes {
    views: ViewCache,
    log: LogHandle,
    page: Page,
    sampler: Mutex<Sampler>,
    history: Mutex<History>,
    metrics: Mutex<Metrics>,
    fault: LivenessCheck,
    guard: Option<MetricsGuard>,
}

/// What `/state` tells.
#[derive(Serialize)]
struct State<'a> {
    #[serde(flatten)]
    view: &'a View,
    process: Usage,
}

#[derive(Clone, Copy)]
enum Route {
    Page,
    State,
    Csv,
    Metrics,
    Live,
    Ready,
    Log,
}

impl Route {
    fn of(path: &str, query: &str) -> Option<Route> {
        // HAProxy's way: what follows a semicolon says how to show it; `;norefresh` and the like may come too.
        let is_csv = |text: &str| text.split(';').skip(1).any(|word| word == "csv");
        let (path, words) = path.split_at(path.find(';').unwrap_or(path.len()));
        match path {
            "/" | "/stats" | "/haproxy" if is_csv(words) || is_csv(query) => Some(Route::Csv),
            "/" | "/stats" | "/haproxy" => Some(Route::Page),
            _ if !words.is_empty() => None,
            "/state" => Some(Route::State),
            "/metrics" => Some(Route::Metrics),
            "/live" => Some(Route::Live),
            "/ready" => Some(Route::Ready),
            "/log" => Some(Route::Log),
            _ => None,
        }
    }

    fn methods(self) -> &'static str {
        match self {
            Route::Log => "GET, HEAD, PUT",
            _ => "GET, HEAD",
        }
    }
}

impl Routes {
    pub(super) fn new(
        source: ViewSource,
        log: LogHandle,
        metrics: Metrics,
        fault: LivenessCheck,
        guard: Option<MetricsGuard>,
    ) -> Routes {
        Routes {
            views: ViewCache::new(source),
            log,
            page: Page::new(),
            sampler: Mutex::default(),
            history: Mutex::default(),
            metrics: Mutex::new(metrics),
            fault,
            guard,
        }
    }

    pub(super) fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.guard.as_ref().map(|it| it.tls.clone())
    }

    /// Where who asks has to be somebody who may.
    async fn guarded(
        &self,
        route: Option<Route>,
        peer: SocketAddr,
        request: &Request<Incoming>,
    ) -> PageResponse {
        let is_reading = matches!(*request.method(), Method::GET | Method::HEAD);
        let Some(guard) = self.guard.as_ref().filter(|_| matches!(route, Some(Route::Metrics))) else {
            return text(StatusCode::NOT_FOUND, METRICS);
        };
        if !is_reading {
            return refuse_method(Route::Metrics.methods());
        }
        let refused = guard.rejection(request.headers(), peer.ip().to_canonical()).await;
        match refused {
            Some(answer) => answer,
            None => self.show(Route::Metrics, &Filter::of(""), peer).await,
        }
    }

    pub(super) async fn answer(
        &self,
        peer: SocketAddr,
        grants: SocketAccess,
        request: Request<Incoming>,
    ) -> PageResponse {
        let (path, query) = (request.uri().path(), request.uri().query().unwrap_or_default());
        let route = Route::of(path, query);
        let probed = matches!(route, Some(Route::Live | Route::Ready));
        let mut answer = match (route, request.method()) {
            _ if grants == SocketAccess::Metrics => self.guarded(route, peer, &request).await,
            _ if grants == SocketAccess::Probes && !probed => text(StatusCode::NOT_FOUND, PROBES),
            (None, _) => {
                text(StatusCode::NOT_FOUND, format!("There is nothing at this path. There is:\n\n{HELP}"))
            }
            // hyper sends the head alone where that was asked.
            (Some(route), &Method::GET | &Method::HEAD) => self.show(route, &Filter::of(query), peer).await,
            (Some(_), _) if grants != SocketAccess::All => {
                // Or a proxy that is still sending it finds a broken connection instead of an answer.
                let body = Limited::new(request.into_body(), BODY_BYTES).collect();
                let _ = time::timeout(BODY_TIMEOUT, body).await;
                refuse_change()
            }
            (Some(Route::Log), &Method::PUT) => self.set_log(peer, request).await,
            (Some(route), _) => refuse_method(route.methods()),
        };
        response::secure(&mut answer);
        answer
    }

    async fn show(&self, route: Route, filter: &Filter, peer: SocketAddr) -> PageResponse {
        match route {
            Route::Page => {
                let filter = filter.clone().for_page();
                let shown = filter.apply(self.look(peer).await);
                html(self.page.render(&shown, &filter, Usage::now()), self.page.content_security_policy())
            }
            Route::State => {
                let shown = filter.apply(self.look(peer).await);
                json(&State { view: &shown.view, process: Usage::now() })
            }
            Route::Csv => text(StatusCode::OK, csv::render(&self.look(peer).await)),
            Route::Metrics => {
                let CachedView { at, view } = self.seen_by(peer).await;
                let metrics = lock(&self.metrics).render_at(at, &view, Usage::now());
                response::open_metrics(metrics)
            }
            Route::Live => match (self.fault)() {
                None => text(StatusCode::OK, "live\n"),
                Some(fault) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{fault}\n")),
            },
            Route::Ready => match self.views.readiness_view().await.readiness.not_ready_reason() {
                None => text(StatusCode::OK, "ready\n"),
                Some(why) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
            },
            Route::Log => text(StatusCode::OK, format!("{}\n", self.log.level())),
        }
    }

    /// A minute is over: the last hour is kept by looks of our own, whoever else looks.
    pub(super) async fn end_minute(&self) {
        let CachedView { at, view } = self.views.recent_full_view().await;
        lock(&self.history).end_minute(&view, at);
    }

    /// With rates, and with the last hour.
    async fn look(&self, peer: SocketAddr) -> View {
        let CachedView { at, view } = self.seen_by(peer).await;
        let mut view = Arc::unwrap_or_clone(view);
        lock(&self.sampler).observe(&mut view, at);
        lock(&self.history).fill(&mut view);
        view
    }

    async fn seen_by(&self, peer: SocketAddr) -> CachedView {
        match is_here(peer) {
            true => self.views.full_view().await,
            false => self.views.recent_full_view().await,
        }
    }

    async fn set_log(&self, peer: SocketAddr, request: Request<Incoming>) -> PageResponse {
        if let Err(why) = may_change(peer, request.headers()) {
            return text(StatusCode::FORBIDDEN, why);
        }
        let body = Limited::new(request.into_body(), BODY_BYTES).collect();
        let Ok(Ok(body)) = time::timeout(BODY_TIMEOUT, body).await else {
            return text(
                StatusCode::BAD_REQUEST,
                "The log level in the request could not be read: it is too long, or it arrived too slowly.\n",
            );
        };
        let body = body.to_bytes();
        let level = String::from_utf8_lossy(&body);
        match self.log.set(level.trim()) {
            Ok(()) => {
                tracing::info!(level = %self.log.level(), "log level changed");
                text(StatusCode::OK, format!("{}\n", self.log.level()))
            }
            Err(error) => text(StatusCode::BAD_REQUEST, format!("{error}\n")),
        }
    }
}

fn may_change(peer: SocketAddr, headers: &HeaderMap) -> Result<(), &'static str> {
    if !is_here(peer) {
        return Err("The log level can be set from this machine only.\n");
    }
    // A browser adds it when a page of somebody else's asks; curl does not.
    if headers.contains_key(header::ORIGIN) {
        return Err(
            "Refused: the request has an Origin header, as those of web pages have, and web pages may not \
             change the log level. Send it without this header, for example by curl.\n",
        );
    }
    Ok(())
}

fn is_here(peer: SocketAddr) -> bool {
    peer.ip().to_canonical().is_loopback()
}

fn refuse_change() -> PageResponse {
    const READING: &str = "GET, HEAD";
    let why = "At this address the page can only be read (GET and HEAD). To change something, use \
               http://localhost on the machine or in the pod itself.\n";
    let mut answer = text(StatusCode::METHOD_NOT_ALLOWED, why);
    answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static(READING));
    answer
}

fn refuse_method(methods: &'static str) -> PageResponse {
    let mut answer =
        text(StatusCode::METHOD_NOT_ALLOWED, format!("This path accepts only {methods}.\n\n{HELP}"));
    answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static(methods));
    answer
}

/// Nothing is left half done under these locks, so a panic of another request does not spoil what they hold.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_may_change_anything() {
        for (peer, may) in [
            ("127.0.0.1:5", true),
            ("127.8.9.1:5", true),
            ("[::1]:5", true),
            // How an IPv4 peer looks to a socket for both families.
            ("[::ffff:127.0.0.1]:5", true),
            ("192.0.2.1:5", false),
            ("[::ffff:192.0.2.1]:5", false),
            ("[2001:db8::1]:5", false),
        ] {
            assert_eq!(may_change(peer.parse().unwrap(), &HeaderMap::new()).is_ok(), may, "{peer}");
        }
    }
}
