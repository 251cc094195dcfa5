//! What needs a reload loses nothing by it.

use std::sync::Arc;

use seaway_haproxy::difference::ReloadReason;
use seaway_testkit::traffic::{Clients, Kind, Target};

use crate::{
    changes::is_as_wanted,
    place::{BACKENDS, key, label, place},
};

#[test]
fn reloads_are_gathered_and_lose_no_request() {
    let Some(place) = place() else { return };
    let mut document = place.document();
    let haproxy = Arc::new(place.start(&document));
    let clients = Clients::here();
    // A connection that a client keeps may end by the reload as its next request is under way: such a client asks again.
    let load = clients.load(vec![Target::new("short", Kind::Http, place.http).times(150)]);
    load.goes_on(5);
    for round in 0..3 {
        // Ten new backends, all wanted at once.
        let mut wanted = Vec::new();
        for number in 0..10 {
            let number = BACKENDS + round * 10 + number;
            place.add_backend(&mut document, number);
            let entry = (key(&format!("new-{number}.example/")), key(&format!("b{number}")));
            document.maps.get_mut(&label("prefix.map")).expect("a map").entries.push(entry);
            wanted.push(Arc::new(document.clone()));
        }
        place.runtime.block_on(async {
            let mut all = tokio::task::JoinSet::new();
            for document in wanted {
                let haproxy = haproxy.clone();
                all.spawn(async move { haproxy.serve(document).await });
            }
            all.join_all().await.into_iter().for_each(|it| it.expect("served"));
        });
        // Which of those that came at once was the last is left to chance.
        place.serve(&haproxy, &document).expect("served");
        is_as_wanted(&place, &document);
        let host = format!("new-{}.example", BACKENDS + round * 10 + 9);
        let new = Target::new("new", Kind::Http, place.http).host(&host);
        clients.ask(&new).expect("the new one is served");
    }
    load.goes_on(20);
    load.end().was_always_answered();
    let report = haproxy.report().borrow().clone();
    assert!((3..=6).contains(&report.reloads_done), "{report:?}");
    assert!(report.reloads[&ReloadReason::NewBackend] >= 3, "{report:?}");
    place.runtime.block_on(Arc::into_inner(haproxy).expect("alone").stop());
}
