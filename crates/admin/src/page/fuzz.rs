//! What must hold for whatever a stranger writes behind the `?` of the status page (`fuzz/README.md`).

#![allow(clippy::arithmetic_side_effects, reason = "what is wrong ends the fuzz target")]

use seaway_model::L4;

use super::{
    filter::{Filter, severity},
    html, live,
};
use crate::{
    process::Usage,
    view::{ByteCounts, ListenerView, RejectedCounts, ServiceView, Sessions, View},
};

/// What is sought reads back from its escapes, is no markup on the page, and shows no more services than fit: those in
/// trouble, and no others than there are.
pub fn filter(bytes: &[u8]) {
    let Ok(query) = std::str::from_utf8(bytes) else { return };
    let filter = Filter::of(query);
    // A byte that is no text becomes a character of three.
    assert!(filter.sought.len() <= query.len() * 3);
    let escaped: String = filter.sought.bytes().map(|it| format!("%{it:02x}")).collect();
    let limit = filter.limit.map(|it| format!("&limit={it}")).unwrap_or_default();
    let part = if filter.live_part { "&part=live" } else { "" };
    assert_eq!(Filter::of(&format!("q={escaped}{limit}{part}")), filter);
    let text = html::text(&filter.sought).to_string();
    assert!(!text.contains(['<', '>', '"', '\'']), "{text}");

    let whole = view();
    let on_page = filter.clone().for_page();
    let shown = on_page.apply(whole.clone());
    let there = shown.view.services.len();
    assert_eq!(there, on_page.limit.unwrap_or(usize::MAX).min(shown.matching));
    assert_eq!(shown.sums.services, whole.services.len());
    assert!(shown.matching <= whole.services.len());
    assert!(!filter.sought.is_empty() || shown.matching == whole.services.len());
    let found = Filter { limit: None, ..filter.clone() }.apply(whole);
    let is_left_out = |it: &&ServiceView| !shown.view.services.contains(it);
    let least = shown.view.services.iter().map(severity).min();
    for hidden in found.view.services.iter().filter(is_left_out) {
        assert!(least.is_none_or(|least| severity(hidden) <= least), "{} is in more trouble", hidden.owner);
    }
    let tags = |filter: &Filter| live::render(&shown, filter, Usage::default()).matches('<').count();
    let harmless = if filter.sought.is_empty() { "" } else { "x" };
    assert_eq!(tags(&on_page), tags(&Filter { sought: harmless.to_owned(), ..on_page.clone() }), "{text}");
}

/// Services with and without trouble.
fn view() -> View {
    let service = |name: &str, addresses: &[[u8; 4]]| ServiceView {
        owner: format!("Service default/{name}"),
        namespace: "default".to_owned(),
        name: name.to_owned(),
        addresses: addresses.iter().map(|it| (*it).into()).collect(),
        ..ServiceView::default()
    };
    let listener = ListenerView {
        address: [192, 0, 2, 1].into(),
        port: 80,
        protocol: L4::Tcp,
        name: "http".to_owned(),
        serving: true,
        sessions: Sessions::default(),
        bytes: ByteCounts::default(),
        refused: RejectedCounts::default(),
        errors: 0,
        http: None,
        rate: None,
    };
    let well = ServiceView { listeners: vec![listener], ..service("shop", &[[192, 0, 2, 1]]) };
    View { services: vec![well, service("bank", &[]), service("a<b", &[[192, 0, 2, 7]])], ..View::default() }
}
