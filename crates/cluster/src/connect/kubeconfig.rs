//! Kubeconfigs, read as kubectl reads them, by the YAML reader that everything else here is read by: errors have a line, and the
//! program has one reader of YAML instead of two.

use std::{
    collections::BTreeMap,
    env, fs, io,
    path::{MAIN_SEPARATOR, Path, PathBuf},
};

use kube::config::{Kubeconfig, KubeconfigError};
use seaway_manifests::tree::{self, Node, Position, SyntaxError, Value};
use serde::Serialize;

/// Why there is no kubeconfig that can be used.
#[derive(Debug, thiserror::Error)]
pub enum KubeconfigFault {
    #[error("cannot read {}", path.display())]
    Unreadable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{}:{}:{}: {}", path.display(), fault.at.line, fault.at.column, fault.message)]
    Malformed { path: PathBuf, fault: SyntaxError },
    #[error("neither $KUBECONFIG nor a home directory says where a kubeconfig is")]
    Nowhere,
    #[error(transparent)]
    Unusable(#[from] KubeconfigError),
}

impl KubeconfigFault {
    /// There is no such file, which is no mistake where another source of credentials is left.
    pub(super) fn is_absence(&self) -> bool {
        match self {
            KubeconfigFault::Unreadable { source, .. } => source.kind() == io::ErrorKind::NotFound,
            KubeconfigFault::Nowhere => true,
            KubeconfigFault::Malformed { .. } | KubeconfigFault::Unusable(_) => false,
        }
    }
}

/// From `$KUBECONFIG`, which may name several files of which the first to set a value wins, or from `~/.kube/config`. As kubectl does,
/// files that do not exist are left out while another does.
pub(super) fn find() -> Result<Kubeconfig, KubeconfigFault> {
    let named = env::var_os("KUBECONFIG").unwrap_or_default();
    let mut paths: Vec<PathBuf> = env::split_paths(&named).filter(|it| !it.as_os_str().is_empty()).collect();
    if paths.is_empty() {
        paths.push(env::home_dir().ok_or(KubeconfigFault::Nowhere)?.join(".kube").join("config"));
    }
    merged(&paths)
}

fn merged(paths: &[PathBuf]) -> Result<Kubeconfig, KubeconfigFault> {
    let mut found: Option<Kubeconfig> = None;
    let mut absent = None;
    for path in paths {
        match read(path) {
            Ok(next) => found = Some(found.unwrap_or_default().merge(next)?),
            Err(fault) if fault.is_absence() => absent = Some(fault),
            Err(fault) => return Err(fault),
        }
    }
    found.ok_or_else(|| absent.unwrap_or(KubeconfigFault::Nowhere))
}

/// Files that it names are relative to its folder. An empty file is an empty kubeconfig.
pub(super) fn read(path: &Path) -> Result<Kubeconfig, KubeconfigFault> {
    let text = fs::read_to_string(path)
        .map_err(|source| KubeconfigFault::Unreadable { path: path.to_owned(), source })?;
    let malformed = |fault| KubeconfigFault::Malformed { path: path.to_owned(), fault };
    let mut found = Kubeconfig::default();
    for mut part in parse(&text).map_err(malformed)? {
        name_from(path.parent().unwrap_or(Path::new("")), &mut part);
        found = found.merge(part)?;
    }
    Ok(found)
}

/// Each document of a text.
fn parse(text: &str) -> Result<Vec<Kubeconfig>, SyntaxError> {
    let roots = tree::parse(text.strip_prefix('\u{feff}').unwrap_or(text))?;
    roots.iter().filter(|it| it.value != Value::Null).map(kubeconfig).collect()
}

fn kubeconfig(root: &Node) -> Result<Kubeconfig, SyntaxError> {
    typed(root).map_err(|error| {
        let FaultPlace { at, field } = place_of_fault(root);
        SyntaxError { at, message: format!("{field}{error}") }
    })
}

fn typed(it: &impl Serialize) -> Result<Kubeconfig, serde_json::Error> {
    serde_json::from_value(serde_json::to_value(it)?)
}

/// As precisely as the types tell: the field, or the item of a list.
struct FaultPlace {
    at: Position,
    field: String,
}

fn place_of_fault(root: &Node) -> FaultPlace {
    for entry in root.entries() {
        if let Value::List(items) = &entry.value.value
            && let Some((index, item)) =
                items.iter().enumerate().find(|(_, it)| typed(&BTreeMap::from([(&entry.key, [it])])).is_err())
        {
            return FaultPlace { at: item.at, field: format!("{}[{index}]: ", entry.key) };
        }
        if typed(&BTreeMap::from([(&entry.key, &entry.value)])).is_err() {
            return FaultPlace { at: entry.at, field: format!("{}: ", entry.key) };
        }
    }
    FaultPlace { at: root.at, field: String::new() }
}

/// It leads nowhere.
pub(super) fn is_empty(it: &Kubeconfig) -> bool {
    it.clusters.is_empty()
        && it.contexts.is_empty()
        && it.auth_infos.is_empty()
        && it.current_context.is_none()
}

/// A command without a `/` is looked for in `$PATH`, as client-go does.
fn name_from(folder: &Path, it: &mut Kubeconfig) {
    let absolute = |file: &mut Option<String>| {
        if let Some(file) = file.as_mut().filter(|file| Path::new(file).is_relative())
            && let Some(path) = folder.join(&*file).to_str()
        {
            *file = path.to_owned();
        }
    };
    for cluster in it.clusters.iter_mut().filter_map(|it| it.cluster.as_mut()) {
        absolute(&mut cluster.certificate_authority);
    }
    for user in it.auth_infos.iter_mut().filter_map(|it| it.auth_info.as_mut()) {
        absolute(&mut user.client_certificate);
        absolute(&mut user.client_key);
        absolute(&mut user.token_file);
        if let Some(exec) = &mut user.exec
            && exec.command.as_ref().is_some_and(|it| it.contains(MAIN_SEPARATOR))
        {
            absolute(&mut exec.command);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WHOLE: &str = "\
apiVersion: v1
kind: Config
current-context: one
clusters:
- name: main
  cluster: {server: 'https://192.0.2.1:6443', certificate-authority: pki/ca.crt, insecure-skip-tls-verify: false}
contexts:
- name: one
  context: {cluster: main, user: me, namespace: shop}
users:
- name: me
  user:
    client-certificate: /etc/me.crt
    client-key: me.key
- name: exec
  user:
    exec:
      apiVersion: client.authentication.k8s.io/v1
      command: bin/login
      args: [--for, me]
      env: [{name: A, value: b}]
      interactiveMode: Never
- name: by-path
  user: {exec: {command: aws, interactiveMode: Never}}
preferences: {}
";

    fn shown(it: &Kubeconfig) -> serde_json::Value {
        serde_json::to_value(it).expect("is JSON")
    }

    fn written(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("config");
        fs::write(&path, text).expect("written");
        (folder, path)
    }

    #[test]
    fn a_kubeconfig_is_read_as_the_client_library_reads_it() {
        let (folder, path) = written(WHOLE);
        let ours = read(&path).expect("is read");
        assert_eq!(shown(&ours), shown(&Kubeconfig::read_from(&path).expect("is read")));
        let user = |name: &str| {
            ours.auth_infos
                .iter()
                .find(|it| it.name == name)
                .and_then(|it| it.auth_info.clone())
                .expect("is there")
        };
        assert_eq!(user("me").client_key, Some(folder.path().join("me.key").display().to_string()));
        assert_eq!(user("me").client_certificate.as_deref(), Some("/etc/me.crt"));
        let command = |name| user(name).exec.and_then(|it| it.command);
        assert_eq!(command("exec"), Some(folder.path().join("bin/login").display().to_string()));
        assert_eq!(command("by-path").as_deref(), Some("aws"));
    }

    #[test]
    fn several_documents_are_merged_and_an_empty_file_has_nothing() {
        let (_folder, path) = written(&format!(
            "{WHOLE}---\ncurrent-context: two\nusers: [{{name: you, user: {{token: t}}}}]\n"
        ));
        let ours = read(&path).expect("is read");
        assert_eq!(shown(&ours), shown(&Kubeconfig::read_from(&path).expect("is read")));
        assert_eq!((ours.current_context.as_deref(), ours.auth_infos.len()), (Some("one"), 4));
        for empty in ["", "# nothing\n", "---\n"] {
            let (_folder, path) = written(empty);
            assert!(is_empty(&read(&path).expect("is read")), "{empty:?}");
        }
    }

    #[test]
    fn of_several_files_the_first_wins_and_missing_ones_are_left_out() {
        let missing = PathBuf::from("/does/not/exist");
        let [one, two] = ["one", "two"].map(|it| written(&format!("current-context: {it}\n")));
        let context = |paths: &[PathBuf]| merged(paths).map(|it| it.current_context.expect("has one"));
        assert_eq!(context(&[missing.clone(), two.1.clone(), one.1.clone()]).expect("is read"), "two");
        assert!(context(&[missing.clone(), missing.clone()]).expect_err("is missing").is_absence());
        let (_folder, broken) = written("a: [\n");
        assert!(!context(&[one.1.clone(), broken]).expect_err("is broken").is_absence());
    }

    #[test]
    fn a_mistake_is_named_with_its_place() {
        let said = |text: &str| parse(text).expect_err("is refused").to_string();
        assert_eq!(
            said("users:\n- name: me\n  user: {token: a}\n- name: you\n  user: {token: 12}\n"),
            "line 4, column 3: users[1]: invalid type: integer `12`, expected a string"
        );
        assert!(
            said("clusters: 5\n").starts_with("line 1, column 1: clusters: invalid type"),
            "{}",
            said("clusters: 5\n")
        );
        assert!(said("a: [\n").starts_with("line "), "{}", said("a: [\n"));
        let (_folder, path) = written("users:\n- name: [\n");
        let shown = read(&path).expect_err("is refused").to_string();
        assert!(shown.starts_with(&format!("{}:3:1: ", path.display())), "{shown}");
        let missing = read(Path::new("/does/not/exist")).expect_err("is missing");
        assert!(missing.is_absence());
        assert_eq!(missing.to_string(), "cannot read /does/not/exist");
    }
}
