//! What stands between a client and who answers it: there a test scripts what goes wrong, and counts what goes through.
//!
//! ```text
//!   client ── Gate (before an API server), CloudGate (before an OpenStack) ── who answers
//!                └── Between: script and journal
//! ```

mod cloud;

use std::{
    future::Future,
    sync::{Mutex, MutexGuard, PoisonError},
};

use hyper::{
    Response,
    header::{CONTENT_TYPE, HeaderName, HeaderValue},
};
use kube::client::Body;

pub use cloud::CloudGate;

use crate::{
    faults::{CannedBody, Fault, FaultAction, Script, fits},
    server::ConnectionLost,
};

pub(crate) type Answer = Response<Body>;

/// What was scripted, and what came.
#[derive(Debug, Default)]
pub(crate) struct GateState(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    script: Script<()>,
    journal: Vec<(String, String)>,
    /// Of the journal, what was answered with success.
    done: Vec<(String, String)>,
}

impl GateState {
    pub(crate) fn fail(&self, fault: Fault) {
        self.locked().script.add(fault, &());
    }

    pub(crate) fn heal(&self) {
        self.locked().script.clear();
    }

    pub(crate) fn requests(&self) -> Vec<(String, String)> {
        self.locked().journal.clone()
    }

    pub(crate) fn forget_requests(&self) {
        let mut inner = self.locked();
        (inner.journal, inner.done) = Default::default();
    }

    pub(crate) fn count(&self, pattern: &str) -> usize {
        fitting(&self.locked().journal, pattern)
    }

    pub(crate) fn done(&self, pattern: &str) -> usize {
        fitting(&self.locked().done, pattern)
    }

    /// `pass` has it answered by who is beyond; `words` are those of his refusals.
    pub(crate) async fn respond(
        &self,
        method: &str,
        path: &str,
        pass: impl Future<Output = Result<Answer, ConnectionLost>> + Send + 'static,
        words: fn(u16) -> String,
    ) -> Result<Answer, ConnectionLost> {
        let answer = self.answer(method, path, pass, words).await?;
        if answer.status().is_success() {
            self.locked().done.push((method.to_owned(), path.to_owned()));
        }
        Ok(answer)
    }

    async fn answer(
        &self,
        method: &str,
        path: &str,
        pass: impl Future<Output = Result<Answer, ConnectionLost>> + Send + 'static,
        words: fn(u16) -> String,
    ) -> Result<Answer, ConnectionLost> {
        // Whoever asked may be gone: what he asked for is done all the same.
        let passed = async move || tokio::spawn(pass).await.map_err(|_| ConnectionLost)?;
        match self.strike(method, path) {
            None | Some(FaultAction::Stale) => passed().await,
            Some(FaultAction::Instead { status, headers, body }) => Ok(canned(status, headers, body, words)),
            Some(FaultAction::LoseRequest) => Err(ConnectionLost),
            Some(FaultAction::LoseReply | FaultAction::CutShort) => {
                passed().await?;
                Err(ConnectionLost)
            }
            Some(FaultAction::Hold(hold)) => {
                let late = tokio::spawn(async move { hold.pass_to(passed()).await });
                late.await.map_err(|_| ConnectionLost)?
            }
            // Whoever dies meanwhile was there all the same.
            Some(FaultAction::HoldReply(hold)) => {
                let late = tokio::spawn(async move {
                    let answer = passed().await?;
                    hold.pass().await;
                    Ok(answer)
                });
                late.await.map_err(|_| ConnectionLost)?
            }
        }
    }

    fn strike(&self, method: &str, path: &str) -> Option<FaultAction> {
        let mut inner = self.locked();
        inner.journal.push((method.to_owned(), path.to_owned()));
        inner.script.strike(method, path).map(|struck| struck.trouble)
    }

    fn locked(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn fitting(all: &[(String, String)], pattern: &str) -> usize {
    let (of, at) = pattern.split_once(' ').expect("a method, a blank, a path");
    all.iter().filter(|(method, path)| fits(of, method) && fits(at, path)).count()
}

fn canned(status: u16, headers: Vec<(String, String)>, body: CannedBody, words: fn(u16) -> String) -> Answer {
    let (kind, body) = match body {
        CannedBody::Html(page) => ("text/html", page),
        CannedBody::Json(body) => ("application/json", body.to_string()),
        CannedBody::OwnWords => ("application/json", words(status)),
    };
    let mut answer = Response::new(Body::from(body.into_bytes()));
    *answer.status_mut() = status.try_into().expect("tests know their statuses");
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    for (name, value) in headers {
        let name: HeaderName = name.parse().expect("tests know their headers");
        answer.headers_mut().insert(name, value.parse().expect("tests know their headers"));
    }
    answer
}
