//! A user without rights of its own, as the units have it: what it starts has the two, and no others.

use std::{process::Stdio, thread};

use rustix::thread::{clear_ambient_capability_set, set_keep_capabilities, set_no_new_privs, set_thread_uid};

use super::*;

/// Effective capabilities of what a thread with these starts.
fn passed(kept: CapabilitySet) -> String {
    let as_user = move || {
        set_keep_capabilities(true).expect("kept");
        set_thread_uid(rustix::thread::Uid::from_raw(65_534)).expect("another user");
        let sets = CapabilitySets { permitted: kept, effective: kept, inheritable: CapabilitySet::empty() };
        set_capabilities(None, sets).expect("cut down");
        clear_ambient_capability_set().expect("none");
        set_no_new_privs(true).expect("for good");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let mut command = Command::new("grep");
            command.args(["CapEff", "/proc/self/status"]).stdout(Stdio::piped());
            let output = spawn(command).expect("started").wait_with_output().await.expect("ended");
            String::from_utf8(output.stdout).expect("a text")
        })
    };
    thread::spawn(as_user).join().expect("ended")
}

#[test]
fn what_is_started_has_two_rights_of_ours_and_no_others() {
    let own = capabilities(None).expect("known").permitted;
    let [bind, admin, raw, chown] = [
        CapabilitySet::NET_BIND_SERVICE,
        CapabilitySet::NET_ADMIN,
        CapabilitySet::NET_RAW,
        CapabilitySet::CHOWN,
    ];
    if !own.contains(bind | admin | raw | chown | CapabilitySet::SETUID) {
        return seaway_testkit::skip(None, "only root can become another user that has rights");
    }
    for (kept, has) in [
        (bind | admin, bind | admin),
        (bind | admin | raw | chown, bind | raw),
        (chown, CapabilitySet::empty()),
    ] {
        assert_eq!(passed(kept), format!("CapEff:\t{:016x}\n", has.bits()), "{kept:?}");
    }
}
