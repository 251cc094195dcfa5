//! Which function answers which URL: one table per service.

use super::{
    exchange::{Answer, Refusal, Reply, Request},
    state::State,
};

pub(super) struct Service {
    /// The first part of its URLs: `/load-balancer`.
    pub(super) prefix: &'static str,
    /// Below it, the roots of versions; longer ones first. Empty for what is not below a version.
    pub(super) versions: &'static [&'static str],
    pub(super) routes: &'static [Route],
    /// Puts a refusal in the service's own words.
    pub(super) refuse: fn(&Refusal) -> Reply,
}

pub(super) struct Route {
    method: &'static str,
    /// `{}` stands for one part of the path.
    path: &'static str,
    answer: Handler,
    open: bool,
}

type Handler = fn(&mut State, &Request) -> Answer;

pub(super) const fn get(path: &'static str, answer: Handler) -> Route {
    Route { method: "GET", path, answer, open: false }
}

pub(super) const fn post(path: &'static str, answer: Handler) -> Route {
    Route { method: "POST", path, answer, open: false }
}

pub(super) const fn put(path: &'static str, answer: Handler) -> Route {
    Route { method: "PUT", path, answer, open: false }
}

pub(super) const fn patch(path: &'static str, answer: Handler) -> Route {
    Route { method: "PATCH", path, answer, open: false }
}

pub(super) const fn delete(path: &'static str, answer: Handler) -> Route {
    Route { method: "DELETE", path, answer, open: false }
}

impl Route {
    /// Needs no token.
    pub(super) const fn open(mut self) -> Route {
        self.open = true;
        self
    }
}

pub(super) fn answer(state: &mut State, services: &[Service], mut request: Request) -> Reply {
    let Some((service, below)) =
        services.iter().find_map(|it| Some((it, request.path.strip_prefix(it.prefix)?.to_owned())))
    else {
        return Reply::raw(404, "There is no such service.", "text/plain");
    };
    match route(service, &below, &request.method) {
        Err(refusal) => (service.refuse)(&refusal),
        Ok((route, at)) => {
            request.at = at;
            if !route.open {
                match state.identity.caller(&request, state.now) {
                    Some(caller) => request.caller = caller,
                    None => return unauthorized(state),
                }
            }
            (route.answer)(state, &request).unwrap_or_else(|refusal| (service.refuse)(&refusal))
        }
    }
}

fn route<'s>(service: &'s Service, below: &str, method: &str) -> Result<(&'s Route, Vec<String>), Refusal> {
    let mut known = false;
    for version in service.versions {
        let Some(path) = below.strip_prefix(version) else { continue };
        for route in service.routes {
            if let Some(at) = fits(route.path, path) {
                if route.method == method {
                    return Ok((route, at));
                }
                known = true;
            }
        }
        if known {
            return Err(Refusal::of(
                405,
                "Method Not Allowed",
                "The method is not allowed for this resource.",
            ));
        }
    }
    Err(Refusal::of(404, "Not Found", "The resource could not be found."))
}

fn fits(pattern: &str, path: &str) -> Option<Vec<String>> {
    let mut at = Vec::new();
    let mut parts = path.trim_end_matches('/').split('/');
    for wanted in pattern.trim_end_matches('/').split('/') {
        let part = parts.next()?;
        match wanted {
            "{}" if !part.is_empty() => at.push(part.to_owned()),
            _ if wanted == part => {}
            _ => return None,
        }
    }
    parts.next().is_none().then_some(at)
}

/// The same from every service: the middleware in front of them says it.
fn unauthorized(state: &State) -> Reply {
    let message = "The request you have made requires authentication.";
    Reply::json(401, serde_json::json!({"error": {"code": 401, "title": "Unauthorized", "message": message}}))
        .with("www-authenticate", format!("Keystone uri=\"{}/identity/v3\"", state.base))
}
