//! The ways to install Seaway, as kubectl's own kustomize makes them of the folders of `deploy/kubernetes`.

use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

use seaway_testkit::{golden, kubernetes::kubectl_alone};
use tempfile::TempDir;

use crate::shared_image::root;

/// A kustomization of a user's own, as docs/install.md has it: one way to install Seaway, and components.
pub(crate) struct Own(TempDir);

impl Own {
    pub(crate) fn of(way: &str, components: &[&str], more: &str) -> Own {
        let folder = tempfile::tempdir().expect("a folder");
        let base = relative(folder.path());
        let components: String = components.iter().map(|it| format!("- {base}/components/{it}\n")).collect();
        let text = format!(
            "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [{base}/{way}]\n\
             components:\n{components}{more}"
        );
        fs::write(folder.path().join("kustomization.yaml"), text).expect("is written");
        Own(folder)
    }

    pub(crate) fn path(&self) -> String {
        self.0.path().to_string_lossy().into_owned()
    }
}

/// `deploy/kubernetes`, as a kustomization in that folder may name it: not by an absolute path.
fn relative(from: &Path) -> String {
    let real = |it: &Path| fs::canonicalize(it).expect("is there");
    let (from, to) = (real(from), real(&deploy()));
    let up = "../".repeat(from.components().count() - 1);
    format!("{up}{}", to.strip_prefix("/").expect("is absolute").display())
}

pub(crate) fn deploy() -> PathBuf {
    root().join("deploy/kubernetes")
}

/// All objects that `kubectl apply -k` sends, or nothing where no kubectl is installed.
pub(crate) fn rendered(folder: &str) -> Option<String> {
    let rendered = kubectl_alone(&["kustomize", folder])?;
    Some(rendered.unwrap_or_else(|it| panic!("{folder}: {it}")))
}

const WAYS: [&str; 4] = ["bare-metal", "beside-metallb", "hosts-outside", "openstack"];

/// What a user may add to each of them: all but what makes these ways.
fn components() -> Vec<String> {
    let folders = fs::read_dir(deploy().join("components")).expect("components");
    let names = folders.map(|it| it.expect("readable").file_name().to_string_lossy().into_owned());
    let mut names: Vec<_> = names.filter(|it| !["default-driver", "hosts"].contains(&&**it)).collect();
    names.sort();
    names
}

fn documents(objects: &str) -> impl Iterator<Item = &str> {
    objects.trim_end().split("\n---\n")
}

/// Definitions and roles are in each, and are files of their own: the golden files have only what is made of the rest.
fn is_base(document: &&str) -> bool {
    let is = |line: &str| ["kind: CustomResourceDefinition", "kind: ClusterRole"].contains(&line);
    document.lines().any(is)
}

/// Definitions and roles as kustomize prints their files, with nothing that changes them.
fn files_of_base() -> Option<String> {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["crds.yaml", "roles.yaml"] {
        fs::copy(deploy().join("base").join(name), folder.path().join(name)).expect("is copied");
    }
    fs::write(folder.path().join("kustomization.yaml"), "resources: [crds.yaml, roles.yaml]\n")
        .expect("is written");
    rendered(&folder.path().to_string_lossy())
}

#[test]
fn each_way_to_install_it_makes_what_its_golden_file_says() {
    for way in WAYS {
        let Some(objects) = rendered(&deploy().join(way).to_string_lossy()) else { return };
        let definitions: BTreeSet<&str> = documents(&objects).filter(is_base).collect();
        assert!(!definitions.is_empty());
        let files = files_of_base().expect("kubectl is here");
        assert_eq!(definitions, documents(&files).collect(), "{way}: not as the files have them");
        let golden = root().join(format!("crates/cli/golden/kustomize/{way}.yaml"));
        let rest: Vec<&str> = documents(&objects).filter(|it| !is_base(it)).collect();
        golden::same(golden, &format!("{}\n", rest.join("\n---\n")));
    }
}

