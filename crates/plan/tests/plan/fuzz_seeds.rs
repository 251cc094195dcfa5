//! What people write into annotations: all seeds, and mutations of them.

use std::path::Path;

fn weigh(run: &mut dyn FnMut()) -> u64 {
    allocation_counter::measure(run).bytes_max
}

#[test]
fn the_certificate_parser_holds_over_seeds_and_mutations() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/certificate");
    seaway_testkit::mutate::hold(&corpus, 20_000, weigh, seaway_plan::fuzz::certificate);
}

#[test]
fn the_reader_of_wishes_holds_over_seeds_and_mutations() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/wish");
    seaway_testkit::mutate::hold(&corpus, 2_000, weigh, seaway_plan::fuzz::wish);
}
