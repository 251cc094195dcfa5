//! The image, as `deploy/image/build` makes it of the program under test.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Compiling a static one would take as long as all tests: the image has this one with its libraries, and is the same but for them.
/// Without what debuggers read, it is packed sooner.
pub(crate) struct Image {
    pub(crate) archive: PathBuf,
    /// Of its manifest, as the script prints it.
    pub(crate) digest: String,
}

pub(crate) fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn run(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|it| panic!("{command:?}: {it}"));
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("is text")
}

impl Image {
    /// In a folder that is there.
    pub(crate) fn build(seaway: &str, folder: &Path) -> Image {
        let (program, archive) = (folder.join("seaway"), folder.join("seaway.tar"));
        if !program.exists() {
            run(Command::new("strip").arg("-o").arg(&program).arg(seaway));
        }
        let mut build = Command::new(root().join("deploy/image/build"));
        build.arg("--program").arg(program).arg(&archive).env("SOURCE_DATE_EPOCH", "1700000000");
        let printed = run(&mut build);
        Image { digest: printed.lines().last().unwrap_or_default().to_owned(), archive }
    }

    /// A file of the archive, by its name there.
    pub(crate) fn text(&self, name: &str) -> String {
        run(Command::new("tar").arg("-xOf").arg(&self.archive).arg(name))
    }

    pub(crate) fn json(&self, name: &str) -> serde_json::Value {
        serde_json::from_str(&self.text(name)).unwrap_or_else(|it| panic!("{name}: {it}"))
    }

    /// What a digest of it is the name of.
    pub(crate) fn blob(digest: &serde_json::Value) -> String {
        format!("blobs/{}", digest.as_str().unwrap_or_default().replace(':', "/"))
    }

    /// Its files, as a container runtime lays them out.
    pub(crate) fn unpack(&self, to: &Path) {
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
