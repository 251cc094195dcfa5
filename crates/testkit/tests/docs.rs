//! What the pages say is so: annotations are those of the table, and links lead somewhere.

use std::{
    collections::BTreeSet,
    env, fs,
    path::{Path, PathBuf},
};

use seaway_model::{Reason, reason::ALL};
use seaway_plan::annotations::{place_names, rows};

const BEGIN: &str = "<!-- annotations: written by a test; see CONTRIBUTING.md -->\n";
const END: &str = "<!-- end -->\n";

#[test]
fn the_page_of_annotations_is_that_of_the_table() {
    let path = root().join("docs/annotations.md");
    let page = fs::read_to_string(&path).expect("the page");
    let (head, rest) = page.split_once(BEGIN).expect("where the table begins");
    let (_, tail) = rest.split_once(END).expect("where the table ends");
    let should = format!("{head}{BEGIN}{}{END}{tail}", table());
    if page != should && env::var_os("SEAWAY_WRITE_DOCS").is_some() {
        fs::write(&path, &should).expect("written");
    }
    assert!(
        fs::read_to_string(&path).expect("the page") == should,
        "docs/annotations.md is out of date; type: SEAWAY_WRITE_DOCS=1 cargo test -p seaway-testkit --test docs"
    );
}

fn table() -> String {
    let mut text =
        String::from("| annotation | what it says | works at | also read as |\n|---|---|---|---|\n");
    for row in rows() {
        let others: Vec<String> = row.names[1..].iter().map(|name| format!("`{name}`")).collect();
        let (name, works_at) = (row.names[0], place_names(row.names[0]));
        text += &format!("| `{name}` | {} | {works_at} | {} |\n", row.help, others.join(", "));
    }
    text
}

#[test]
fn the_page_of_reasons_is_that_of_the_table() {
    let path = root().join("docs/reasons.md");
    let should = reasons();
    if env::var_os("SEAWAY_WRITE_DOCS").is_some() {
        fs::write(&path, &should).expect("written");
    }
    assert!(
        fs::read_to_string(&path).expect("the page") == should,
        "docs/reasons.md is out of date; type: SEAWAY_WRITE_DOCS=1 cargo test -p seaway-testkit --test docs"
    );
}

fn reasons() -> String {
    let mut text = String::from(
        "# Reasons\n\n<!-- Written by a test from crates/model/src/reason.rs; see CONTRIBUTING.md -->\n\nWhat events, conditions, \
         Problems and metrics give as a reason, what it means, and what to do. `seaway reasons NAME` says the same.\n",
    );
    for (what, seen, reasons) in ALL {
        text += &format!("\n## {what}\n\n{seen}\n\n| reason | meaning | what to do |\n|---|---|---|\n");
        for it in *reasons {
            let cell = |text: &str| text.replace('|', "\\|");
            text += &format!("| `{}` | {} | {} |\n", it.name, cell(it.meaning), cell(it.remedy));
        }
    }
    text
}

/// Where a reason is given by its name, it stands in the table; and what stands there is given somewhere.
#[test]
fn every_reason_that_is_given_is_explained() {
    let explained: BTreeSet<&str> =
        ALL.iter().flat_map(|(_, _, reasons)| *reasons).map(|it| it.name).collect();
    let source = sources();
    // Without the table itself.
    let written = |name: &&&str| {
        let quoted = format!("\"{name}\"");
        let in_table = format!("name: {quoted}");
        source.matches(&quoted).count() > source.matches(&in_table).count()
            || source.contains(&format!("Reason::{name}"))
    };
    let stale: Vec<&&str> = explained.iter().filter(|it| !written(it)).collect();
    assert!(stale.is_empty(), "crates/model/src/reason.rs explains what nothing gives: {stale:?}");
    let is_name = |it: &&str| it.starts_with(char::is_uppercase) && it.chars().all(char::is_alphanumeric);
    let gives = ["reason: ", "reason = ", "reason) = ", "tell(false, ", "tell(true, "];
    let given: BTreeSet<&str> = (source.lines())
        .filter(|line| gives.iter().any(|it| line.contains(it)) && !line.trim_start().starts_with("//"))
        .flat_map(|line| line.split('"').skip(1).step_by(2))
        .filter(is_name)
        .collect();
    assert!(given.len() > 8, "{given:?}");
    let silent: Vec<&&str> = given.iter().filter(|it| !explained.contains(**it)).collect();
    assert!(silent.is_empty(), "crates/model/src/reason.rs does not explain {silent:?}");
}

