//! Seaway, let in as little as the units of systemd let it.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use seaway_testkit::topology::CapabilitySets;

use crate::harness::Setup;

/// What systemd makes of a unit's `SystemCallFilter=`; nothing where there is no systemd that tells.
fn allowed(unit: &str) -> Option<BTreeSet<String>> {
    let told = Command::new("systemd-analyze").arg("syscall-filter").output().ok()?;
    let told = String::from_utf8(told.stdout).expect("is text");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(unit);
    let unit = fs::read_to_string(path).expect("is there");
    let mut allowed = BTreeSet::new();
    for line in unit.lines().filter_map(|it| it.strip_prefix("SystemCallFilter=")) {
        let (names, refused) = line.strip_prefix('~').map_or((line, false), |it| (it, true));
        for name in names.split(' ').flat_map(|name| members(&told, name)) {
            if refused {
                allowed.remove(&name)
            } else {
                allowed.insert(name)
            };
        }
    }
    Some(allowed)
}

/// A set starts with its name, and its members follow, indented; some are sets themselves.
fn members(told: &str, name: &str) -> Vec<String> {
    if !name.starts_with('@') {
        return vec![name.to_owned()];
    }
    let lines = told.lines().skip_while(|it| *it != name).skip(1).take_while(|it| it.starts_with(' '));
    let names = lines.map(str::trim).filter(|it| !it.starts_with('#'));
    names.flat_map(|it| members(told, it)).collect()
}

#[test]
fn it_starts_with_the_rights_and_the_system_calls_that_its_units_leave_it() {
    for (unit, capabilities) in [
        ("seaway.service", "net_admin,+net_bind_service"),
        ("seaway-node.service", "net_admin,+net_bind_service"),
    ] {
        let Some(allowed) = allowed(unit) else {
            return seaway_testkit::skip(Some("SEAWAY_NET_TESTS"), "there is no systemd-analyze");
        };
        assert!(allowed.contains("openat") && !allowed.contains("chroot"), "{unit}: {allowed:?}");
        assert!(allowed.contains("capset"), "{unit}: it gives up rights");
        // As where such a filter is somebody else's, and has no word for it.
        let stricter = allowed.iter().filter(|it| *it != "capset").cloned().collect();
        starts(&allowed, capabilities);
        starts(&stricter, capabilities);
    }
}

fn starts(allowed: &BTreeSet<String>, capabilities: &str) {
    let folder = tempfile::tempdir().expect("a folder");
    let library = folder.path().join("filter.so");
    let list = allowed.iter().map(|it| format!("#ifdef SYS_{it}\nALLOW(SYS_{it})\n#endif\n"));
    fs::write(folder.path().join("allowed.h"), list.collect::<String>()).expect("is written");
    let mut compiler = Command::new("cc");
    compiler.args(["-shared", "-fPIC", "-O1", "-I"]).arg(folder.path()).arg("-o").arg(&library);
    let made = compiler.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/walk/filter.c")).output();
    let made = made.expect("a C compiler");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));

    let preload = format!("LD_PRELOAD={}", library.display());
    let bounding = format!("--bounding-set=-all,+{capabilities}");
    let seaway = match nix::unistd::geteuid().is_root() {
        true => Setup::new().by(&["setpriv", &bounding, "env", &preload]),
        false => Setup::new().by(&["env", &preload]),
    }
    .start();
    for rights in CapabilitySets::of(seaway.child.id()) {
        assert_eq!(rights.permitted & !CapabilitySets::NETWORK, 0, "{rights:?}");
    }
}
