//! The netlink reader over its seeds and the same mutations everywhere (`fuzz/README.md`).

use std::path::Path;

#[test]
fn the_netlink_reader_holds_over_seeds_and_mutations() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/netlink");
    seaway_testkit::mutate::hold(&corpus, 20_000, seaway_announce::fuzz::netlink);
}
