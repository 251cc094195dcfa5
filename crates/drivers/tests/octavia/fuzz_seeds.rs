//! What others write into a cloud: all seeds, and mutations of them.

use std::path::Path;

fn weigh(run: &mut dyn FnMut()) -> u64 {
    allocation_counter::measure(run).bytes_max
}

#[test]
fn names_and_tags_hold_over_seeds_and_mutations() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/names");
    seaway_testkit::mutate::hold(&corpus, 20_000, weigh, seaway_drivers::fuzz::names);
}
