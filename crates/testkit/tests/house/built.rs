//! The workspace as cargo tells it: our crates, what each uses, and all that is built.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package};

use super::source::Source;

pub(crate) struct Workspace {
    /// Ours, by name without the `seaway-`.
    pub(crate) crates: Vec<Crate>,
    /// All that is compiled on this platform, sorted by name.
    pub(crate) built: Vec<Built>,
    root_manifest: String,
}

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

impl Workspace {
    pub(crate) fn read() -> &'static Workspace {
        static WORKSPACE: OnceLock<Workspace> = OnceLock::new();
        WORKSPACE.get_or_init(|| {
            let root = root();
            let mut metadata = MetadataCommand::new();
            metadata.manifest_path(root.join("Cargo.toml"));
            metadata
                .other_options(vec![format!("--filter-platform={}-unknown-linux-gnu", env::consts::ARCH)]);
            let metadata = metadata.exec().expect("cargo metadata");
            Workspace {
                crates: metadata.workspace_packages().into_iter().map(|it| ours(it, &root)).collect(),
                built: built(&metadata, &root),
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
fn built(metadata: &Metadata, root: &Path) -> Vec<Built> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let tree = Command::new(cargo)
        .args(["tree", "--workspace", "--edges=normal,build,dev", "--prefix=none", "--format={p}"])
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
    let mut built: Vec<Built> = metadata
        .packages
        .iter()
        .map(|it| Built {
            name: it.name.to_string(),
            version: it.version.to_string(),
            licence: it.license.clone().unwrap_or_default(),
        })
        .filter(|it| named.contains(&(&*it.name, &*it.version)))
        .collect();
    assert_eq!(built.len(), named.len(), "every package that is built has its metadata");
    built.sort();
    built
}

pub(crate) fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}
