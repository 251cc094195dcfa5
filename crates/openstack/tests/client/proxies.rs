//! A proxy of the environment is used, but not for the loopback. The environment belongs to a process, so each case is a
//! process of its own.

use std::{env, process::Output};

use seaway_openstack::{Cloud, Source};

use crate::{
    again,
    keystone::{credentials, grant, granted, quick},
    scripted::{ScriptedReply, ScriptedServer},
};

const AUTH_URL: &str = "SEAWAY_TEST_AUTH_URL";

/// Not a test of itself: what the others run, with an environment.
#[tokio::test]
#[ignore = "run by other tests, with an environment"]
async fn a_process_that_signs_in() {
    let auth_url = env::var(AUTH_URL).expect("the other test sets it");
    let error = Cloud::connect(Source::Given(credentials(&auth_url)), quick()).await.err();
    assert!(error.is_none(), "{}", error.map(|it| it.to_string()).unwrap_or_default());
}

fn sign_in(auth_url: &str, proxy: &str, no_proxy: &str) -> Output {
    let environment =
        [(AUTH_URL, auth_url), ("http_proxy", proxy), ("https_proxy", proxy), ("no_proxy", no_proxy)];
    again("proxies::a_process_that_signs_in", &environment)
}

#[test]
fn a_proxy_of_the_environment_is_used() {
    let proxy = ScriptedServer::start(|_| {
        ScriptedReply::JsonWith(201, ("x-subject-token", "t"), grant("http://keystone.example"))
    });
    let output = sign_in("http://keystone.example:5000/v3", &proxy.url(), "");
    assert!(output.status.success(), "{output:?}");
    let paths: Vec<String> = proxy.seen().into_iter().map(|it| it.path).collect();
    assert_eq!(paths, ["http://keystone.example:5000/v3/auth/tokens"]);
}

#[test]
fn a_proxy_that_does_not_connect_is_named() {
    let proxy = ScriptedServer::start(|_| ScriptedReply::Html(403, "<html>no"));
    let output = sign_in("https://keystone.example:5000/v3", &proxy.url(), "");
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = "the proxy of this environment does not connect to keystone.example:5000; see https_proxy and no_proxy \
                in the environment";
    assert!(told.contains(line), "{told}");
}

#[test]
fn the_loopback_is_not_asked_of_a_proxy() {
    let proxy = ScriptedServer::start(|_| ScriptedReply::HangUp);
    let server = ScriptedServer::start(granted);
    let output = sign_in(&format!("{}/v3", server.url()), &proxy.url(), "");
    assert!(output.status.success(), "{output:?}");
    assert!(proxy.seen().is_empty(), "{:?}", proxy.seen());
}
