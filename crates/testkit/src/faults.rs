//! What goes wrong with requests of HTTP, as a test scripts it, whoever answers them.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use tokio::sync::watch;

/// What happens to which requests. Made by [`Fault::on`].
#[derive(Clone, Debug)]
pub struct Fault {
    pub(crate) method: String,
    pub(crate) path: String,
    pub(crate) first: usize,
    pub(crate) count: usize,
    pub(crate) trouble: FaultAction,
}

#[derive(Clone, Debug)]
pub(crate) enum FaultAction {
    /// Instead of doing anything.
    Instead {
        status: u16,
        headers: Vec<(String, String)>,
        body: CannedBody,
    },
    /// The connection ends before anything is done.
    LoseRequest,
    /// All is done, and nobody is told.
    LoseReply,
    /// The head promises more than comes.
    CutShort,
    /// The world as it was when the fault was scripted.
    Stale,
    Hold(RequestHold),
    HoldReply(RequestHold),
}

#[derive(Clone, Debug)]
pub(crate) enum CannedBody {
    /// In the words of the service that was asked.
    OwnWords,
    Json(Value),
    Html(String),
}

impl Fault {
    /// `"POST */lbaas/listeners"`: a method and a path, without the query. A `*` stands for anything. It concerns the
    /// first such request from now on, unless told otherwise.
    ///
    /// # Panics
    /// If there is no blank between the two.
    pub fn on(pattern: &str) -> RequestMatcher {
        let (method, path) = pattern.split_once(' ').expect("a method, a blank, a path");
        RequestMatcher { method: method.to_owned(), path: path.to_owned(), first: 1, count: 1 }
    }

    /// Adds a header to a scripted reply.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Fault {
        if let FaultAction::Instead { headers, .. } = &mut self.trouble {
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        self
    }
}

/// Which requests; the next word says what happens to them.
#[derive(Clone, Debug)]
pub struct RequestMatcher {
    method: String,
    path: String,
    first: usize,
    count: usize,
}

impl RequestMatcher {
    /// Not the first such request, but the `n`th.
    #[must_use]
    pub fn nth(mut self, n: usize) -> RequestMatcher {
        self.first = n;
        self
    }

    /// So many of them, in a row.
    #[must_use]
    pub fn times(mut self, count: usize) -> RequestMatcher {
        self.count = count;
        self
    }

    #[must_use]
    pub fn always(self) -> RequestMatcher {
        self.times(usize::MAX)
    }

    /// Answered with this status, in the service's own words; nothing is done.
    pub fn status(self, status: u16) -> Fault {
        self.be(FaultAction::Instead { status, headers: Vec::new(), body: CannedBody::OwnWords })
    }

    /// Answered with this; nothing is done.
    pub fn reply(self, status: u16, body: Value) -> Fault {
        self.be(FaultAction::Instead { status, headers: Vec::new(), body: CannedBody::Json(body) })
    }

    /// As a proxy in between would answer; nothing is done.
    pub fn html(self, status: u16, page: &str) -> Fault {
        self.be(FaultAction::Instead { status, headers: Vec::new(), body: CannedBody::Html(page.to_owned()) })
    }

    /// The connection ends, nothing is done.
    pub fn lose_request(self) -> Fault {
        self.be(FaultAction::LoseRequest)
    }

    /// All is done, then the connection ends without a reply.
    pub fn lose_reply(self) -> Fault {
        self.be(FaultAction::LoseReply)
    }

    /// All is done, but the connection ends in the middle of the reply's body.
    pub fn cut_short(self) -> Fault {
        self.be(FaultAction::CutShort)
    }

    /// A read is answered from the state in which the cloud was when this was scripted: what a replica that lags behind,
    /// or a cache, does.
    pub fn stale(self) -> Fault {
        self.be(FaultAction::Stale)
    }

    /// Nothing is done until the hold is released.
    pub fn hold(self, hold: &RequestHold) -> Fault {
        self.be(FaultAction::Hold(hold.clone()))
    }

    /// All is done at once, the reply waits until the hold is released.
    pub fn hold_reply(self, hold: &RequestHold) -> Fault {
        self.be(FaultAction::HoldReply(hold.clone()))
    }

    fn be(self, trouble: FaultAction) -> Fault {
        Fault { method: self.method, path: self.path, first: self.first, count: self.count, trouble }
    }
}

