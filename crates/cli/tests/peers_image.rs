//! The image that people get: compiled as it ships, read by other programs, and run by one of them.

// What was measured.
#![allow(clippy::print_stderr)]

use std::{
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::Command,
};

use seaway_testkit::skip;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|it| panic!("{command:?}: {it}"));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}{said}", String::from_utf8_lossy(&output.stdout));
    String::from_utf8(output.stdout).expect("is text")
}

/// Of other people's, with images in a folder of the test's.
fn buildah(folder: &Path, arguments: &[&str]) -> String {
    let mut buildah = Command::new("buildah");
    buildah.args(["--storage-driver", "vfs", "--root"]).arg(folder.join("store"));
    run(buildah.arg("--runroot").arg(folder.join("run")).args(arguments).current_dir(folder))
}

const MB: u64 = 1_000_000;

#[test]
fn the_static_image_is_small_and_is_read_and_run_by_other_programs() {
    for program in ["buildah", "skopeo"] {
        if Command::new(program).arg("--version").output().is_err() {
            return skip(None, &format!("there is no {program}: ./test peers installs it"));
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let archive = folder.path().join("seaway.tar");
    let build = |arguments: &[&str]| {
        run(Command::new(root().join("deploy/image/build")).args(arguments).current_dir(folder.path()))
    };
    let digest = build(&["seaway.tar"]).lines().last().unwrap_or_default().to_owned();
    let size = fs::metadata(&archive).expect("is there").len();
    assert!(size <= 20 * MB, "{size} bytes");

    let described =
        run(Command::new("skopeo").args(["inspect", "oci-archive:seaway.tar"]).current_dir(folder.path()));
    assert!(described.contains(&format!("\"Digest\": \"{digest}\"")), "{described}");
    let name = buildah(folder.path(), &["from", "oci-archive:seaway.tar"]);
    let version = |container: &str| {
        buildah(folder.path(), &["run", "--isolation", "chroot", container.trim(), "/seaway", "--version"])
    };
    assert!(version(&name).starts_with(&format!("seaway {} (", env!("CARGO_PKG_VERSION"))));

    // The last stage of the Containerfile, on what its first makes; that one needs an image of Rust.
    let mounted = buildah(folder.path(), &["mount", name.trim()]);
    let program = format!("{}/seaway", mounted.trim());
    build(&["--program", &program, "--root", "image"]);
    let text = fs::read_to_string(root().join("deploy/image/Containerfile")).expect("is there");
    let (first, last) = text.split_once("\nFROM scratch\n").expect("its last stage");
    assert!(first.contains("RUN deploy/image/build --root /image"), "{first}");
    let whole = format!("FROM scratch AS build\nCOPY image /image\nFROM scratch\n{last}");
    fs::write(folder.path().join("Containerfile"), whole).expect("is written");
    buildah(
        folder.path(),
        &["build", "--isolation", "chroot", "-f", "Containerfile", "-t", "seaway:try", "."],
    );
    let built = buildah(folder.path(), &["from", "seaway:try"]);
    assert_eq!(version(&built), version(&name));
    let user = [
        "inspect",
        "--type",
        "image",
        "--format",
        "{{.OCIv1.Config.User}} {{.OCIv1.Config.Entrypoint}}",
        "seaway:try",
    ];
    assert_eq!(buildah(folder.path(), &user).trim(), "65532:65532 [/seaway]");

    let unpacked = fs::metadata(&program).expect("is there").len();
    let line = format!(
        "- the image: {size} bytes packed, of which the program, static, has {unpacked} unpacked; {digest}\n"
    );
    eprint!("{line}");
    if let Some(file) = env::var_os("SEAWAY_RESULTS") {
        let results = fs::OpenOptions::new().append(true).create(true).open(file);
        results.and_then(|mut it| it.write_all(line.as_bytes())).expect("SEAWAY_RESULTS can be written");
    }
}
