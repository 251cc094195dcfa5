//! The image: what is in it, and that it is the same each time.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::shared_image::{root, run};

/// Any program will do, and a small one is packed sooner.
const PROGRAM: &str = "/usr/bin/env";

struct Image {
    archive: PathBuf,
    /// Of its manifest, as the script prints it.
    digest: String,
}

impl Image {
    /// In a folder that is there.
    fn build(folder: &Path, umask: &str, zone: &str) -> Image {
        let archive = folder.join("seaway.tar");
        let mut build = Command::new("sh");
        build
            .args(["-c", "umask $1; shift; exec \"$@\"", "sh", umask])
            .arg(root().join("deploy/image/build"));
        build.args(["--program", PROGRAM]).arg(&archive);
        build.env("SOURCE_DATE_EPOCH", "1700000000").env("TZ", zone).current_dir(folder);
        let printed = run(&mut build);
        Image { digest: printed.lines().last().unwrap_or_default().to_owned(), archive }
    }

    /// A file of the archive, by its name there.
    fn text(&self, name: &str) -> String {
        run(Command::new("tar").arg("-xOf").arg(&self.archive).arg(name))
    }

    fn json(&self, name: &str) -> serde_json::Value {
        serde_json::from_str(&self.text(name)).unwrap_or_else(|it| panic!("{name}: {it}"))
    }

    /// What a digest of it is the name of.
    fn blob(digest: &serde_json::Value) -> String {
        format!("blobs/{}", digest.as_str().unwrap_or_default().replace(':', "/"))
    }

    /// Its files, as a container runtime lays them out.
    fn unpack(&self, to: &Path) {
        let manifest = self.json(&Image::blob(&self.digest.as_str().into()));
        fs::create_dir_all(to).expect("a folder");
        for layer in manifest["layers"].as_array().expect("layers") {
            let blobs = to.with_extension("blobs");
            fs::create_dir_all(&blobs).expect("a folder");
            let name = Image::blob(&layer["digest"]);
            run(Command::new("tar").arg("-xf").arg(&self.archive).arg("-C").arg(&blobs).arg(&name));
            run(Command::new("tar").arg("-xzpf").arg(blobs.join(name)).arg("-C").arg(to));
        }
    }
}

fn sha256(file: &Path) -> String {
    let output = Command::new("sha256sum").arg(file).output().expect("sha256sum");
    String::from_utf8_lossy(&output.stdout).split(' ').next().unwrap_or_default().to_owned()
}

/// Each object of it has the size and the hash by which it is called, and what it names is there.
fn follow(image: &Image, folder: &Path, object: &Value) -> Value {
    let name = Image::blob(&object["digest"]);
    let done = Command::new("tar").arg("-xf").arg(&image.archive).arg("-C").arg(folder).arg(&name).status();
    assert!(done.expect("tar").success(), "{name} is not there");
    let file = folder.join(&name);
    assert_eq!(object["digest"], format!("sha256:{}", sha256(&file)), "{object}");
    assert_eq!(object["size"], fs::metadata(&file).expect("is there").len(), "{object}");
    match object["mediaType"].as_str().unwrap_or_default().ends_with("json") {
        true => image.json(&name),
        false => Value::Null,
    }
}

