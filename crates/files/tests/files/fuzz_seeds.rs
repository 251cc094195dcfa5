//! The fuzz targets over their seeds and mutations of them.

use std::path::Path;

fn hold(corpus: &str, rounds: usize, target: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(corpus);
    seaway_testkit::mutate::hold(&corpus, rounds, weigh, target);
}

fn weigh(run: &mut dyn FnMut()) -> u64 {
    allocation_counter::measure(run).bytes_max
}

#[test]
fn the_tree_parser_holds_over_seeds_and_mutations() {
    hold("tree", 20_000, seaway_files::fuzz::tree);
}

#[test]
fn the_manifest_parser_holds_over_seeds_and_mutations() {
    hold("manifest", 3_000, seaway_files::fuzz::manifest);
}

#[test]
fn the_ledger_parser_holds_over_seeds_and_mutations() {
    hold("ledger", 20_000, seaway_files::fuzz::ledger);
}

#[test]
fn the_snapshot_of_a_cluster_holds_over_seeds_and_mutations() {
    hold("snapshot", 20_000, seaway_files::fuzz::snapshot);
}

#[test]
fn the_last_good_state_holds_over_seeds_and_mutations() {
    hold("last_good", 10_000, seaway_files::fuzz::last_good);
}
