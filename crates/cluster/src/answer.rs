//! What an answer of the API server means: whose fault it is, what to do about it, and when to ask again.

use std::{error::Error as _, time::Duration};

use kube::Error;
use seaway_engine::{Failure, chain};
use seaway_model::{Kind, ObjectRef, Problem, Reason};

use crate::kinds::{Need, Watched};

/// How everything is put in order that Seaway needs in a cluster.
pub(crate) const INSTALL: &str = "seaway crds | kubectl apply -f -";

/// The object that troubles with the API server are told of.
pub fn api_server() -> ObjectRef {
    ObjectRef::new(Kind::Config, "", "kubernetes")
}

/// What came instead of what was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Who we are is not known, or known no more.
    Unauthorized(String),
    /// We may not.
    Forbidden(String),
    /// There is no such object, or no such kind of objects.
    NotFound,
    /// Somebody else was first: it exists, or has another version.
    Conflict(String),
    /// What we know is too old; all has to be listed again.
    Expired,
    /// The object is refused.
    Invalid(String),
    /// Not now.
    Busy { code: u16, why: String, after: Option<Duration> },
    /// Nobody answers, or not in a language that we know.
    Unreachable(String),
}

impl Answer {
    pub(crate) fn of(error: &Error) -> Answer {
        let Error::Api(status) = error else { return Answer::Unreachable(cause(error)) };
        let why = status.message.clone();
        let after = status.details.as_ref().map(|it| u64::from(it.retry_after_seconds)).filter(|it| *it > 0);
        match (status.code, &*status.reason) {
            (401, _) => Answer::Unauthorized(why),
            // Who comes with nothing that is known is let in as nobody.
            (403, _) if why.contains("system:anonymous") => Answer::Unauthorized(why),
            (403, _) => Answer::Forbidden(why),
            (404, _) => Answer::NotFound,
            (409, _) => Answer::Conflict(why),
            (410, _) | (_, "Expired" | "Gone") => Answer::Expired,
            // A version of the future: the store was set back to an older state.
            (_, "Timeout") if why.contains("Too large resource version") => Answer::Expired,
            (400 | 405 | 413 | 415 | 422, _) => Answer::Invalid(why),
            (code, _) => {
                let after = after.map(|it| Duration::from_secs(it).min(LONGEST_PATIENCE));
                Answer::Busy { code, why, after }
            }
        }
    }

    /// Nobody's fault that we could name: it may be well again at any moment.
    pub(crate) fn passes(&self) -> bool {
        matches!(self, Answer::Unreachable(_) | Answer::Busy { .. } | Answer::Expired)
    }

    /// What people are told when a watch gets it. `verb`: `list` or `watch`.
    pub(crate) fn problem(&self, watched: &Watched, verb: &str) -> Problem {
        let kinds = watched.qualified();
        let told = |reason, message: String| Problem::new(api_server(), reason, message);
        match self {
            Answer::Unauthorized(why) => {
                told(Reason::NotPermitted, format!("the API server does not accept Seaway's credentials ({why})")).fix(
                    "The client certificate or the token has expired or is wrong: get a new kubeconfig, or check that \
                     the pod has its ServiceAccount. Seaway reads them again by itself.",
                )
            }
            Answer::Forbidden(why) => {
                let message = format!("may not {verb} {kinds}: {why}");
                let fix = match watched.kind {
                    Kind::Secret => BIND_CERTIFICATES.to_owned(),
                    _ => format!("As an administrator: {INSTALL}"),
                };
                told(Reason::NotPermitted, message).fix(fix)
            }
            Answer::NotFound => {
                let api = watched.resource().api_version;
                let message = format!(
                    "the cluster does not have {} ({kinds}, {api}): its definition is missing or of another version",
                    watched.kind
                );
                match watched.need {
                    Need::Foreign | Need::Reported => told(Reason::NotInstalled, message),
                    _ => told(Reason::NotInstalled, message).fix(format!("As an administrator: {INSTALL}")),
                }
            }
            // The same for all kinds, so that it is told once.
            Answer::Busy { .. } => told(Reason::Unreachable, self.why()).fix(TRIED_AGAIN),
            Answer::Unreachable(why) => {
                let problem = told(Reason::Unreachable, format!("the API server cannot be reached: {why}"));
                problem.fix(mend(why))
            }
            Answer::Conflict(why) | Answer::Invalid(why) => {
                told(Reason::Unreachable, format!("the API server refuses to {verb} {kinds}: {why}"))
            }
            Answer::Expired => {
                told(Reason::Unreachable, format!("{kinds} changed too fast to be followed; they are listed again"))
            }
        }
    }

    /// In one line, for a log or a failed Unit.
    pub(crate) fn why(&self) -> String {
        match self {
            Answer::Unauthorized(why) => {
                format!("the API server does not accept Seaway's credentials: {why}")
            }
            Answer::Forbidden(why) | Answer::Conflict(why) | Answer::Invalid(why) => why.clone(),
            Answer::NotFound => "it is not there".to_owned(),
            Answer::Expired => "what was known is too old".to_owned(),
            Answer::Busy { code, why, .. } => format!("the API server answers {code}: {why}"),
            Answer::Unreachable(why) => format!("the API server cannot be reached: {why}"),
        }
    }

