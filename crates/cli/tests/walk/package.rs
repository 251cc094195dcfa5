//! The Debian package and the archive: what is in them, that they are the same each time, and what dpkg does with them.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use crate::shared_image::{root, run};

/// Any program will do, and a small one is packed sooner. Seaway itself describes the package.
const PROGRAM: &str = "/usr/bin/env";
const SEAWAY: &str = env!("CARGO_BIN_EXE_seaway");

/// In a folder of its own; the last line that it prints is that of the archive.
fn build(folder: &Path) -> [PathBuf; 2] {
    let mut build = Command::new(root().join("deploy/package/build"));
    build.args(["--program", PROGRAM, "--describe", SEAWAY]).arg(folder);
    build.env("SOURCE_DATE_EPOCH", "1700000000");
    let printed = run(&mut build);
    let names: Vec<_> = printed.lines().filter_map(|line| Some(line.split_once("  ")?.1)).collect();
    let [package, archive] = names[..] else { panic!("{printed}") };
    assert_eq!(fs::read_to_string(folder.join("SHA256SUMS")).expect("is there"), printed);
    [package, archive].map(|name| folder.join(name))
}

/// A machine whose files are in a folder: dpkg, and the scripts of packages, touch nothing else.
struct Machine {
    files: tempfile::TempDir,
}

impl Machine {
    fn new() -> Machine {
        let files = tempfile::tempdir().expect("a folder");
        for folder in ["etc", "var/lib/dpkg/updates", "var/lib/dpkg/info"] {
            fs::create_dir_all(files.path().join(folder)).expect("a folder");
        }
        for (file, text) in [
            ("var/lib/dpkg/status", ""),
            ("etc/passwd", "root:x:0:0:root:/root:/bin/sh\n"),
            ("etc/group", "root:x:0:\n"),
        ] {
            fs::write(files.path().join(file), text).expect("is written");
        }
        Machine { files }
    }

    fn dpkg(&self, arguments: &[&str]) {
        let mut dpkg = Command::new("dpkg");
        dpkg.arg(format!("--root={}", self.files.path().display()));
        dpkg.args(["--force-script-chrootless", "--force-depends", "--force-confold"]).args(arguments);
        run(dpkg.env("DEBIAN_FRONTEND", "noninteractive"));
    }

    fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    fn has(&self, name: &str) -> bool {
        self.path(name).symlink_metadata().is_ok()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_else(|it| panic!("{name}: {it}"))
    }

    fn write(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().expect("a folder")).expect("a folder");
        fs::write(self.path(name), text).expect("is written");
    }
}

/// The same package as one of a later version.
fn later(package: &Path, folder: &Path) -> PathBuf {
    let unpacked = folder.join("later");
    run(Command::new("dpkg-deb").arg("--raw-extract").arg(package).arg(&unpacked));
    let control = unpacked.join("DEBIAN/control");
    let text = fs::read_to_string(&control).expect("is there");
    let version = format!("Version: {}\n", env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&version), "{text}");
    fs::write(&control, text.replace(&version, "Version: 99.0.0\n")).expect("is written");
    let example = unpacked.join("etc/seaway/seaway.yaml");
    let text = fs::read_to_string(&example).expect("is there") + "# of the later version\n";
    fs::write(&example, text).expect("is written");
    let to = folder.join("later.deb");
    run(Command::new("dpkg-deb")
        .args(["--root-owner-group", "-Zgzip", "-z1", "--build"])
        .arg(unpacked)
        .arg(&to));
    to
}

