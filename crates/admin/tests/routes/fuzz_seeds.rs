//! What strangers ask the status page for: all seeds, and mutations of them.

use std::path::Path;

fn weigh(run: &mut dyn FnMut()) -> u64 {
    allocation_counter::measure(run).bytes_max
}

#[test]
fn the_filter_of_the_page_holds_over_seeds_and_mutations() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/filter");
    seaway_testkit::mutate::hold(&corpus, 20_000, weigh, seaway_admin::fuzz::filter);
}
