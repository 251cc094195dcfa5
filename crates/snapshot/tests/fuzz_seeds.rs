//! What is asked of rules: all seeds, and mutations of them.

use std::path::Path;

#[test]
fn paths_hold_over_seeds_and_mutations() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/paths");
    seaway_testkit::mutate::hold(&corpus, 20_000, seaway_snapshot::fuzz::paths);
}