#[test]
fn every_page_is_in_the_index() {
    let index = fs::read_to_string(root().join("docs/README.md")).expect("the index");
    let pages =
        fs::read_dir(root().join("docs")).expect("the folder").map(|it| it.expect("a file").file_name());
    let pages: Vec<String> =
        pages.map(|it| it.to_string_lossy().into_owned()).filter(|it| it.ends_with(".md")).collect();
    let is_linked = |page: &str| [")", "#"].iter().any(|end| index.contains(&format!("({page}{end}")));
    let is_missing = |page: &&String| *page != "README.md" && !is_linked(page);
    let missing: Vec<&String> = pages.iter().filter(is_missing).collect();
    assert!(missing.is_empty() && pages.len() > 20, "docs/README.md does not lead to {missing:?}");
}

/// The table of words in ARCHITECTURE.md: each type is defined in the file that its row names.
#[test]
fn our_own_nouns_are_where_the_architecture_says() {
    let page = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("the page");
    let (_, words) = page.split_once("\n## Words\n").expect("it has words");
    let (table, _) = words.split_once("\nThe field's words").expect("our own nouns come first");
    let rows: Vec<&str> = table.lines().filter(|line| line.starts_with("| `")).collect();
    assert!(rows.len() > 15, "{rows:?}");
    for row in rows {
        let quoted: Vec<&str> = row.split('`').skip(1).step_by(2).collect();
        let (file, nouns) = quoted.split_last().expect("a row names a file");
        let source = fs::read_to_string(root().join("crates").join(file))
            .unwrap_or_else(|error| panic!("ARCHITECTURE.md, {nouns:?}: crates/{file}: {error}"));
        for noun in nouns {
            let defines = |kind: &str| {
                let is_end = |rest: &str| !rest.starts_with(|it: char| it.is_alphanumeric() || it == '_');
                source.split(&format!("{kind} {noun}")).skip(1).any(is_end)
            };
            assert!(
                ["enum", "struct", "trait"].iter().any(|kind| defines(kind)),
                "ARCHITECTURE.md says that {noun} is defined in crates/{file}, and it is not"
            );
        }
    }
}

#[test]
fn every_key_of_the_configuration_has_its_line() {
    let example =
        fs::read_to_string(root().join("crates/cli/src/settings/example.yaml")).expect("the example");
    let page = fs::read_to_string(root().join("docs/configuration.md")).expect("the page");
    // Keys at the left margin, commented or not; explanations begin with "# ".
    let keys = example.lines().filter_map(|line| line.strip_prefix('#').unwrap_or(line).split_once(':'));
    let keys: Vec<&str> = keys
        .map(|(key, _)| key)
        .filter(|key| !key.is_empty() && key.chars().all(char::is_alphanumeric))
        .collect();
    assert!(keys.len() > 8, "{keys:?}");
    for key in keys {
        let told =
            page.lines().any(|line| line.contains(&format!("`{key}`")) || line.contains(&format!("`{key}.")));
        assert!(told, "docs/configuration.md says nothing of {key}");
    }
}

