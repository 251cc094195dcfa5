//! What a process may do, however much it was given.

use seaway_testkit::topology::CapabilitySets;

use crate::harness::Setup;

#[test]
fn who_serves_keeps_the_rights_that_it_needs_and_no_others() {
    let seaway = Setup::new().start();
    let all = CapabilitySets::of(seaway.child.id());
    assert!(all.len() > 3, "control and data plane have threads of their own: {all:?}");
    let root = nix::unistd::geteuid().is_root();
    for rights in all {
        let kept = if root { CapabilitySets::NETWORK | CapabilitySets::RAW } else { 0 };
        // Only who was given all can take some out of the bounding set; without, nothing is to be had from it.
        let bounding = if root { kept } else { rights.bounding };
        let expected = CapabilitySets {
            inheritable: 0,
            permitted: kept,
            effective: kept,
            bounding,
            ambient: 0,
            no_new: true,
        };
        assert_eq!(rights, expected);
    }
}