#[test]
fn every_component_can_be_added_to_every_way_and_one_line_changes_every_image() {
    let mine = "images: [{name: seaway, newName: registry.example:5000/seaway, newTag: mine}]\n";
    let components = components();
    let components: Vec<&str> = components.iter().map(String::as_str).collect();
    assert!(components.len() >= 9, "{components:?}");
    for way in WAYS {
        let own = Own::of(way, &components, mine);
        let Some(objects) = rendered(&own.path()) else { return };
        let images: Vec<&str> = objects.lines().filter_map(|it| it.trim().strip_prefix("image: ")).collect();
        assert!(!images.is_empty(), "{way}");
        assert!(images.iter().all(|it| *it == "registry.example:5000/seaway:mine"), "{way}: {images:?}");
        let accounts = objects.matches("\nkind: ServiceAccount\n").count();
        assert_eq!(objects.matches("\nimagePullSecrets:\n- name: registry\n").count(), accounts, "{way}");
        for object in [
            "seaway-critical-pods",
            "seaway-metrics",
            "seaway-certificates",
            "seaway-hosts",
            "seaway-dashboard-overview",
        ] {
            assert!(objects.contains(&format!("\n  name: {object}\n")), "{way} lacks {object}");
        }
        let admitted = "pod-security.kubernetes.io/enforce: ";
        let level = objects.lines().find_map(|it| it.trim().strip_prefix(admitted)).unwrap_or_default();
        let has_hosts = objects.contains("kind: DaemonSet");
        assert_eq!(level, if has_hosts { "privileged" } else { "restricted" }, "{way}");
    }
}

#[test]
fn hosts_that_are_added_to_a_way_without_them_have_the_image_of_this_version() {
    for way in ["openstack", "hosts-outside"] {
        let Some(objects) = rendered(&Own::of(way, &["hosts", "policies"], "").path()) else { return };
        let images: Vec<&str> = objects.lines().filter_map(|it| it.trim().strip_prefix("image: ")).collect();
        assert_eq!(images, [concat!("seaway:", env!("CARGO_PKG_VERSION")); 3], "{way}");
    }
}

/// Blocks of the pages that are kustomizations of a user's, each with its page.
fn of_pages() -> Vec<(String, String)> {
    let mut all = Vec::new();
    for entry in fs::read_dir(root().join("docs")).expect("the pages") {
        let path = entry.expect("a page").path();
        let Ok(text) = fs::read_to_string(&path) else { continue };
        let mut lines = text.lines();
        while let Some(fence) = lines.find(|it| it.trim_start() == "```text") {
            // Those in the steps of a list are further right.
            let indent = fence.len() - fence.trim_start().len();
            let within = lines.by_ref().take_while(|it| it.trim_start() != "```");
            let block: String =
                within.map(|it| format!("{}\n", it.get(indent..).unwrap_or_default())).collect();
            if ["resources:", "components:", "patches:"].iter().any(|key| block.starts_with(key)) {
                all.push((path.file_name().unwrap_or_default().to_string_lossy().into_owned(), block));
            }
        }
    }
    all
}

#[test]
fn kustomizations_of_the_pages_do_what_they_are_there_for() {
    let mut seen = String::new();
    let blocks = of_pages();
    assert!(blocks.len() >= 6, "{blocks:?}");
    for (page, block) in blocks {
        let way = if block.contains("/args/") { "openstack" } else { "bare-metal" };
        let whole = match block.contains("resources:") {
            true => block.clone(),
            false => format!("resources: [../deploy/kubernetes/{way}]\n{block}"),
        };
        let folder = tempfile::tempdir().expect("a folder");
        let whole = whole.replace("../deploy/kubernetes", &relative(folder.path()));
        fs::write(folder.path().join("kustomization.yaml"), &whole).expect("is written");
        let Some(made) = kubectl_alone(&["kustomize", &folder.path().to_string_lossy()]) else { return };
        let made = made.unwrap_or_else(|it| panic!("{page}: {it}\n{block}"));
        let plain = rendered(&deploy().join(way).to_string_lossy()).expect("kubectl is here");
        assert_ne!(made, plain, "{page}: it changes nothing\n{block}");
        seen.push_str(&made);
    }
    for line in [
        "  - NAME",
        "image: REGISTRY/seaway:0.1.0",
        "type: OnDelete",
        "role: loadbalancer",
        "drain: 10s",
        "terminationGracePeriodSeconds: 85",
        "kubernetes.io/metadata.name: monitoring",
    ] {
        assert!(seen.lines().any(|it| it.trim_end().ends_with(line)), "{line}");
    }
}
