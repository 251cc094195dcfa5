//! What strangers ask the status page for: all seeds, and mutations of them.

use std::path::Path;

#[test]
fn the_filter_of_the_page_holds_over_seeds_and_mutations() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/filter");
    seaway_testkit::mutate::hold(&corpus, 20_000, seaway_admin::fuzz::filter);
}
