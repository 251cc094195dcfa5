//! As much of Keystone as a client needs that has trouble elsewhere.

use seaway_openstack::{Backoff, Cloud, Credentials, Error, Settings, Source, Timing};
use serde_json::{Value, json};
use std::time::Duration;

use crate::scripted::{Request, ScriptedReply, ScriptedServer};

pub(crate) const PASSWORD: &str = "hunter2-is-secret";
pub(crate) const TOKEN: &str = "gAAAA-this-is-the-token";

/// A grant with all services at the same address as Keystone, for an hour.
pub(crate) fn granted(request: &Request) -> ScriptedReply {
    granted_as(request, TOKEN)
}

pub(crate) fn granted_as(request: &Request, token: &'static str) -> ScriptedReply {
    ScriptedReply::JsonWith(201, ("x-subject-token", token), grant(&base(request)))
}

/// Where the client thinks that we are.
pub(crate) fn base(request: &Request) -> String {
    format!("http://{}", request.headers.get("host").map(String::as_str).unwrap_or_default())
}

pub(crate) fn grant(base: &str) -> Value {
    let service = |kind: &str, path: &str| {
        json!({"type": kind, "name": kind, "endpoints": [
            {"interface": "public", "region": "RegionOne", "region_id": "RegionOne", "url": format!("{base}{path}")}]})
    };
    json!({"token": {
        "methods": ["password"],
        "user": {"id": "u1", "name": "demo", "domain": {"id": "default", "name": "Default"}},
        "project": {"id": "p1", "name": "demo", "domain": {"id": "default", "name": "Default"}},
        "roles": [{"id": "r1", "name": "member"}],
        "issued_at": "2026-01-01T00:00:00.000000Z",
        "expires_at": "2026-01-01T01:00:00.000000Z",
        "catalog": [service("network", "/network"), service("load-balancer", "/load-balancer")],
    }})
}

pub(crate) fn unauthorized() -> ScriptedReply {
    let error = json!({"code": 401, "message": "The request you have made requires authentication.",
        "title": "Unauthorized"});
    ScriptedReply::Json(401, json!({ "error": error }))
}

pub(crate) fn signs_in(request: &Request) -> bool {
    request.path.ends_with("/auth/tokens")
}

/// Quick to try again, and patient with whoever answers: threads of tests may be slow.
pub(crate) fn quick() -> Settings {
    Settings {
        timing: Timing {
            connect: Duration::from_secs(60),
            attempt: Duration::from_secs(60),
            call: Duration::from_secs(120),
        },
        backoff: Backoff { attempts: 2, first: Duration::from_millis(5), longest: Duration::from_millis(10) },
        ..Settings::default()
    }
}

/// Quick to lose patience, where nobody answers.
pub(crate) fn impatient() -> Settings {
    let timing = Timing {
        connect: Duration::from_millis(400),
        attempt: Duration::from_millis(500),
        call: Duration::from_secs(2),
    };
    Settings { timing, ..quick() }
}

pub(crate) fn credentials(auth_url: &str) -> Credentials {
    Credentials::password(auth_url, "demo", PASSWORD, "demo")
}

pub(crate) async fn connect(server: &ScriptedServer, settings: Settings) -> Result<Cloud, Error> {
    Cloud::connect(Source::Given(credentials(&format!("{}/v3", server.url()))), settings).await
}
