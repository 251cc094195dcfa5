//! The bill of materials of the program `seaway`: each package that is compiled into it, as CycloneDX 1.6.
//!
//! `cargo tree` knows what is built and who uses whom, `cargo metadata` the licences, Cargo.lock the hashes. The same
//! checkout gives the same text.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, io,
    path::Path,
    process::Command,
};

use cargo_metadata::MetadataCommand;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::lock::{Lock, LockError};

/// The package whose program is described.
const PROGRAM: &str = "seaway-cli";

#[derive(Debug, thiserror::Error)]
pub enum BomError {
    #[error("cannot run cargo tree")]
    Run(#[source] io::Error),
    #[error("cargo tree failed: {0}")]
    Tree(String),
    #[error("this line of cargo tree is not understood: {0:?}")]
    Line(String),
    #[error("cargo metadata failed")]
    Metadata(#[from] cargo_metadata::Error),
    #[error("Cargo.lock")]
    Lock(#[from] LockError),
    #[error("{0} is built, and cargo metadata does not know it")]
    Unknown(String),
}

/// Name and version; ordered by name.
type Id = (String, String);

/// Who uses whom. The first that cargo tells is the program.
#[derive(Debug, PartialEq, Eq)]
struct Tree {
    program: Id,
    uses: BTreeMap<Id, BTreeSet<Id>>,
}

/// The bill for a target as `x86_64-unknown-linux-gnu`. `time` is RFC 3339, and usually left out.
pub fn describe(checkout: &Path, target: &str, time: Option<&str>) -> Result<Value, BomError> {
    let tree = tree(checkout, target)?;
    let lock = Lock::read(&checkout.join("Cargo.lock"))?;
    let mut command = MetadataCommand::new();
    command.manifest_path(checkout.join("Cargo.toml"));
    command.other_options(vec!["--locked".to_owned(), format!("--filter-platform={target}")]);
    let mut licences: BTreeMap<Id, Option<String>> = BTreeMap::new();
    for it in command.exec()?.packages {
        licences.insert((it.name.to_string(), it.version.to_string()), it.license);
    }
    let component = |id: &Id, kind: &str, shown: &str| {
        let licence = licences.get(id).ok_or_else(|| BomError::Unknown(format!("{} {}", id.0, id.1)))?;
        let mut component = json!({
            "type": kind, "bom-ref": reference(id, &lock), "name": shown, "version": id.1,
            "purl": reference(id, &lock),
        });
        if let Some(licence) = licence {
            // Packages of old write MIT/Apache-2.0.
            component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
        }
        if let Some(hash) = locked(id, &lock) {
            component["hashes"] = json!([{ "alg": "SHA-256", "content": hash }]);
        }
        Ok::<Value, BomError>(component)
    };
    let program = component(&tree.program, "application", "seaway")?;
    let parts = tree.uses.keys().filter(|it| **it != tree.program);
    let parts = parts.map(|it| component(it, "library", &it.0)).collect::<Result<Vec<Value>, BomError>>()?;
    let edges = tree.uses.iter().map(|(id, used)| {
        let used: Vec<String> = used.iter().map(|it| reference(it, &lock)).collect();
        json!({ "ref": reference(id, &lock), "dependsOn": used })
    });
    let edges: Vec<Value> = edges.collect();
    let mut bill = json!({
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {
            "component": program,
            "properties": [{ "name": "seaway:target", "value": target }],
        },
        "components": parts, "dependencies": edges,
    });
    bill["serialNumber"] = json!(serial_number(&bill.to_string()));
    if let Some(time) = time {
        bill["metadata"]["timestamp"] = json!(time);
    }
    Ok(bill)
}

/// A package URL. A crate of ours is in no registry.
fn reference((name, version): &Id, lock: &Lock) -> String {
    let outside = lock.packages.iter().any(|it| it.name == *name && it.source.is_some());
    // Of the characters of a version, "+" alone has a meaning in URLs.
    let version = version.replace('+', "%2B");
    format!("pkg:{}/{name}@{version}", if outside { "cargo" } else { "generic" })
}

fn locked<'a>((name, version): &Id, lock: &'a Lock) -> Option<&'a str> {
    let found = lock.packages.iter().find(|it| it.name == *name && it.version.to_string() == *version);
    found?.checksum.as_deref()
}

/// The same for the same content: a hash in the form of a UUID (version 8, RFC 9562).
fn serial_number(content: &str) -> String {
    let hash = Sha256::digest(content);
    let mut bytes: Vec<u8> = hash[..16].to_vec();
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let digits: String = bytes.iter().map(|it| format!("{it:02x}")).collect();
    let (a, b, c, d, e) = (&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]);
    format!("urn:uuid:{a}-{b}-{c}-{d}-{e}")
}