#[test]
fn every_defect_of_the_other_controller_has_its_test() {
    let page = fs::read_to_string(root().join("docs/occm-defects.md")).expect("the page");
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| it |"));
    let rows: Vec<&str> = rows.filter(|line| !line.starts_with("| issue ")).collect();
    assert!(rows.len() > 45, "{}", rows.len());
    let mut faults = Vec::new();
    for row in rows {
        let last = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        let named: Vec<&str> = last.split('`').skip(1).step_by(2).collect();
        if named.is_empty() && last != "above" {
            faults.push(format!("no test: {row}"));
        }
        faults.extend(named.iter().filter(|it| !is_test(it)).map(|it| format!("no such test: {it}")));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// `file.rs::name`: whether there is such a test.
fn is_test(named: &str) -> bool {
    let Some((file, name)) = named.split_once("::") else { return false };
    let file =
        if file.contains('/') { file.to_owned() } else { format!("crates/drivers/tests/octavia/{file}") };
    let text = fs::read_to_string(root().join(file)).unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let begins = [format!("fn {name}("), format!("async fn {name}(")];
    let at = lines.iter().position(|line| begins.iter().any(|it| line.starts_with(it)));
    at.is_some_and(|at| at > 0 && lines[at - 1].starts_with("#[") && lines[at - 1].ends_with("test]"))
}

/// Pages that name the tests of what they promise, some of them by the file.
#[test]
fn every_source_file_that_a_page_of_protection_names_is_there() {
    let files = rust_files(&root().join("crates"));
    let pages = ["docs/tenants.md", "docs/security.md"];
    let text = pages.map(|it| fs::read_to_string(root().join(it)).expect("the page")).concat();
    let named = text.split('`').filter(|it| it.ends_with(".rs") && !it.contains(' '));
    let named: BTreeSet<&str> = named.collect();
    assert!(named.len() > 15, "{named:?}");
    let missing: Vec<_> = named.iter().filter(|name| !files.iter().any(|it| it.ends_with(name))).collect();
    assert!(missing.is_empty(), "{pages:?} name files that are not there: {missing:?}");
}

#[test]
fn every_event_and_metric_that_is_given_for_one_of_the_other_controller_is_written() {
    let page = fs::read_to_string(root().join("docs/occm-events.md")).expect("the page");
    let rows = page.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| cloud controller"));
    let named: BTreeSet<&str> = rows
        .filter_map(|row| row.split('|').nth(2))
        .flat_map(|ours| ours.split('`').skip(1).step_by(2))
        .collect();
    assert!(named.len() > 30, "{named:?}");
    let source = sources();
    // Prometheus has the unit and what is counted behind the name.
    let written = |name: &str| {
        let bare = name.trim_end_matches("_total").trim_end_matches("_seconds");
        let is_reason = Reason::HELP.iter().any(|it| it.name == name);
        is_reason || [name, bare].iter().any(|it| source.contains(&format!("\"{it}\"")))
    };
    let wrong: Vec<&&str> = named.iter().filter(|it| !written(it)).collect();
    assert!(wrong.is_empty(), "docs/occm-events.md names what nothing writes: {wrong:?}");
}

/// All that is built into programs.
fn sources() -> String {
    let packages =
        fs::read_dir(root().join("crates")).expect("crates").map(|it| it.expect("readable").path());
    let built = packages.filter(|it| !it.ends_with("testkit")).flat_map(|it| rust_files(&it.join("src")));
    built.map(|it| fs::read_to_string(it).expect("readable")).collect()
}

/// Sources in a folder and below.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let (mut files, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten() {
            let path = entry.expect("readable").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                files.push(path);
            }
        }
    }
    files
}

/// A rule of RBAC: role, API group, resources, names of objects, verbs.
type Rule = (String, String, BTreeSet<String>, BTreeSet<String>, BTreeSet<String>);

#[test]
fn the_page_of_rights_has_each_rule_of_the_roles_and_why() {
    let page = fs::read_to_string(root().join("docs/security.md")).expect("the page");
    let rows = page.lines().filter(|line| line.starts_with("| `seaway-"));
    let written: BTreeSet<Rule> = rows
        .map(|row| {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let [role, group, resources, names, verbs, why] = cells[..] else {
                panic!("six cells: {row}");
            };
            assert!(!why.is_empty(), "it does not say why: {row}");
            let group = group.trim_matches('`').replace("core", "");
            (role.trim_matches('`').to_owned(), group, quoted(resources), quoted(names), quoted(verbs))
        })
        .collect();
    let given = rules();
    assert!(given.len() > 20, "{given:?}");
    let missing: Vec<&Rule> = given.difference(&written).collect();
    let gone: Vec<&Rule> = written.difference(&given).collect();
    assert!(
        missing.is_empty() && gone.is_empty(),
        "docs/security.md lacks {missing:#?}, and has what no role has: {gone:#?}"
    );
}