#[test]
fn an_image_is_the_same_file_each_time_and_has_the_program_and_certificates_of_authorities() {
    let [first, second] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let image = Image::build(first.path(), "022", "UTC");
    let again = Image::build(second.path(), "077", "Asia/Tokyo");
    assert_eq!(image.digest, again.digest);
    assert_eq!(sha256(&image.archive), sha256(&again.archive), "and so is the archive");

    let index = image.json("index.json");
    assert_eq!(image.json("oci-layout"), json!({"imageLayoutVersion": "1.0.0"}));
    let described = &index["manifests"][0];
    assert_eq!(described["digest"], image.digest);
    let version = env!("CARGO_PKG_VERSION");
    let name = format!("docker.io/library/seaway:{version}");
    assert_eq!(described["annotations"]["io.containerd.image.name"], name, "{index}");
    let manifest = follow(&image, first.path(), described);
    let config = follow(&image, first.path(), &manifest["config"]);
    follow(&image, first.path(), &manifest["layers"][0]);
    assert_eq!(config["config"]["Entrypoint"], json!(["/seaway"]));
    assert_eq!(config["config"]["User"], "65532:65532", "root only where a manifest says so");
    assert_eq!(config["created"], "2023-11-14T22:13:20Z");
    let labels = &config["config"]["Labels"];
    assert_eq!(labels["org.opencontainers.image.version"], version);
    // As `docker load` looked for it before.
    let older = &image.json("manifest.json")[0];
    assert_eq!(older["RepoTags"], json!([format!("seaway:{version}")]));
    assert_eq!(older["Config"], Image::blob(&manifest["config"]["digest"]));
    assert_eq!(older["Layers"], json!([Image::blob(&manifest["layers"][0]["digest"])]));

    let files = first.path().join("root");
    image.unpack(&files);
    let mode = |name: &str| fs::metadata(files.join(name)).expect(name).permissions().mode() & 0o7777;
    assert_eq!((mode("seaway"), mode("etc/passwd")), (0o755, 0o644));
    let anchors = fs::read_to_string(files.join("etc/ssl/certs/ca-certificates.crt")).expect("authorities");
    let count = anchors.matches("BEGIN CERTIFICATE").count();
    let packed = fs::read_dir("/usr/share/ca-certificates/mozilla").expect("ca-certificates").count();
    assert!(count > 50 && count == packed, "{count}: none that were added to this machine");
    assert!(
        anchors.lines().all(|it| !it.contains("-----") || it.matches("-----").count() == 2),
        "one a line"
    );
    assert!(!files.join("bin").exists(), "there is no shell");
    // What the manifests mount something at is there already.
    assert!(files.join("etc/seaway").is_dir() && files.join("run/seaway").is_dir());
}

/// The name that containerd gives it, and that `docker load` gives it.
#[test]
fn an_image_has_the_whole_name_of_its_registry() {
    let anchors = "-----BEGIN CERTIFICATE-----\n-----END CERTIFICATE-----";
    for (name, whole, tag) in [
        ("seaway:1", "docker.io/library/seaway:1", "1"),
        ("team/seaway:1", "docker.io/team/seaway:1", "1"),
        ("registry.example:5000/seaway:1", "registry.example:5000/seaway:1", "1"),
        ("localhost/a.b/seaway:1-x", "localhost/a.b/seaway:1-x", "1-x"),
        ("team/a.b/seaway:1", "docker.io/team/a.b/seaway:1", "1"),
    ] {
        let folder = tempfile::tempdir().expect("a folder");
        let (archive, file) = (folder.path().join("seaway.tar"), folder.path().join("anchors.pem"));
        fs::write(&file, anchors).expect("is written");
        let mut build = Command::new(root().join("deploy/image/build"));
        build.args(["--program", PROGRAM, "--name", name, "--anchors"]).arg(&file).arg(&archive);
        let digest = run(&mut build).lines().last().unwrap_or_default().to_owned();
        let image = Image { archive, digest };
        let notes = &image.json("index.json")["manifests"][0]["annotations"];
        assert_eq!(notes["io.containerd.image.name"], whole);
        assert_eq!(notes["org.opencontainers.image.ref.name"], tag);
        assert_eq!(image.json("manifest.json")[0]["RepoTags"], json!([name]));
        let files = folder.path().join("root");
        image.unpack(&files);
        let read = fs::read_to_string(files.join("etc/ssl/certs/ca-certificates.crt")).expect("authorities");
        assert_eq!(read, format!("{anchors}\n"), "those that were named, and no other");
    }
}

/// The tag is that of this version, in the one place that names it.
#[test]
fn the_manifests_name_the_image_that_is_built() {
    let text = fs::read_to_string(root().join("deploy/kubernetes/components/image/kustomization.yaml"));
    let line = format!("images: [{{name: seaway, newName: seaway, newTag: {}}}]", env!("CARGO_PKG_VERSION"));
    assert!(text.expect("is there").lines().any(|it| it == line), "{line}");
}

#[test]
fn a_build_that_is_asked_for_something_else_says_what_is_wrong() {
    let said = |arguments: &[&str]| {
        let output = Command::new(root().join("deploy/image/build")).args(arguments).output().expect("runs");
        assert!(!output.status.success(), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert!(said(&[]).contains("ARCHIVE, or --root FOLDER"));
    assert!(said(&["--root", "a", "b"]).contains("ARCHIVE, or --root FOLDER"));
    assert!(said(&["--profil", "dist"]).contains("no option is called --profil"));
    assert!(said(&["--anchors", "/nowhere", "a.tar"]).contains("apt-get install ca-certificates"));
    assert!(said(&["--name", "registry.example:5000/seaway", "a.tar"]).contains("has no tag"));
}
