//! The status page as a browser shows it. Without a browser these say so and pass, unless CI=true or
//! SEAWAY_BROWSER_TESTS=required.
#![allow(clippy::unwrap_used, reason = "a test may")]
#![allow(clippy::print_stderr, reason = "a skipped test says why")]

#[path = "browser/chromium.rs"]
mod chromium;
#[allow(dead_code, reason = "it needs less of it than the test of the routes")]
#[path = "sample/client.rs"]
mod client;
#[path = "browser/measured.rs"]
mod measured;
#[path = "sample/view.rs"]
mod view;

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use chromium::{Chromium, Look};
use measured::Measured;
use seaway_admin::{Binding, BoundSockets, View, logging::LogHandle};

const PHONE: Look = Look { dark: false, size: (390, 844) };
const DARK_PHONE: Look = Look { dark: true, ..PHONE };
const DESK: Look = Look { dark: false, size: (1280, 900) };

/// Serves a view that tells, as its version, how often it was looked at.
fn serving(test: impl FnOnce(SocketAddr)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let looks = AtomicU64::new(0);
    let source = move || {
        let look = looks.fetch_add(1, Ordering::Relaxed);
        Arc::new(View { version: format!("look {look}"), ..view::at(1000 * look) })
    };
    let anywhere = Binding::Exactly(vec!["127.0.0.1:0".parse().unwrap()]);
    let admin = runtime.block_on(async {
        BoundSockets::bind(&anywhere)
            .unwrap()
            .serve(seaway_admin::immediate_source(source), LogHandle::detached())
    });
    test(admin.addresses()[0]);
    runtime.block_on(admin.stop());
}

/// An attribute that the measuring script set on the root.
fn found<'a>(dom: &'a str, name: &str) -> &'a str {
    let root = dom.split_once("<html").and_then(|(_, rest)| rest.split_once('>')).unwrap().0;
    let behind =
        root.split_once(&format!(" data-{name}=\"")).unwrap_or_else(|| panic!("no {name} in {root}")).1;
    behind.split_once('"').unwrap().0
}

#[test]
fn the_page_updates_itself_under_its_own_policy_and_runs_no_name() {
    let Some(chromium) = Chromium::find() else { return };
    serving(|at| {
        let dom = chromium.dom(&format!("http://{at}/"), &DESK, 4500);
        let look: u64 = dom.split_once("Seaway look ").unwrap().1.split(' ').next().unwrap().parse().unwrap();
        assert!(look >= 2, "only look {look} arrived");
        assert!(dom.contains("<title>2 problems · Seaway · edge-01.example.net</title>"), "{dom}");
        assert!(dom.contains(r#"data-state="live">live</span>"#), "{dom}");
        assert!(!dom.contains("<img"), "a name became an element");
    });
}

#[test]
fn a_phone_shows_cards_without_scrolling_sideways() {
    let Some(chromium) = Chromium::find() else { return };
    serving(|at| {
        let page = Measured::before(at, false);
        for width in ["390", "320"] {
            let dom = chromium.dom(&format!("http://{}/within/{width}", page.at), &DESK, 3500);
            assert_eq!(found(&dom, "width"), width);
            assert_eq!((found(&dom, "overflow"), found(&dom, "wide")), ("0", ""), "at {width}");
            assert_eq!(found(&dom, "row"), "grid", "rows are cards");
            assert_eq!(found(&dom, "kept"), "true", "an update replaced what it should have changed");
        }
    });
}

#[test]
fn a_desk_shows_tables_without_scrolling_sideways() {
    let Some(chromium) = Chromium::find() else { return };
    serving(|at| {
        let page = Measured::before(at, false);
        let dom = chromium.dom(&format!("http://{}/", page.at), &DESK, 1500);
        assert_eq!((found(&dom, "overflow"), found(&dom, "wide")), ("0", ""));
        assert_eq!(found(&dom, "row"), "table-row");
    });
}

#[test]
fn dark_mode_is_light_on_dark() {
    let Some(chromium) = Chromium::find() else { return };
    serving(|at| {
        let page = Measured::before(at, false);
        let brightness = |dom: &str, of: &str| -> u32 {
            let numbers = found(dom, of).trim_start_matches("rgb(").trim_end_matches(')');
            numbers.split(", ").map(|n| n.parse::<u32>().unwrap()).sum()
        };
        let url = format!("http://{}/", page.at);
        let light = chromium.dom(&url, &PHONE, 500);
        let dark = chromium.dom(&url, &DARK_PHONE, 500);
        assert!(
            brightness(&light, "ground") > 600 && brightness(&light, "ink") < 200,
            "{}",
            found(&light, "ground")
        );
        assert!(
            brightness(&dark, "ground") < 150 && brightness(&dark, "ink") > 600,
            "{}",
            found(&dark, "ground")
        );
    });
}

#[test]
fn typing_a_name_leaves_its_services_and_a_link_to_them() {
    let Some(chromium) = Chromium::find() else { return };
    serving(|at| {
        let page = Measured::before(at, false);
        let dom = chromium.dom(&format!("http://{}/?type=infra", page.at), &DESK, 2500);
        assert_eq!((found(&dom, "articles"), found(&dom, "query")), ("1", "?q=infra"));
    });
}

#[test]
fn a_lost_server_is_said_and_the_last_state_stays() {
    let Some(chromium) = Chromium::find() else { return };
    serving(|at| {
        let page = Measured::before(at, true);
        let dom = chromium.dom(&format!("http://{}/", page.at), &DESK, 2500);
        assert!(dom.contains("no answer, trying again"), "{dom}");
        assert_eq!(found(&dom, "articles"), "4");
    });
}

#[test]
fn a_picture_of_the_page_is_as_wide_as_the_phone_and_differs_in_the_dark() {
    let Some(chromium) = Chromium::find() else { return };
    serving(|at| {
        let url = format!("http://{at}/");
        let (width, height, light) = chromium.picture(&url, &PHONE);
        assert_eq!((width, height), PHONE.size);
        let (_, _, dark) = chromium.picture(&url, &DARK_PHONE);
        // An empty page of this size takes some 3 kB.
        assert!(light.len() > 20_000 && dark.len() > 20_000, "{} and {} bytes", light.len(), dark.len());
        assert_ne!(light, dark);
    });
}
