//! What the kubelet asks is answered, whoever has the port of the status page.

use std::{net::TcpListener, sync::Arc, time::Duration};

use seaway_admin::{Binding, BoundSockets, logging::LogHandle};

use crate::{client::ask, view};

#[test]
fn a_port_that_another_process_has_is_told_and_opened_once_it_is_free() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap();
    let (admin, mut closed) = runtime.block_on(async {
        let binding = Binding::Exactly(vec![taken]);
        assert!(BoundSockets::bind(&binding).is_err(), "who only shows a page says so and ends");
        let bound = BoundSockets::bind_or_retry(&binding).unwrap();
        let closed = bound.closed_listeners();
        assert_eq!(
            (bound.addresses(), bound.wanted_addresses()),
            (vec![], vec![taken]),
            "nobody names it a member"
        );
        (
            bound.serve(seaway_admin::immediate_source(|| Arc::new(view::at(1000))), LogHandle::detached()),
            closed,
        )
    });
    let told = closed.borrow_and_update().clone();
    assert_eq!((told.len(), told[0].address, told[0].probes), (1, taken, false));
    assert_eq!(told[0].why, "another process listens there");
    assert!(admin.addresses().is_empty());
    drop(other);
    runtime.block_on(async {
        let opened = closed.wait_for(Vec::is_empty);
        tokio::time::timeout(Duration::from_secs(60), opened).await.expect("it is opened").unwrap();
    });
    assert_eq!(ask(taken, "/live").status, 200);
    runtime.block_on(admin.stop());
}

#[test]
fn probes_have_a_port_of_their_own_where_nothing_else_is_told() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (admin, at) = runtime.block_on(async {
        let loopback = Binding::Exactly(vec!["127.0.0.1:0".parse().unwrap()]);
        let bound = BoundSockets::bind(&loopback)
            .unwrap()
            .with_probe_listener("127.0.0.1:0".parse().unwrap())
            .unwrap();
        let [at] = bound.probe_addresses()[..] else { panic!("{bound:?}") };
        assert_eq!(bound.addresses().len(), 1, "the status page is elsewhere");
        (bound.serve(seaway_admin::immediate_source(|| Arc::new(view::at(1000))), LogHandle::detached()), at)
    });
    for path in ["/live", "/ready"] {
        assert_eq!(ask(at, path).status, 200, "{path}");
    }
    for path in ["/", "/state", "/metrics", "/;csv", "/log"] {
        assert_eq!(ask(at, path).status, 404, "{path}");
    }
    runtime.block_on(admin.stop());
}

#[test]
fn a_process_of_which_a_part_hangs_is_not_live() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let fault = Arc::new(std::sync::OnceLock::<String>::new());
    let known = fault.clone();
    let (admin, at) = runtime.block_on(async {
        let loopback = Binding::Exactly(vec!["127.0.0.1:0".parse().unwrap()]);
        let bound = BoundSockets::bind(&loopback)
            .unwrap()
            .with_probe_listener("127.0.0.1:0".parse().unwrap())
            .unwrap();
        let [at] = bound.probe_addresses()[..] else { panic!("{bound:?}") };
        let bound = bound.with_liveness_check(move || known.get().cloned());
        (bound.serve(seaway_admin::immediate_source(|| Arc::new(view::at(1000))), LogHandle::detached()), at)
    });
    assert_eq!(ask(at, "/live").status, 200);
    fault.set("the engine hangs".to_owned()).unwrap();
    let answer = ask(at, "/live");
    assert_eq!((answer.status, answer.body.trim_end()), (503, "the engine hangs"));
    runtime.block_on(admin.stop());
}
