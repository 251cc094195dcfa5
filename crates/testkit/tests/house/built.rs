//! The workspace as cargo tells it: our crates, what each uses, and all that is built.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
    thread,
};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

use super::source::Source;

pub(crate) struct Workspace {
    /// Ours, by name without the `seaway-`.
    pub(crate) crates: Vec<Crate>,
    /// Of the workspace and of the fuzz targets, for each machine that Seaway is built for, with all features.
    pub(crate) builds: Vec<Build>,
    root_manifest: String,
}

/// What one manifest needs on one machine.
pub(crate) struct Build {
    /// `fuzz/Cargo.toml for aarch64-unknown-linux-gnu`.
    pub(crate) name: String,
    /// Sorted by name.
    pub(crate) packages: Vec<Built>,
}

const MANIFESTS: [&str; 2] = ["Cargo.toml", "fuzz/Cargo.toml"];
const TARGETS: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

pub(crate) struct Crate {
    pub(crate) name: String,
    /// `crates/proxy`.
    pub(crate) folder: String,
    pub(crate) uses: Vec<Used>,
    pub(crate) manifest: String,
    pub(crate) sources: Vec<Source>,
}

pub(crate) struct Used {
    pub(crate) name: String,
    /// As sources say it.
    pub(crate) word: String,
    pub(crate) ours: bool,
    pub(crate) when: Use,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Always,
    Dev,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Built {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) licence: String,
}

impl Build {
    /// Pairs of versions of one package.
    pub(crate) fn twice(&self) -> impl Iterator<Item = &[Built]> {
        self.packages.windows(2).filter(|pair| pair[0].name == pair[1].name)
    }
}

impl Workspace {
    pub(crate) fn read() -> &'static Workspace {
        static WORKSPACE: OnceLock<Workspace> = OnceLock::new();
        WORKSPACE.get_or_init(|| {
            let root = &root();
            let told: Vec<(Metadata, Build)> = thread::scope(|scope| {
                let asked = MANIFESTS.iter().flat_map(|manifest| TARGETS.map(|target| (manifest, target)));
                let asked =
                    asked.map(|(manifest, target)| scope.spawn(move || build(root, manifest, target)));
                let running: Vec<_> = asked.collect();
                running.into_iter().map(|it| it.join().expect("cargo tells")).collect()
            });
            let crates = told[0].0.workspace_packages();
            Workspace {
                crates: crates.into_iter().map(|it| ours(it, root)).collect(),
                builds: told.into_iter().map(|(_, build)| build).collect(),
                root_manifest: read(&root.join("Cargo.toml")),
            }
        })
    }

    pub(crate) fn sources(&self) -> impl Iterator<Item = &Source> {
        self.crates.iter().flat_map(|it| &it.sources)
    }

    /// The lines of `[workspace.lints.…]`.
    pub(crate) fn lints(&self) -> impl Iterator<Item = &str> {
        self.lines_of("[workspace.lints.")
    }

    /// What the root manifest offers to all, by name.
    pub(crate) fn offered(&self) -> impl Iterator<Item = &str> {
        self.lines_of("[workspace.dependencies]").filter_map(|line| Some(line.split_once('=')?.0.trim()))
    }

    fn lines_of(&self, section: &str) -> impl Iterator<Item = &str> {
        let mut within = false;
        self.root_manifest.lines().map(str::trim).filter(move |line| {
            if line.starts_with('[') {
                within = line.starts_with(section);
                return false;
            }
            within && line.contains('=')
        })
    }
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the checkout")
}

fn ours(package: &Package, root: &Path) -> Crate {
    let folder = package.manifest_path.parent().expect("a manifest is in a folder").as_std_path();
    let mut sources = Vec::new();
    Source::gather(folder, root, &mut sources);
    let uses = package.dependencies.iter().map(|it| Used {
        name: short(&it.name),
        word: it.rename.as_ref().unwrap_or(&it.name).replace('-', "_"),
        ours: it.path.is_some(),
        when: if it.kind == DependencyKind::Development { Use::Dev } else { Use::Always },
    });
    Crate {
        name: short(&package.name),
        folder: folder.strip_prefix(root).expect("within the checkout").to_string_lossy().into_owned(),
        uses: uses.collect(),
        manifest: read(package.manifest_path.as_std_path()),
        sources,
    }
}

fn short(name: &str) -> String {
    name.strip_prefix("seaway-").unwrap_or(name).to_owned()
}

/// `cargo metadata` tells also what a lock file may need for features that nobody enabled (hickory's `ring`); `cargo
/// tree` tells what is built, without its licence. Together they tell enough.
fn build(root: &Path, manifest: &str, target: &str) -> (Metadata, Build) {
    let mut metadata = MetadataCommand::new();
    metadata.manifest_path(root.join(manifest));
    metadata.other_options(vec!["--locked".to_owned(), format!("--filter-platform={target}")]);
    let metadata = metadata.exec().expect("cargo metadata");
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let tree = Command::new(cargo)
        .args([
            "tree",
            "--locked",
            "--workspace",
            "--all-features",
            "--edges=normal,build,dev",
            "--prefix=none",
        ])
        .args(["--format={p}", "--target", target, "--manifest-path", manifest])
        .current_dir(root)
        .output()
        .expect("cargo tree");
    assert!(tree.status.success(), "cargo tree: {}", String::from_utf8_lossy(&tree.stderr));
    let text = String::from_utf8_lossy(&tree.stdout);
    // `serde v1.0.2 (proc-macro)`
    let named: BTreeSet<(&str, &str)> = text
        .lines()
        .filter_map(|line| {
            let mut words = line.split_whitespace();
            Some((words.next()?, words.next()?.strip_prefix('v')?))
        })
        .collect();
    assert!(named.len() > 50, "cargo tree told only {} packages", named.len());
    let mut packages: Vec<Built> = metadata
        .packages
        .iter()
        .map(|it| Built {
            name: it.name.to_string(),
            version: it.version.to_string(),
            licence: it.license.clone().unwrap_or_default(),
        })
        .filter(|it| named.contains(&(&*it.name, &*it.version)))
        .collect();
    assert_eq!(packages.len(), named.len(), "every package that is built has its metadata");
    packages.sort();
    (metadata, Build { name: format!("{manifest} for {target}"), packages })
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
