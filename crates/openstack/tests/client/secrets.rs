//! A whole session, logged as loudly as can be: no log and no debug text shows the password or the token. A process
//! of its own does it, for there is one log in a process.

use std::sync::atomic::{AtomicUsize, Ordering};

use seaway_openstack::{Call, Cloud, Reply, Service, Source, nova::NewServer, resource::SecretText};
use secrecy::SecretString;
use serde_json::json;

use crate::{
    again,
    keystone::{PASSWORD, TOKEN, credentials, granted, quick, signs_in, unauthorized},
    scripted::{ScriptedReply, ScriptedServer},
};

/// Not a test of itself: what the other one runs.
#[tokio::test]
#[ignore = "run by another test, which reads what it logs"]
async fn a_process_that_logs_all_there_is() {
    tracing_subscriber::fmt()
        .with_max_level(tracing::Level::TRACE)
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_span_events(tracing_subscriber::fmt::format::FmtSpan::FULL)
        .init();
    let turn = AtomicUsize::new(0);
    let server = ScriptedServer::start(move |request| {
        if signs_in(request) {
            return granted(request);
        }
        match turn.fetch_add(1, Ordering::SeqCst) {
            0 => ScriptedReply::Json(503, json!(null)),
            1 => unauthorized(),
            2 => ScriptedReply::Json(200, json!({"networks": []})),
            3 => ScriptedReply::HangUp,
            _ => ScriptedReply::Html(200, "<html>"),
        }
    });
    let given = credentials(&format!("{}/v3", server.url()));
    let source = Source::Given(given.clone());
    let mut shown = format!("{source:?} {given:?}");
    let cloud = Cloud::connect(source, quick()).await.expect("let in");
    let networks = || Call::get(Service::Network, "list networks", "/networks");
    let port = Call::post(Service::Network, "make a port", "/ports", json!({}));
    for call in [networks(), port, networks()] {
        shown += &format!("{:?} {:?}", cloud.call(call).await, cloud.session());
    }
    assert_eq!(server.count("POST", "/auth/tokens"), 2, "the token was renewed, too");

    tracing::debug!(shown);
}

#[test]
fn no_log_and_no_debug_text_shows_the_password_or_the_token() {
    let output = again("secrets::a_process_that_logs_all_there_is", &[]);
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{log}");
    for told in ["signed in", "list networks", "once more", "answered", "Session {"] {
        assert!(log.contains(told), "the log tells something: {log}");
    }
    for secret in [PASSWORD, TOKEN] {
        assert!(!log.contains(secret), "the log shows {secret}");
    }
}

#[test]
fn no_debug_text_of_a_call_or_reply_shows_a_body() {
    let body = json!({"auth": PASSWORD, "payload": TOKEN});
    let call = Call::post(Service::Identity, "sign in", "/auth/tokens", body.clone());
    let reply = Reply { status: 200, body, request_id: Some("req-1".into()) };
    let hidden = SecretText::from(SecretString::from(PASSWORD));
    let server = NewServer { user_data: Some(hidden).into(), ..NewServer::new("s") };
    let told = format!("{call:?} {reply:?} {server:?}");
    assert!(told.contains("/auth/tokens") && told.contains("req-1") && told.contains("user_data"), "{told}");
    assert!(!told.contains(PASSWORD) && !told.contains(TOKEN), "{told}");
    assert_eq!(serde_json::to_value(&server).expect("a body")["user_data"], PASSWORD, "Nova is told");
}