/// Keeps requests waiting until a test lets them go.
#[derive(Clone, Debug)]
pub struct RequestHold(Arc<watch::Sender<HoldState>>);

#[derive(Clone, Copy, Debug, Default)]
struct HoldState {
    waiting: usize,
    released: bool,
}

impl Default for RequestHold {
    fn default() -> RequestHold {
        RequestHold::new()
    }
}

impl RequestHold {
    pub fn new() -> RequestHold {
        RequestHold(Arc::new(watch::Sender::new(HoldState::default())))
    }

    /// Until so many requests wait here.
    pub async fn reached(&self, requests: usize) {
        self.until(|held| held.waiting >= requests).await;
    }

    /// The same for a test without a runtime. False if the time was over first.
    pub fn reached_within(&self, requests: usize, time: Duration) -> bool {
        let waiting = async { tokio::time::timeout(time, self.reached(requests)).await.is_ok() };
        tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .is_ok_and(|runtime| runtime.block_on(waiting))
    }

    /// How many wait here now.
    pub fn waiting(&self) -> usize {
        self.0.borrow().waiting
    }

    /// Lets go those that wait and those that come.
    pub fn release(&self) {
        self.0.send_modify(|held| held.released = true);
    }

    pub(crate) async fn pass(&self) {
        self.pass_to(async {}).await;
    }

    /// It counts as waiting until that is done, too.
    pub(crate) async fn pass_to<T>(&self, work: impl Future<Output = T>) -> T {
        self.0.send_modify(|held| held.waiting += 1);
        self.until(|held| held.released).await;
        let done = work.await;
        self.0.send_modify(|held| held.waiting -= 1);
        done
    }

    async fn until(&self, is: impl FnMut(&HoldState) -> bool) {
        // It cannot fail: this very value holds the sender.
        _ = self.0.subscribe().wait_for(is).await;
    }
}

/// The faults that wait for their requests. `P`: what a test may want back from the past.
#[derive(Debug)]
pub(crate) struct Script<P>(Vec<Scripted<P>>);

#[derive(Debug)]
struct Scripted<P> {
    fault: Fault,
    seen: usize,
    /// As the world was when it was scripted; only for those who need it.
    then: Option<Box<P>>,
}

/// What happens to one request.
#[derive(Debug)]
pub(crate) struct TriggeredFault<P> {
    pub(crate) trouble: FaultAction,
    #[cfg_attr(not(feature = "cloud"), allow(dead_code, reason = "only the cloud answers as the world was"))]
    pub(crate) then: Option<Box<P>>,
}

impl<P> Default for Script<P> {
    fn default() -> Script<P> {
        Script(Vec::new())
    }
}

impl<P: Clone> Script<P> {
    pub(crate) fn add(&mut self, fault: Fault, now: &P) {
        let then = matches!(fault.trouble, FaultAction::Stale).then(|| Box::new(now.clone()));
        self.0.push(Scripted { fault, seen: 0, then });
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Every fault that fits counts the request; the first one that is due strikes.
    pub(crate) fn strike(&mut self, method: &str, path: &str) -> Option<TriggeredFault<P>> {
        let mut struck = None;
        for scripted in &mut self.0 {
            let fault = &scripted.fault;
            if !fits(&fault.method, method) || !fits(&fault.path, path) {
                continue;
            }
            scripted.seen += 1;
            let due = scripted.seen >= fault.first && scripted.seen - fault.first < fault.count;
            if due && struck.is_none() {
                struck = Some(TriggeredFault { trouble: fault.trouble.clone(), then: scripted.then.clone() });
            }
        }
        struck
    }
}

/// Whether a text fits a pattern in which `*` stands for anything.
pub(crate) fn fits(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((start, rest)) => text
            .strip_prefix(start)
            .is_some_and(|left| left.char_indices().any(|(at, _)| fits(rest, &left[at..])) || fits(rest, "")),
    }
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn a_star_stands_for_anything() {
        for (pattern, text) in [
            ("*", "GET"),
            ("*", ""),
            ("*/lbaas/pools", "/load-balancer/v2/lbaas/pools"),
            ("*/pools/*/members", "/v2/lbaas/pools/17/members"),
            ("/a*", "/a"),
        ] {
            assert!(fits(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in [("GET", "PUT"), ("*/pools", "/pools/17"), ("", "x"), ("/b*", "/a")] {
            assert!(!fits(pattern, text), "{pattern} {text}");
        }
    }
}
