//! The fuzz target over its seeds and mutations of them.

use std::path::Path;

#[test]
fn the_ini_parser_holds_over_seeds_and_mutations() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/ini");
    seaway_testkit::mutate::hold(&corpus, 20_000, seaway_openstack::fuzz::ini);
}