#[test]
fn the_page_of_rights_has_each_capability_that_the_manifests_give() {
    let page = fs::read_to_string(root().join("docs/security.md")).expect("the page");
    let mut given = BTreeSet::new();
    for (path, text) in deployed() {
        for line in text.lines().filter(|it| !it.trim_start().starts_with('#')) {
            let units = line.split(|it: char| !it.is_ascii_uppercase() && it != '_');
            given.extend(units.filter_map(|it| it.strip_prefix("CAP_")).map(str::to_owned));
            if line.contains("capabilities:") {
                given.extend(flow(line, "add").unwrap_or_default());
            }
            for word in ["privileged: true", "hostNetwork: true"].iter().filter(|it| line.contains(**it)) {
                given.extend(word.split(':').next().map(str::to_owned));
            }
        }
        assert!(!text.contains("SYS_ADMIN"), "{}", path.display());
    }
    assert!(given.contains("NET_ADMIN") && given.contains("hostNetwork"), "{given:?}");
    let rows: Vec<&str> = page.lines().filter(|it| it.starts_with("| `")).collect();
    let missing: Vec<&String> =
        given.iter().filter(|it| !rows.iter().any(|row| row.starts_with(&format!("| `{it}` |")))).collect();
    assert!(missing.is_empty(), "docs/security.md does not say what these are for: {missing:?}");
}

/// Of all roles of the manifests.
fn rules() -> BTreeSet<Rule> {
    let mut all = BTreeSet::new();
    for (path, text) in deployed() {
        let documents = text.split("\n---\n");
        let is_role =
            |it: &&str| it.lines().any(|it| matches!(it.trim_end(), "kind: ClusterRole" | "kind: Role"));
        for document in documents.filter(is_role) {
            let name = document.lines().find_map(|it| it.trim().strip_prefix("name: ")).expect("a name");
            let lines = document.lines().skip_while(|it| *it != "rules:").skip(1);
            for line in lines.filter(|it| !it.trim_start().starts_with('#') && !it.trim().is_empty()) {
                let of = |key| flow(line, key).unwrap_or_default();
                if line.starts_with("  - {nonResourceURLs:") {
                    let (urls, verbs) = (of("nonResourceURLs"), of("verbs"));
                    all.insert((name.to_owned(), "no object".to_owned(), urls, BTreeSet::new(), verbs));
                    continue;
                }
                assert!(line.starts_with("  - {apiGroups:"), "one rule a line: {}: {line}", path.display());
                for group in of("apiGroups") {
                    let names = of("resourceNames");
                    all.insert((name.to_owned(), group, of("resources"), names, of("verbs")));
                }
            }
        }
    }
    all
}

/// What a line of YAML has under a key: `verbs: [list, watch]`.
fn flow(line: &str, key: &str) -> Option<BTreeSet<String>> {
    let (_, rest) = line.split_once(&format!("{key}: ["))?;
    let (list, _) = rest.split_once(']')?;
    Some(list.split(',').map(|it| it.trim().trim_matches('\'').to_owned()).collect())
}

/// Words in backticks.
fn quoted(cell: &str) -> BTreeSet<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn deployed() -> Vec<(PathBuf, String)> {
    let mut files = Vec::new();
    let mut folders = vec![root().join("deploy")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("manifests") {
            let entry = entry.expect("readable");
            match entry.file_type().expect("readable") {
                it if it.is_dir() => folders.push(entry.path()),
                // The same file, elsewhere.
                it if it.is_symlink() => {}
                _ => files.push((entry.path(), fs::read_to_string(entry.path()).expect("readable"))),
            }
        }
    }
    files
}

#[test]
fn every_link_of_a_page_leads_to_a_file_or_a_heading() {
    let mut faults = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).expect("a page");
        for (at, target) in links(&text) {
            let (file, heading) = target.split_once('#').unwrap_or((&target, ""));
            if file.contains("://") || file.starts_with("mailto:") {
                continue;
            }
            let to = if file.is_empty() { page.clone() } else { page.parent().expect("a folder").join(file) };
            let found = to.exists() && (heading.is_empty() || headings(&to).iter().any(|it| it == heading));
            if !found {
                faults
                    .push(format!("{}:{at}: {target}", page.strip_prefix(root()).unwrap_or(&page).display()));
            }
        }
    }
    assert!(faults.is_empty(), "links that lead nowhere:\n  {}", faults.join("\n  "));
}

/// Words of a sentence or of a cell of a table, beyond which a reader loses the thread.
const LONG: usize = 40;

