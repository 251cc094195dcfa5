//! What an answer of the API server means: whose fault it is, what to do about it, and when to ask again.

use std::{error::Error as _, io, time::Duration};

use kube::Error;
use seaway_engine::{Failure, chain};
use seaway_model::{Kind, ObjectRef, Problem, Reason};

use crate::kinds::{Requirement, WatchedKind};

/// How everything is put in order that Seaway needs in a cluster.
pub(crate) const INSTALL: &str = "seaway crds | kubectl apply -f -";

/// The object that troubles with the API server are told of.
pub fn api_server() -> ObjectRef {
    ObjectRef::new(Kind::Config, "", "kubernetes")
}

/// How a request to the API server failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ApiError {
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
    /// There is no answer, or none of an API server.
    Unreachable(Cause, String),
}

/// Where a request failed before the API server answered it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// It is not the server that the kubeconfig is for.
    OtherServer,
    /// Its certificate has expired.
    Expired,
    /// It does not accept our certificate.
    Refused,
    /// There is no connection.
    Connection,
    /// Anything else.
    Other,
}

impl Cause {
    /// By the types of what an error is caused by.
    fn of(error: &(dyn std::error::Error + 'static)) -> Cause {
        let mut next = Some(error);
        let mut found = Cause::Other;
        while let Some(error) = next {
            if let Some(tls) = error.downcast_ref::<rustls::Error>() {
                return Cause::of_tls(tls);
            }
            next = match error.downcast_ref::<io::Error>() {
                // What it carries is no source of it.
                Some(io) => {
                    found = Cause::Connection;
                    io.get_ref().map(|it| it as &(dyn std::error::Error + 'static))
                }
                None => error.source(),
            };
        }
        found
    }

    fn of_tls(error: &rustls::Error) -> Cause {
        use rustls::CertificateError as Of;
        match error {
            rustls::Error::InvalidCertificate(Of::Expired | Of::ExpiredContext { .. }) => Cause::Expired,
            rustls::Error::InvalidCertificate(
                Of::UnknownIssuer | Of::NotValidForName | Of::NotValidForNameContext { .. },
            ) => Cause::OtherServer,
            rustls::Error::AlertReceived(_) => Cause::Refused,
            _ => Cause::Other,
        }
    }

    fn fix(self) -> &'static str {
        match self {
            Cause::OtherServer => {
                "The kubeconfig has another cluster's certificate-authority-data, or the server's name is not in its certificate."
            }
            Cause::Refused => "The client certificate of the kubeconfig is not accepted: get a new one.",
            Cause::Expired => {
                "The API server's own certificate has expired: renew it (kubeadm certs renew all)."
            }
            Cause::Connection => {
                "Check that `server:` in the kubeconfig is right and that the API server runs. The request is retried; the last known state stays in use."
            }
            Cause::Other => TRIED_AGAIN,
        }
    }
}

impl ApiError {
    pub(crate) fn of(error: &Error) -> ApiError {
        let Error::Api(status) = error else {
            return ApiError::Unreachable(Cause::of(error), told_by(error));
        };
        let why = status.message.clone();
        let causes = status.details.iter().flat_map(|it| &it.causes);
        let is_of_the_future = causes.into_iter().any(|it| it.reason == "ResourceVersionTooLarge");
        let after = status.details.as_ref().map(|it| u64::from(it.retry_after_seconds)).filter(|it| *it > 0);
        match (status.code, &*status.reason) {
            (401, _) => ApiError::Unauthorized(why),
            // A client without credentials is this user; the API server has no other sign of it.
            (403, _) if why.contains("system:anonymous") => ApiError::Unauthorized(why),
            (403, _) => ApiError::Forbidden(why),
            (404, _) => ApiError::NotFound,
            (409, _) => ApiError::Conflict(why),
            (410, _) | (_, "Expired" | "Gone") => ApiError::Expired,
            // A version of the future: the store was set back to an older state.
            (_, "Timeout") if is_of_the_future => ApiError::Expired,
            (400 | 405 | 413 | 415 | 422, _) => ApiError::Invalid(why),
            (code, _) => {
                let after = after.map(|it| Duration::from_secs(it).min(LONGEST_PATIENCE));
                ApiError::Busy { code, why, after }
            }
        }
    }

    /// Whether the next request may succeed without a change by an administrator.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, ApiError::Unreachable(..) | ApiError::Busy { .. } | ApiError::Expired)
    }

    /// What people are told when a watch gets it. `verb`: `list` or `watch`.
    pub(crate) fn problem(&self, watched: &WatchedKind, verb: &str) -> Problem {
        let kinds = watched.qualified();
        let told = |reason, message: String| Problem::new(api_server(), reason, message);
        match self {
            ApiError::Unauthorized(why) => {
                told(Reason::NotPermitted, format!("the API server does not accept Seaway's credentials ({why})")).fix(
                    "The client certificate or the token has expired or is wrong: get a new kubeconfig, or check that \
                     the pod has its ServiceAccount. Seaway reads them again by itself.",
                )
            }
            ApiError::Forbidden(why) => {
                let message = format!("may not {verb} {kinds}: {why}");
                let fix = match watched.kind {
                    Kind::Secret => BIND_CERTIFICATES.to_owned(),
                    _ => format!("As an administrator: {INSTALL}"),
                };
                told(Reason::NotPermitted, message).fix(fix)
            }
            ApiError::NotFound => {
                let api = watched.resource().api_version;
                let message = format!(
                    "the cluster does not have {} ({kinds}, {api}): its CustomResourceDefinition is missing or of \
                         another version",
                    watched.kind
                );
                match watched.need {
                    Requirement::Optional | Requirement::ReportOnly => told(Reason::NotInstalled, message),
                    _ => told(Reason::NotInstalled, message).fix(format!("As an administrator: {INSTALL}")),
                }
            }
            // The same for all kinds, so that it is told once.
            ApiError::Busy { .. } => told(Reason::Unreachable, self.why()).fix(TRIED_AGAIN),
            ApiError::Unreachable(cause, why) => {
                let problem = told(Reason::Unreachable, format!("the API server cannot be reached: {why}"));
                problem.fix(cause.fix())
            }
            ApiError::Conflict(why) | ApiError::Invalid(why) => {
                told(Reason::Unreachable, format!("the API server refuses to {verb} {kinds}: {why}"))
            }
            ApiError::Expired => {
                told(Reason::Unreachable, format!("{kinds} changed faster than the watch could follow; all \
                                                   are listed again"))
            }
        }
    }

    /// In one line, for a log or a failed Unit.
    pub(crate) fn why(&self) -> String {
        match self {
            ApiError::Unauthorized(why) => {
                format!("the API server does not accept Seaway's credentials: {why}")
            }
            ApiError::Forbidden(why) | ApiError::Conflict(why) | ApiError::Invalid(why) => why.clone(),
            ApiError::NotFound => "the object does not exist".to_owned(),
            ApiError::Expired => {
                "the API server does not have the resourceVersion of the watch any more; all objects are \
                 listed again"
                    .to_owned()
            }
            ApiError::Busy { code, why, .. } => format!("the API server answers {code}: {why}"),
            ApiError::Unreachable(_, why) => format!("the API server cannot be reached: {why}"),
        }
    }

    /// The error in one line, with what to do about it: for places that show no fix beside it.
    pub(crate) fn message_with_fix(&self) -> String {
        match self {
            ApiError::Forbidden(why) => format!("{why}. As an administrator: {INSTALL}"),
            other => other.why(),
        }
    }
}

impl From<ApiError> for Failure {
    fn from(answer: ApiError) -> Failure {
        match answer {
            ApiError::Busy { after: Some(after), .. } => Failure::wait(answer.why(), after),
            answer => Failure::retry(answer.why()),
        }
    }
}

/// Which no part of Seaway is by default, and nobody asks before an object names a Secret.
const BIND_CERTIFICATES: &str = "A Service, a route or the configuration names a certificate in a Secret. As an administrator: \
     kubectl apply -f deploy/kubernetes/components/certificates/certificates.yaml, which binds the ClusterRole \
     seaway-copies-reader (hosts), and bind seaway-certificates (controllers) in the namespaces of the Secrets; or let \
     nothing name a Secret.";

/// Whatever it asks for, it is asked again after this.
const LONGEST_PATIENCE: Duration = Duration::from_secs(600);

const TRIED_AGAIN: &str = "The request is retried; the last known state stays in use.";

/// kube's own messages repeat their causes; the causes alone are enough.
fn told_by(error: &Error) -> String {
    match error {
        Error::Service(cause) => chain(&**cause),
        Error::SerdeError(cause) => format!(
            "the response of the API server is not a Kubernetes object: \
                                             {cause}"
        ),
        _ => error.source().map_or_else(|| error.to_string(), chain),
    }
}

#[cfg(test)]
mod tests {
    use kube::core::{Status, response::StatusDetails};
    use serde_json::json;

