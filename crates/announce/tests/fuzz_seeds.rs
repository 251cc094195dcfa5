//! The kernel's readers over their seeds and the same mutations everywhere (`fuzz/README.md`).

use std::path::{Path, PathBuf};

use seaway_announce::fuzz;
use seaway_testkit::mutate;

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

fn weigh(run: &mut dyn FnMut()) -> u64 {
    allocation_counter::measure(run).bytes_max
}

#[test]
fn the_netlink_reader_holds_over_seeds_and_mutations() {
    mutate::hold(&corpus("netlink"), 20_000, weigh, fuzz::netlink);
}

#[test]
fn the_reader_of_socket_tables_holds_over_seeds_and_mutations() {
    mutate::hold(&corpus("tables"), 20_000, weigh, fuzz::tables);
}

#[test]
fn the_reader_of_arp_and_ndp_holds_over_seeds_and_mutations() {
    mutate::hold(&corpus("neighbors"), 20_000, weigh, fuzz::neighbors);
}

#[test]
fn the_reader_of_heartbeats_holds_over_seeds_and_mutations() {
    mutate::hold(&corpus("heartbeat"), 20_000, weigh, fuzz::heartbeat);
}

#[test]
fn sessions_of_bfd_hold_over_seeds_and_mutations() {
    mutate::hold(&corpus("bfd"), 20_000, weigh, fuzz::bfd);
}

#[test]
fn sessions_of_bgp_hold_over_seeds_and_mutations() {
    mutate::hold(&corpus("bgp"), 20_000, weigh, fuzz::bgp);
}