/// It never fails: `--nocapture` shows how many there are on each page, and the longest.
#[test]
#[allow(clippy::print_stderr, reason = "it is a report for people")]
fn long_sentences_and_cells_are_reported() {
    let mut longest = Vec::new();
    for page in pages().iter().filter(|it| it.parent() != Some(&root().join("results"))) {
        let text = fs::read_to_string(page).expect("a page");
        let long: Vec<_> = sentences(&text).into_iter().filter(|(_, words, _)| *words > LONG).collect();
        let name = page.strip_prefix(root()).unwrap_or(page).display().to_string();
        if !long.is_empty() {
            eprintln!("{name}: {} of more than {LONG} words", long.len());
        }
        longest.extend(
            long.into_iter().map(|(line, words, begins)| (words, format!("{name}:{line}: {begins} …"))),
        );
    }
    longest.sort_by(|a, b| b.cmp(a));
    longest.iter().take(20).for_each(|(words, what)| eprintln!("{words:4} words: {what}"));
}

/// Sentences of prose and cells of tables, each with its line, its words, and how it begins.
fn sentences(text: &str) -> Vec<(usize, usize, String)> {
    let mut found = Vec::new();
    let mut paragraph = (0, String::new());
    let mut code = false;
    let measured = |line: usize, text: &str| {
        let words: Vec<_> = text.split_whitespace().collect();
        let sentences = words.split_inclusive(|it| it.ends_with(['.', '?', '!', ':']));
        sentences.map(|it| (line, it.len(), it.join(" ").chars().take(50).collect())).collect::<Vec<_>>()
    };
    for (line, at) in text.lines().chain([""]).zip(1..) {
        code ^= line.starts_with("```");
        let is_prose = !code && !line.starts_with(['`', '#', '|', '<']) && !line.starts_with("    ");
        if is_prose && !line.trim().is_empty() && !line.starts_with("- ") {
            if paragraph.1.is_empty() {
                paragraph.0 = at;
            }
            paragraph.1 += line.trim();
            paragraph.1.push(' ');
            continue;
        }
        found.extend(measured(paragraph.0, &std::mem::take(&mut paragraph.1)));
        if line.starts_with("- ") {
            paragraph = (at, format!("{} ", line.trim_start_matches("- ")));
        } else if line.starts_with('|') {
            line.split('|').for_each(|cell| found.extend(measured(at, cell.trim())));
        }
    }
    found
}

#[test]
fn sentences_are_counted_in_prose_lists_and_tables() {
    let text = "# A title\n\nOne two. Three\nfour five.\n- six\n  seven\n- eight\n\n| a | b c. d |\n\n    code here\n";
    let words: Vec<_> = sentences(text).into_iter().map(|it| it.1).filter(|it| *it > 0).collect();
    assert_eq!(words, [2, 3, 2, 1, 1, 2, 1]);
}

/// All Markdown of the checkout that people wrote.
fn pages() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    for folder in ["", "docs", "examples", "fuzz", "bench", "gate", "results", "rig", "deploy"] {
        let Ok(entries) = fs::read_dir(root().join(folder)) else { continue };
        let paths = entries.map(|it| it.expect("readable").path());
        pages.extend(paths.filter(|path| path.extension().is_some_and(|it| it == "md")));
    }
    assert!(pages.len() > 5, "{pages:?}");
    pages
}

/// `[text](target)` outside of code, each with its line.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    let mut code = false;
    for (line, at) in text.lines().zip(1..) {
        if line.trim_start().starts_with("```") {
            code = !code;
        }
        let prose: String = line.split('`').step_by(2).collect();
        if !code {
            found.extend(
                prose.split("](").skip(1).filter_map(|it| Some((at, it.split_once(')')?.0.to_owned()))),
            );
        }
    }
    found
}

/// As GitHub makes anchors of them.
fn headings(page: &Path) -> Vec<String> {
    let text = fs::read_to_string(page).unwrap_or_default();
    let heading = |line: &str| {
        let kept = line.trim_start_matches('#').trim().to_lowercase();
        kept.chars()
            .filter(|it| it.is_alphanumeric() || " -_".contains(*it))
            .collect::<String>()
            .replace(' ', "-")
    };
    text.lines().filter(|line| line.starts_with('#')).map(heading).collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the checkout")
}
