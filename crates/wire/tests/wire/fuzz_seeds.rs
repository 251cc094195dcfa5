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
fn the_proxy_parser_holds_over_seeds_and_mutations() {
    hold("proxy", seaway_wire::fuzz::proxy);
}

#[test]
fn hellos_hold_over_seeds_and_mutations() {
    hold("hello", seaway_wire::fuzz::hello);
}

#[test]
fn the_status_line_holds_over_seeds_and_mutations() {
    hold("status", seaway_wire::fuzz::status);
}

#[test]
fn heads_of_requests_hold_over_seeds_and_mutations() {
    hold("request", seaway_wire::fuzz::request);
}

#[test]
fn heads_of_answers_hold_over_seeds_and_mutations() {
    hold("response", seaway_wire::fuzz::response);
}

#[test]
fn chunks_hold_over_seeds_and_mutations() {
    hold("chunks", seaway_wire::fuzz::chunks);
}

#[test]
fn frames_hold_over_seeds_and_mutations() {
    hold("frames", seaway_wire::fuzz::frames);
}
