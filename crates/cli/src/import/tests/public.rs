//! Configurations of public projects, which rig/samples fetches: what becomes of each, in numbers and in our own words.
//!
//! None of their texts are here. Those that an importer reads otherwise from then on show as a diff of the golden file.

use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    fmt::Write as _,
    fs,
    path::PathBuf,
};

use seaway_model::Reason;
use seaway_testkit::{golden, skip};

use super::{
    super::{report::Verdict, *},
    lines, problems,
};

const GOLDEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden/imports.txt");

/// What `seaway check` may name: what is not in the package, such as certificates and members, or is an address of this machine.
const ABSENT: [Reason; 5] =
    [Reason::Unreadable, Reason::NoSuchSecret, Reason::NoSuchService, Reason::NoEndpoints, Reason::Loop];

/// Lines that restrict HAProxy's page of statistics, which is not imported.
const OF_STATISTICS: [(&str, u32); 1] = [("crate/medium.cfg", 50)];

struct Sample {
    kind: String,
    name: String,
    file: PathBuf,
}

/// Those of the rig; `None` where it is not installed.
fn samples() -> Option<Vec<Sample>> {
    let Some(folder) = env::var_os("SEAWAY_SAMPLES").map(PathBuf::from) else {
        skip(
            None,
            "SEAWAY_SAMPLES names no folder with configurations of public projects; rig/samples/install fetches them",
        );
        return None;
    };
    let list = fs::read_to_string(folder.join("list")).expect("rig/samples/install has written it");
    let sample = |(kind, name): (&str, &str)| Sample {
        kind: kind.to_owned(),
        name: name.to_owned(),
        file: folder.join(name),
    };
    Some(list.lines().filter_map(|it| it.split_once(' ')).map(sample).collect())
}

fn read(sample: &Sample) -> Result<(Folder, Report)> {
    let read = match &*sample.kind {
        "nginx" => {
            // What this machine has there is not of the package; what the package has is beside the file.
            let text =
                fs::read_to_string(&sample.file).expect("it is in the list").replace("/etc/nginx/", "");
            let text = Text { name: sample.file.display().to_string().into(), text };
            nginx::read_text(&sample.file, &text, LARGEST)
        }
        "haproxy" => haproxy::read(&sample.file),
        "ingress" => ingress::read(&sample.file),
        kind => panic!("rig/samples/files: {kind} is no kind of configuration"),
    };
    read.map(written)
}

/// Objects where requests or connections come in.
fn entrances(folder: &Folder) -> Vec<&str> {
    let is_entrance = |it: &&str| {
        it.contains("kind: HTTPRoute")
            || it.contains("type: LoadBalancer")
            || it.contains("seaway.dev/host:")
            || it.contains("seaway.dev/path:")
    };
    folder.manifests.iter().flat_map(|(_, text)| text.split("---\n")).filter(is_entrance).collect()
}

/// Texts of the configuration and of what it includes, by the names that the report has for them.
fn texts(sample: &Sample, report: &Report) -> BTreeMap<String, String> {
    let files: BTreeSet<String> = report.accounted().into_iter().map(|it| it.0).collect();
    let own = sample.file.display().to_string();
    let read =
        |it: String| (it.clone(), String::from_utf8_lossy(&fs::read(it).expect("it was read")).into_owned());
    files.into_iter().chain([own]).map(read).collect()
}

#[test]
fn every_line_of_public_configurations_comes_to_something_and_what_is_written_passes_seaway_check() {
    let Some(samples) = samples() else { return };
    let mut golden = String::new();
    let mut wrong = Vec::new();
    let of_kind = |kind: &str| samples.iter().filter(|it| it.kind == kind).count();
    assert!(samples.len() >= 20 && ["nginx", "haproxy", "ingress"].iter().all(|it| of_kind(it) >= 3));
    for sample in &samples {
        let _ = write!(golden, "{} {}: ", sample.kind, sample.name);
        let (folder, report) = match read(sample) {
            Ok(read) => read,
            Err(error) => {
                let why = format!("{error:#}").replace(&format!("{}:", sample.file.display()), "");
                let _ = writeln!(golden, "refused: {why}");
                continue;
            }
        };
        let at = tempfile::tempdir().expect("a folder");
        let entrances = entrances(&folder);
        let restricted = |it: &&&str| it.contains("seaway.dev/source-ranges:");
        let closed = |it: &&&str| it.contains("255.255.255.255/32");
        let _ = writeln!(
            golden,
            "{}; {} entrances: {} restricted, {} of them closed",
            report.lines(true).last().expect("a summary"),
            entrances.len(),
            entrances.iter().filter(restricted).count(),
            entrances.iter().filter(closed).count(),
        );
        // Of a folder without manifests, the import says that there is nothing to check.
        if !folder.manifests.is_empty() {
            let found = problems(&folder, at.path()).into_iter().filter(|it| !ABSENT.contains(&it.reason));
            wrong.extend(found.map(|it| format!("{}: seaway check: {:?}: {it}", sample.name, it.reason)));
        }
        for (file, text) in texts(sample, &report) {
            for (line, _) in lines::directives(&sample.kind, &text) {
                if report.verdicts(&file, line).is_empty() {
                    wrong.push(format!("{}: {file}:{line} is passed over", sample.name));
                }
            }
            for (line, _) in lines::that_protect(&sample.kind, &text) {
                let verdicts = report.verdicts(&file, line);
                let is_written =
                    verdicts.iter().any(|it| matches!(it, Verdict::Translated | Verdict::Differs))
                        && entrances.iter().any(|it| restricted(&it));
                let is_elsewhere = OF_STATISTICS.contains(&(&*sample.name, line));
                if !(entrances.is_empty()
                    || is_elsewhere
                    || is_written
                    || verdicts.contains(&Verdict::Closed))
                {
                    wrong.push(format!(
                        "{}: {file}:{line} restricts access in the source alone: {verdicts:?}",
                        sample.name
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} things are wrong:\n{}", wrong.len(), wrong.join("\n"));
    golden::same(GOLDEN, &golden);
}
