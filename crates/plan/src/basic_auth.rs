//! Names and passwords that a Service asks of clients (`seaway.dev/basic-auth`), wherever HTTP leads to it.
//!
//! Where it cannot be asked, nothing listens: [`cannot_require_password`]. Without users no request is served.

use std::sync::Arc;

use seaway_model::{
    Kind, ObjectRef, Problem, ProblemDetail, Reason,
    fact::Service,
    load_balancer::{BasicAuth, Protocol},
};

use crate::{
    access_rules,
    annotations::{BASIC_AUTH, ServiceOptions},
    certificates::{Certificates, passwords::InvalidPasswordLine, read::USERS},
    demand::{Demand, DemandPort},
    index::PlanContext,
};

const USUAL_REALM: &str = "Authentication required";

/// What its requests have to come with.
pub(crate) fn of(
    service: &Service,
    wishes: &ServiceOptions,
    certificates: &Certificates,
) -> Option<Arc<BasicAuth>> {
    let secret = secret(service, wishes)?;
    let users = certificates.users(&secret).map(|it| it.users.clone());
    Some(Arc::new(BasicAuth {
        of: access_rules::object(service),
        realm: wishes.http.realm.clone().unwrap_or_else(|| USUAL_REALM.into()),
        users: users.filter(|it| !it.0.is_empty()),
        forwards: wishes.http.forwards_authorization,
    }))
}

/// Where its users are.
pub(crate) fn secret(service: &Service, wishes: &ServiceOptions) -> Option<ObjectRef> {
    let name = wishes.http.basic_auth.as_ref()?;
    Some(ObjectRef::new(Kind::Secret, service.meta.namespace.clone(), name.clone()))
}

/// What is wrong with its users.
pub(crate) fn problems(
    service: &Service,
    wishes: &ServiceOptions,
    certificates: &Certificates,
) -> Vec<Problem> {
    let Some(secret) = secret(service, wishes).filter(|it| !certificates.is_withheld(it)) else {
        return Vec::new();
    };
    let mut problems = certificates.problems_of(&secret);
    let read = certificates.users(&secret);
    if read.is_none_or(|it| it.users.0.is_empty()) {
        let what = match certificates.is_there(&secret) {
            false => format!("there is no {secret} with a key {USERS}: all requests get 503"),
            true => format!(
                "{secret} has no user in its key {USERS} whose password can be verified: all requests get 503"
            ),
        };
        let problem = Problem::new(access_rules::object(service), Reason::NoSuchSecret, what)
            .about(ProblemDetail::Missing(secret.clone()));
        let near = certificates
            .nearest_users(&secret)
            .map_or_else(String::new, |it| format!("Did you mean {it}? Else: "));
        problems.push(problem.at(wishes.field_of(BASIC_AUTH)).fix(format!(
            "{near}Write the users with htpasswd -B -C 10 -c users NAME, and the Secret with kubectl create secret generic {} \
             --from-file={USERS}=users.",
            secret.name
        )));
    }
    let unusable = read.into_iter().flat_map(|it| &it.unusable);
    problems.extend(unusable.map(|(why, lines)| of_lines(&secret, *why, lines)));
    problems
}

/// The same of one that a route leads to.
pub(crate) fn problems_of(service: &Service, given: PlanContext<'_>) -> Vec<Problem> {
    let mut wishes = ServiceOptions::of(&given.config.defaults);
    // What is not understood of it is told to its owner.
    wishes.read(&access_rules::object(service), &service.meta.annotations);
    problems(service, &wishes, given.certificates)
}

/// As many are named.
const NAMED: usize = 5;

fn of_lines(secret: &ObjectRef, why: InvalidPasswordLine, lines: &[usize]) -> Problem {
    const ONE: &str = "the user of such a line cannot log in, others are not affected";
    let (what, follows, fix) = match why {
        InvalidPasswordLine::Form => {
            ("is not NAME:HASH", ONE, "Write each user as NAME:HASH, as htpasswd does.")
        }
        InvalidPasswordLine::Twice => (
            "names a user whom an earlier line names",
            "the earlier line is used, and the later one is ignored",
            "Remove one of the two lines.",
        ),
        InvalidPasswordLine::Weak => (
            "has no password hash that Seaway verifies: bcrypt ($2y$), sha512-crypt ($6$) or sha256-crypt ($5$)",
            ONE,
            "Set the password again with htpasswd -B (bcrypt): hashes by MD5 ($apr1$, $1$), {SHA} and crypt are guessed too fast. (In files \
             of Compose, $$ stands for $; here, write one.)",
        ),
        InvalidPasswordLine::Broken => (
            "has a password hash that is cut off or damaged",
            ONE,
            "Set the password again: htpasswd -B. (In files of Compose, $$ stands for $; here, write one.)",
        ),
        InvalidPasswordLine::Beyond => (
            "is beyond the limit of 1000 users",
            "the users of this line and of all later lines cannot log in",
            "Use seaway.dev/forward-auth for so many users, or several Secrets and Services.",
        ),
        InvalidPasswordLine::Costly => (
            "has a password hash that takes too long to verify",
            ONE,
            "Use bcrypt with a cost of 12 at most (htpasswd -B -C 10), or sha-crypt with 100000 rounds at most.",
        ),
    };
    let named: Vec<String> = lines.iter().take(NAMED).map(ToString::to_string).collect();
    let more = if lines.len() > NAMED { " and more" } else { "" };
    let message = format!("line {}{more} {what}; {follows}", named.join(", "));
    Problem::new(secret.clone(), Reason::Invalid, message).at(format!("data[{USERS}]")).fix(fix)
}

/// Whether a password was to be asked for at this port, and cannot.
pub(crate) fn cannot_require_password(demand: &Demand, wanted: &DemandPort) -> bool {
    demand.wishes.http.basic_auth.is_some() && demand.protocol(&wanted.port) != Protocol::Http
}

/// What is told of an owner with listeners of its own.
pub(crate) fn listener_problems(demand: &Demand, certificates: &Certificates) -> Vec<Problem> {
    let mut problems = problems(&demand.service, &demand.wishes, certificates);
    problems.extend(unprotected(demand));
    problems
}

/// What is told of ports and clouds where it cannot.
fn unprotected(demand: &Demand) -> Option<Problem> {
    demand.wishes.http.basic_auth.as_ref()?;
    let closed = demand.ports.iter().filter(|it| cannot_require_password(demand, it));
    let closed: Vec<String> = closed.map(|it| it.id().to_string()).collect();
    let (message, fix) = if demand.cloud.is_some() {
        (
            "load balancers of a cloud do not support basic-auth: nothing is created or changed".to_owned(),
            "Serve the Service with the native driver, or remove the annotation.",
        )
    } else if !closed.is_empty() {
        (
            format!(
                "a password can be requested only by HTTP: no listener is opened at port {}",
                closed.join(", ")
            ),
            "Set seaway.dev/protocol: http, or a certificate in seaway.dev/tls; give other ports a Service of their own.",
        )
    } else {
        return None;
    };
    let problem = Problem::new(demand.owner.object(), Reason::Unsupported, message);
    Some(problem.at(demand.wishes.field_of(BASIC_AUTH)).fix(fix))
}