    use super::*;

    fn answer(code: u16, reason: &str, message: &str) -> ApiError {
        ApiError::of(&Error::Api(Status::failure(message, reason).with_code(code).boxed()))
    }

    #[test]
    fn each_trouble_names_its_mend() {
        let pools = WatchedKind::known(Kind::AddressPool);
        let services = WatchedKind::known(Kind::Service);
        // As hyper has it: what failed is within what failed to connect.
        let unreachable = |error: rustls::Error| {
            let connecting = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, error));
            ApiError::of(&Error::Service(Box::new(connecting)))
        };
        let invalid = |it| unreachable(rustls::Error::InvalidCertificate(it));
        let refused =
            ApiError::of(&Error::Service(Box::new(io::Error::from(io::ErrorKind::ConnectionRefused))));
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
            (refused, services, "cannot be reached", "server:"),
            (
                invalid(rustls::CertificateError::UnknownIssuer),
                services,
                "cannot be reached",
                "certificate-authority-data",
            ),
            (invalid(rustls::CertificateError::Expired), services, "cannot be reached", "renew"),
            (
                unreachable(rustls::Error::AlertReceived(rustls::AlertDescription::CertificateExpired)),
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
        assert_eq!(answer(410, "Expired", "too old resource version"), ApiError::Expired);
        let details = json!({"causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]});
        let details: StatusDetails = serde_json::from_value(details).expect("has that form");
        let status = Status::failure("Too large resource version: 9, current: 3", "Timeout").with_code(504);
        assert_eq!(ApiError::of(&Error::Api(status.with_details(details).boxed())), ApiError::Expired);
        assert!(matches!(answer(504, "Timeout", "x"), ApiError::Busy { code: 504, .. }));
    }
}