    /// In one line, with what to do about it, where nothing else says it.
    pub(crate) fn told(&self) -> String {
        match self {
            Answer::Forbidden(why) => format!("{why}. As an administrator: {INSTALL}"),
            other => other.why(),
        }
    }
}

impl From<Answer> for Failure {
    fn from(answer: Answer) -> Failure {
        match answer {
            Answer::Busy { after: Some(after), .. } => Failure::Wait { why: answer.why(), after },
            answer => Failure::Retry(answer.why()),
        }
    }
}

/// Which no part of Seaway is by default, and nobody asks before an object names a Secret.
const BIND_CERTIFICATES: &str = "A Service, a route or the configuration names a certificate in a Secret. As an administrator: \
     kubectl apply -f deploy/kubernetes/certificates.yaml, which binds the ClusterRole seaway-copies-reader (hosts), and bind \
     seaway-certificates (controllers) in the namespaces of the Secrets; or let nothing name a Secret.";

/// Whatever it asks for, it is asked again after this.
const LONGEST_PATIENCE: Duration = Duration::from_secs(600);

const TRIED_AGAIN: &str = "The request is retried; the last known state stays in use.";

fn mend(why: &str) -> &'static str {
    if why.contains("UnknownIssuer") || why.contains("not valid for") {
        "The kubeconfig has another cluster's certificate-authority-data, or the server's name is not in its certificate."
    } else if why.contains("fatal alert") {
        "The client certificate of the kubeconfig is not accepted: get a new one."
    } else if why.contains("certificate expired") {
        "The API server's own certificate has expired: renew it (kubeadm certs renew all)."
    } else if why.contains("refused") || why.contains("dns error") || why.contains("timed out") {
        "See that `server:` in the kubeconfig is right and that it is up. The request is retried; the last known state stays in use."
    } else {
        TRIED_AGAIN
    }
}

/// kube's own messages repeat their causes; the causes alone are enough.
fn cause(error: &Error) -> String {
    match error {
        Error::Service(cause) => chain(&**cause),
        Error::SerdeError(cause) => format!("it answers what is no Kubernetes object: {cause}"),
        _ => error.source().map_or_else(|| error.to_string(), chain),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::Status;

    use super::*;

    fn answer(code: u16, reason: &str, message: &str) -> Answer {
        Answer::of(&Error::Api(Status::failure(message, reason).with_code(code).boxed()))
    }

    #[test]
    fn each_trouble_names_its_mend() {
        let pools = Watched::known(Kind::AddressPool);
        let services = Watched::known(Kind::Service);
        let unreachable = |why: &str| Answer::Unreachable(why.to_owned());
        for (answer, watched, message, fix) in [
            (
                answer(
                    403,
                    "Forbidden",
                    "nodes is forbidden: User \"system:anonymous\" cannot list resource",
                ),
                services,
                "does not accept Seaway's credentials",
                "new kubeconfig",
            ),
            (
                answer(401, "Unauthorized", "Unauthorized"),
                services,
                "does not accept Seaway's credentials",
                "new kubeconfig",
            ),
            (
                answer(403, "Forbidden", "services is forbidden: User \"x\" cannot list resource"),
                services,
                "may not list services: services is forbidden",
                "seaway crds",
            ),
            (
                answer(404, "NotFound", "404 page not found"),
                pools,
                "does not have AddressPool (addresspools.seaway.dev, seaway.dev/v1alpha1)",
                "seaway crds",
            ),
            (answer(429, "TooManyRequests", "slow down"), services, "answers 429: slow down", "is retried"),
            (answer(500, "InternalError", "etcd"), services, "answers 500: etcd", "is retried"),
            (unreachable("tcp connect error: Connection refused"), services, "cannot be reached", "server:"),
            (
                unreachable("invalid peer certificate: UnknownIssuer"),
                services,
                "cannot be reached",
                "certificate-authority-data",
            ),
            (
                unreachable("invalid peer certificate: certificate expired: verification time 2 (UNIX)"),
                services,
                "cannot be reached",
                "renew",
            ),
            (
                unreachable("received fatal alert: CertificateExpired"),
                services,
                "be reached",
                "client certificate",
            ),
        ] {
            let problem = answer.problem(watched, "list");
            assert!(problem.message.contains(message), "{problem}");
            assert!(problem.fix.contains(fix), "{}: {}", problem.message, problem.fix);
        }
    }

    #[test]
    fn a_version_too_old_and_one_of_the_future_are_listed_anew() {
        assert_eq!(answer(410, "Expired", "too old resource version"), Answer::Expired);
        assert_eq!(answer(504, "Timeout", "Too large resource version: 9, current: 3"), Answer::Expired);
        assert!(matches!(answer(504, "Timeout", "x"), Answer::Busy { code: 504, .. }));
    }
}
