//! What a service says of itself, asked for as carefully as anything else.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use seaway_openstack::Service;
use serde_json::json;

use crate::{
    keystone::{connect, granted_as, signs_in, unauthorized},
    logged::CapturedLog,
    scripted::{ScriptedReply, ScriptedServer},
    session::{hurried, networks},
};

fn list() -> ScriptedReply {
    ScriptedReply::Json(200, json!({"versions": [{"id": "v2.0", "status": "CURRENT"}]}))
}

#[tokio::test]
async fn versions_are_asked_for_with_a_good_token_and_again_after_an_hour() {
    let given = Arc::new(AtomicUsize::new(0));
    let server = {
        let given = given.clone();
        ScriptedServer::start(move |request| match signs_in(request) {
            true if given.fetch_add(1, Ordering::SeqCst) == 0 => granted_as(request, "revoked"),
            true => granted_as(request, "good"),
            false if request.headers["x-auth-token"] == "revoked" => unauthorized(),
            false => list(),
        })
    };
    let (clock, settings) = hurried();
    let cloud = connect(&server, settings).await.expect("let in");
    for _ in 0..5 {
        assert!(cloud.versions(Service::Network).await.expect("with another token").supports(2, 0));
    }
    assert_eq!((given.load(Ordering::SeqCst), server.count("GET", "/")), (2, 2));
    clock.advance(Duration::from_secs(3601));
    cloud.versions(Service::Network).await.expect("they are there");
    assert_eq!(server.seen().iter().filter(|it| it.method == "GET").count(), 3);
}

#[tokio::test]
async fn a_root_that_is_hidden_or_broken_leaves_the_place_below_the_version() {
    let hidden: [fn() -> ScriptedReply; 3] = [
        || ScriptedReply::HangUp,
        || ScriptedReply::Html(404, "<html>"),
        || ScriptedReply::Json(500, json!(null)),
    ];
    for hidden in hidden {
        let server = ScriptedServer::start(move |request| match request.path.as_str() {
            _ if signs_in(request) => granted_as(request, "t"),
            "/network/v2.0/" => list(),
            _ => hidden(),
        });
        let cloud = connect(&server, hurried().1).await.expect("let in");
        assert!(cloud.versions(Service::Network).await.expect("found below").supports(2, 0));
    }
}

#[tokio::test]
async fn each_call_each_list_of_versions_and_each_sign_in_has_a_span() {
    let server =
        ScriptedServer::start(|request| if signs_in(request) { granted_as(request, "t") } else { list() });
    let (logged, _guard) = CapturedLog::start();
    let cloud = connect(&server, hurried().1).await.expect("let in");
    cloud.versions(Service::Network).await.expect("versions");
    cloud.call(networks()).await.expect("networks");
    for span in [
        "openstack{service=\"identity\" operation=\"sign in\" number=1}: seaway_openstack::http::transport: answered",
        "openstack{service=network operation=\"list versions\" method=GET path=\"\"}: seaway_openstack::http::transport: answered",
        "openstack{service=network operation=\"list networks\" method=GET path=\"/networks\"}: seaway_openstack::http::transport: answered",
    ] {
        assert!(logged.count(span) > 0, "{span} is not in\n{}", logged.text());
    }
}
