//! What is asked of rules: all seeds, and mutations of them.

use std::path::Path;

fn weigh(run: &mut dyn FnMut()) -> u64 {
    allocation_counter::measure(run).bytes_max
}

#[test]
fn paths_hold_over_seeds_and_mutations() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/paths");
    seaway_testkit::mutate::hold(&corpus, 10_000, weigh, seaway_snapshot::fuzz::paths);
}
