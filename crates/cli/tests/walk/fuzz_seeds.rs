//! What stands in a `seaway.yaml`, and in configurations that are imported: all seeds, and mutations of them.

use std::path::Path;

fn weigh(run: &mut dyn FnMut()) -> u64 {
    allocation_counter::measure(run).bytes_max
}

#[test]
fn the_configuration_holds_over_seeds_and_mutations() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/settings");
    seaway_testkit::mutate::hold(&corpus, 5_000, weigh, seaway_cli::fuzz::settings);
}

#[test]
fn imported_configurations_hold_over_seeds_and_mutations() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/import");
    seaway_testkit::mutate::hold(&corpus, 3_000, weigh, seaway_cli::fuzz::import);
}
