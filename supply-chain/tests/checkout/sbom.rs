//! The bill of materials of this checkout.

use std::{
    collections::BTreeSet,
    path::Path,
    process::{Command, Output},
    sync::LazyLock,
};

use serde_json::Value;

/// For this machine: cargo is asked once.
static BILL: LazyLock<String> = LazyLock::new(|| text(sbom(&[], None)));

fn sbom(arguments: &[&str], epoch: Option<&str>) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sbom"));
    command.args(arguments).current_dir(env!("CARGO_MANIFEST_DIR")).env_remove("SOURCE_DATE_EPOCH");
    if let Some(seconds) = epoch {
        command.env("SOURCE_DATE_EPOCH", seconds);
    }
    command.output().expect("runs")
}

fn text(output: Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn words<'a>(list: &'a Value, key: &str) -> Vec<&'a str> {
    list.as_array().expect("a list").iter().filter_map(|it| it[key].as_str()).collect()
}

/// As cargo lists them, without who uses whom.
fn built(target: &str) -> BTreeSet<String> {
    let told = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "-p", "seaway-cli", "-e", "normal,no-proc-macro"])
        .args(["--prefix", "none", "-f", "{p}", "--target", target])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .output()
        .expect("cargo tree");
    assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let text = String::from_utf8_lossy(&told.stdout);
    text.lines().map(|it| it.split_whitespace().take(2).collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn every_package_of_the_program_is_in_the_bill_once() {
    for target in ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"] {
        let bill = text(sbom(&["--target", target], None));
        let bill: Value = serde_json::from_str(&bill).expect("JSON");
        let parts = bill["components"].as_array().expect("a list");
        let mut listed: Vec<String> = parts
            .iter()
            .map(|it| {
                format!("{} v{}", it["name"].as_str().expect("a name"), it["version"].as_str().expect("one"))
            })
            .collect();
        assert_eq!(bill["metadata"]["component"]["name"], "seaway");
        listed
            .push(format!("seaway-cli v{}", bill["metadata"]["component"]["version"].as_str().expect("one")));
        let count = listed.len();
        let listed: BTreeSet<String> = listed.into_iter().collect();
        assert_eq!(listed.len(), count, "{target}: a package is listed twice");
        assert_eq!(listed, built(target), "{target}");
        assert!(count > 100, "{count}");
    }
}

#[test]
fn each_part_has_a_purl_a_licence_and_a_hash_and_each_reference_leads_somewhere() {
    let bill: Value = serde_json::from_str(&BILL).expect("JSON");
    assert_eq!((&bill["bomFormat"], &bill["specVersion"]), (&"CycloneDX".into(), &"1.6".into()));
    for it in bill["components"].as_array().expect("a list") {
        assert!(it["licenses"][0]["expression"].is_string(), "{it}");
        let purl = it["purl"].as_str().expect("a purl");
        let hash = it["hashes"][0]["content"].as_str().map(str::len);
        if purl.starts_with("pkg:generic/seaway-") {
            assert_eq!(hash, None, "{it}");
        } else {
            assert!(purl.starts_with("pkg:cargo/") && hash == Some(64), "{it}");
        }
    }
    let mut known: BTreeSet<&str> = words(&bill["components"], "bom-ref").into_iter().collect();
    known.insert(bill["metadata"]["component"]["bom-ref"].as_str().expect("one"));
    let edges = bill["dependencies"].as_array().expect("a list");
    assert_eq!(words(&bill["dependencies"], "ref").into_iter().collect::<BTreeSet<_>>(), known);
    let used = edges.iter().flat_map(|it| it["dependsOn"].as_array().expect("a list"));
    assert!(used.filter_map(Value::as_str).all(|it| known.contains(it)));
}

#[test]
fn what_only_compiles_the_program_or_tests_it_is_not_in_the_bill() {
    let bill: Value = serde_json::from_str(&BILL).expect("JSON");
    let names = words(&bill["components"], "name");
    for inside in ["rustls", "aws-lc-sys", "seaway-proxy"] {
        assert!(names.contains(&inside), "{inside}");
    }
    for outside in ["cc", "syn", "proptest", "seaway-testkit", "ring", "serde_derive"] {
        assert!(!names.contains(&outside), "{outside}");
    }
}

#[test]
fn the_same_checkout_gives_the_same_text_and_a_time_only_where_one_is_set() {
    let once = &*BILL;
    assert_eq!(*once, text(sbom(&[], None)));
    assert!(!once.contains("timestamp"));
    let timed = text(sbom(&[], Some("1700000000")));
    let (once, timed): (Value, Value) =
        (serde_json::from_str(once).expect("JSON"), serde_json::from_str(&timed).expect("JSON"));
    assert_eq!(timed["metadata"]["timestamp"], "2023-11-14T22:13:20Z");
    assert_eq!(once["serialNumber"], timed["serialNumber"]);
    let other: Value =
        serde_json::from_str(&text(sbom(&["--target", "riscv64gc-unknown-linux-gnu"], None))).expect("JSON");
    assert_ne!(once["serialNumber"], other["serialNumber"]);
}

#[test]
fn the_bill_is_written_to_a_file_and_mistakes_are_said() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("sbom.json");
    assert_eq!(text(sbom(&["--output", file.to_str().expect("UTF-8")], None)), "");
    assert_eq!(std::fs::read_to_string(file).expect("written"), *BILL);
    for (arguments, epoch, says) in [
        (&["--colour"][..], None, "there is no argument \"--colour\""),
        (&["--target"], None, "--target needs a value"),
        (&["--target", "amiga"], None, "cargo tree failed"),
        (&[], Some("noon"), "SOURCE_DATE_EPOCH is no number"),
    ] {
        let output = sbom(arguments, epoch);
        let told = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && told.contains(says), "{arguments:?}: {told}");
    }
}