#[test]
fn packages_are_the_same_each_time_and_have_the_program_units_manual_and_completions() {
    let [first, second] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let [package, archive] = build(first.path());
    for (one, other) in [&package, &archive].into_iter().zip(build(second.path())) {
        assert!(fs::read(one).expect("is there") == fs::read(&other).expect("is there"), "{}", one.display());
    }
    let of_package = run(Command::new("dpkg-deb").arg("--contents").arg(&package));
    for name in [
        "./usr/bin/seaway\n",
        "./usr/bin/kubectl-seaway -> seaway\n",
        "./lib/systemd/system/seaway.service\n",
        "./lib/systemd/system/seaway-node.service\n",
        "./etc/seaway/seaway.yaml\n",
        "./etc/seaway/manifests/\n",
        "./usr/share/man/man1/seaway.1.gz\n",
        "./usr/share/bash-completion/completions/seaway\n",
    ] {
        assert!(of_package.contains(name), "{name}: {of_package}");
    }
    assert!(of_package.lines().all(|line| line.contains(" root/root ")), "{of_package}");
    let of_archive = run(Command::new("tar").arg("-tzf").arg(&archive));
    for name in ["seaway", "kubectl-seaway", "LICENSE", "README.md", "seaway.service", "seaway.1"] {
        assert!(of_archive.lines().any(|line| line.ends_with(&format!("/{name}"))), "{name}: {of_archive}");
    }
}

#[test]
fn a_package_is_installed_upgraded_removed_and_purged_and_keeps_what_is_not_its_own() {
    if !nix::unistd::geteuid().is_root() {
        eprintln!("skipped: dpkg installs as root only");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let [package, _] = build(folder.path());
    let newer = later(&package, folder.path());
    let machine = Machine::new();

    machine.dpkg(&["--install", &package.to_string_lossy()]);
    assert!(machine.has("usr/bin/seaway") && machine.has("etc/seaway/manifests"));
    let unit = machine.read("lib/systemd/system/seaway.service");
    assert!(unit.contains("ExecStart=/usr/bin/seaway run") && !unit.contains("/usr/local"), "{unit}");
    assert!(machine.read("etc/passwd").contains("\nseaway:"), "the account of seaway-node.service");
    // Nothing is started, nor enabled for the next start.
    assert!(!machine.has("etc/systemd/system/multi-user.target.wants"));
    let mut check = Command::new(SEAWAY);
    let said = run(check.args(["config", "--check"]).arg(machine.path("etc/seaway/seaway.yaml")));
    assert_eq!(said, "no problems\n", "what is installed is a valid configuration");

    // What its administrator wrote, and what it wrote itself.
    machine.write("etc/seaway/seaway.yaml", "drain: 5s\n");
    machine.write("etc/seaway/manifests/shop.yaml", "kind: Service\n");
    machine.write("var/lib/private/seaway/ledger", "addresses\n");
    machine.dpkg(&["--install", &newer.to_string_lossy()]);
    assert_eq!(machine.read("etc/seaway/seaway.yaml"), "drain: 5s\n");
    assert!(machine.read("etc/seaway/seaway.yaml.dpkg-dist").ends_with("# of the later version\n"));
    assert_eq!(machine.read("etc/passwd").matches("seaway:").count(), 1);

    machine.dpkg(&["--remove", "seaway"]);
    assert!(!machine.has("usr/bin/seaway") && !machine.has("lib/systemd/system/seaway.service"));
    for kept in ["etc/seaway/seaway.yaml", "etc/seaway/manifests/shop.yaml", "var/lib/private/seaway/ledger"]
    {
        assert!(machine.has(kept), "{kept}: it is installed again with the addresses that it had");
    }
    machine.dpkg(&["--purge", "seaway"]);
    assert!(!machine.has("etc/seaway/seaway.yaml") && !machine.has("var/lib/private/seaway"));
    assert!(machine.has("etc/seaway/manifests/shop.yaml"), "manifests are not the package's");
}

#[test]
fn a_build_of_packages_that_cannot_be_done_says_why() {
    let said = |arguments: &[&str]| {
        let output =
            Command::new(root().join("deploy/package/build")).args(arguments).output().expect("runs");
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(said(&[]).contains("say where it goes: FOLDER"));
    assert!(said(&["--programm", "x", "y"]).contains("no option is called --programm"));
    assert!(said(&["a", "b"]).contains("one FOLDER, not a and b"));
}
