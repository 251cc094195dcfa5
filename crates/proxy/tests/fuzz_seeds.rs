//! Every parser over its seeds and the same mutations everywhere (`fuzz/README.md`).

use std::path::Path;

fn hold(corpus: &str, target: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(corpus);
    seaway_testkit::mutate::hold(&corpus, 20_000, weigh, target);
}

fn weigh(run: &mut dyn FnMut()) -> u64 {
    allocation_counter::measure(run).bytes_max
}

#[test]
fn cookies_hold_over_seeds_and_mutations() {
    hold("cookies", seaway_proxy::fuzz::cookies);
}

#[test]
fn who_the_client_is_holds_over_seeds_and_mutations() {
    hold("forwarded", seaway_proxy::fuzz::forwarded);
}

#[test]
fn traces_hold_over_seeds_and_mutations() {
    hold("trace_parent", seaway_proxy::fuzz::trace_parent);
}

#[test]
fn members_that_are_asked_by_http2_hold_over_seeds_and_mutations() {
    hold("call", seaway_proxy::fuzz::call);
}

#[test]
fn other_origins_hold_over_seeds_and_mutations() {
    hold("cors", seaway_proxy::fuzz::cors);
}

#[test]
fn outcomes_of_grpc_hold_over_seeds_and_mutations() {
    hold("grpc", seaway_proxy::fuzz::grpc);
}

#[test]
fn what_rules_do_to_requests_holds_over_seeds_and_mutations() {
    hold("rules", seaway_proxy::fuzz::rules);
}

#[test]
fn messages_of_a_hand_over_hold_over_seeds_and_mutations() {
    hold("takeover", seaway_proxy::fuzz::takeover);
}
