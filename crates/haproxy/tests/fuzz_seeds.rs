//! What HAProxy says: all seeds, and mutations of them.

use std::path::Path;

fn weigh(run: &mut dyn FnMut()) -> u64 {
    allocation_counter::measure(run).bytes_max
}

#[test]
fn the_haproxy_parser_holds_over_seeds_and_mutations() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/haproxy");
    seaway_testkit::mutate::hold(&corpus, 20_000, weigh, seaway_haproxy::fuzz::haproxy);
}
