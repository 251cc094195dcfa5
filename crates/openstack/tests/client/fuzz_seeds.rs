//! What the files of credentials have and what services say: all seeds, and mutations of them.

use std::path::Path;

fn hold(corpus: &str, target: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(corpus);
    seaway_testkit::mutate::hold(&corpus, 20_000, weigh, target);
}

fn weigh(run: &mut dyn FnMut()) -> u64 {
    allocation_counter::measure(run).bytes_max
}

#[test]
fn the_ini_parser_holds_over_seeds_and_mutations() {
    hold("ini", seaway_openstack::fuzz::ini);
}

#[test]
fn clouds_yaml_holds_over_seeds_and_mutations() {
    hold("clouds", seaway_openstack::fuzz::clouds);
}

#[test]
fn times_hold_over_seeds_and_mutations() {
    hold("duration", seaway_openstack::fuzz::duration);
}

#[test]
fn pauses_that_services_ask_for_hold_over_seeds_and_mutations() {
    hold("retry_after", seaway_openstack::fuzz::retry_after);
}

#[test]
fn refusals_hold_over_seeds_and_mutations() {
    hold("refusal", seaway_openstack::fuzz::refusal);
}

#[test]
fn versions_hold_over_seeds_and_mutations() {
    hold("versions", seaway_openstack::fuzz::versions);
}

#[test]
fn catalogs_hold_over_seeds_and_mutations() {
    hold("catalog", seaway_openstack::fuzz::catalog);
}

#[test]
fn status_trees_hold_over_seeds_and_mutations() {
    hold("status_tree", seaway_openstack::fuzz::status_tree);
}
