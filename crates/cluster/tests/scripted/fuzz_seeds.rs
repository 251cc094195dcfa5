//! What an API server sends: all seeds, and mutations of them.

use std::path::Path;

fn hold(corpus: &str, target: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(corpus);
    seaway_testkit::mutate::hold(&corpus, 20_000, weigh, target);
}

fn weigh(run: &mut dyn FnMut()) -> u64 {
    allocation_counter::measure(run).bytes_max
}

#[test]
fn objects_hold_over_seeds_and_mutations() {
    hold("object", seaway_cluster::fuzz::object);
}

#[test]
fn addresses_hold_over_seeds_and_mutations() {
    hold("address", seaway_cluster::fuzz::address);
}

#[test]
fn what_hosts_say_holds_over_seeds_and_mutations() {
    hold("host", seaway_cluster::fuzz::host);
}

#[test]
fn leases_hold_over_seeds_and_mutations() {
    hold("lease", seaway_cluster::fuzz::lease);
}