fn tree(checkout: &Path, target: &str) -> Result<Tree, BomError> {
    let cargo = env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // What only compiles the others (build scripts, procedural macros) is not in the program.
    let told = Command::new(cargo)
        .args(["tree", "--locked", "--package", PROGRAM, "--edges=normal,no-proc-macro"])
        .args(["--prefix=depth", "--format= {p}", "--target", target])
        .current_dir(checkout)
        .output()
        .map_err(BomError::Run)?;
    if !told.status.success() {
        return Err(BomError::Tree(String::from_utf8_lossy(&told.stderr).trim().to_owned()));
    }
    read_tree(&String::from_utf8_lossy(&told.stdout))
}

/// `2 serde v1.0.2 (*)`: depth, package, and a mark where what it uses was told before.
fn read_tree(text: &str) -> Result<Tree, BomError> {
    let mut above: Vec<Id> = Vec::new();
    let mut uses: BTreeMap<Id, BTreeSet<Id>> = BTreeMap::new();
    for line in text.lines().filter(|it| !it.is_empty()) {
        let mut words = line.split_whitespace();
        let depth = words.next().and_then(|it| it.parse::<usize>().ok());
        let id = words.next().zip(words.next().and_then(|it| it.strip_prefix('v')));
        let (Some(depth), Some((name, version))) = (depth, id) else {
            return Err(BomError::Line(line.to_owned()));
        };
        if depth > above.len() || (depth == 0 && !above.is_empty()) {
            return Err(BomError::Line(line.to_owned()));
        }
        let id = (name.to_owned(), version.to_owned());
        above.truncate(depth);
        if let Some(user) = above.last() {
            uses.entry(user.clone()).or_default().insert(id.clone());
        }
        uses.entry(id.clone()).or_default();
        above.push(id);
    }
    let program = above.into_iter().next().ok_or_else(|| BomError::Line(String::new()))?;
    Ok(Tree { program, uses })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(name: &str) -> Id {
        (name.to_owned(), "1.0.0".to_owned())
    }

    #[test]
    fn who_uses_whom_is_read_from_the_tree() {
        let tree = read_tree(
            "0 seaway-cli v1.0.0 (/checkout)\n1 a v1.0.0\n2 b v1.0.0\n3 c v1.0.0\n2 c v1.0.0\n1 b v1.0.0 (*)\n1 c v1.0.0\n",
        )
        .expect("a tree");
        assert_eq!(tree.program, id("seaway-cli"));
        let used = |name: &str| tree.uses[&id(name)].iter().map(|it| &*it.0).collect::<Vec<_>>();
        assert_eq!(tree.uses.len(), 4);
        assert_eq!(used("seaway-cli"), ["a", "b", "c"]);
        assert_eq!((used("a"), used("b"), used("c")), (vec!["b", "c"], vec!["c"], vec![]));
    }

    #[test]
    fn a_line_that_is_not_understood_is_an_error() {
        for text in
            ["", "seaway-cli v1.0.0", "0 seaway-cli", "0 a 1.0.0", "1 a v1.0.0", "0 a v1.0.0\n0 b v1.0.0"]
        {
            assert!(read_tree(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn a_serial_number_depends_on_the_content_alone() {
        let one = serial_number("one");
        assert_eq!(one, serial_number("one"));
        assert_ne!(one, serial_number("two"));
        let digits = one.strip_prefix("urn:uuid:").expect("a UUID");
        assert_eq!(digits.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert_eq!(&digits[14..15], "8");
    }

    #[test]
    fn crates_of_ours_are_in_no_registry() {
        let lock = Lock::parse(
            "[[package]]\nname = \"wasi\"\nversion = \"0.11.1+wasi\"\nsource = \"registry\"\n[[package]]\nname = \
             \"seaway-model\"\nversion = \"0.1.0\"\n",
        )
        .expect("a lock file");
        let told = |name: &str, version: &str| reference(&(name.to_owned(), version.to_owned()), &lock);
        assert_eq!(told("wasi", "0.11.1+wasi"), "pkg:cargo/wasi@0.11.1%2Bwasi");
        assert_eq!(told("seaway-model", "0.1.0"), "pkg:generic/seaway-model@0.1.0");
    }
}
