//! What the pages tell their readers to type and to write is understood.

use std::{fs, os::unix::fs::PermissionsExt, path::PathBuf};

use crate::harness::{Folder, run, stderr, stdout};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Each with its name, from the root.
fn pages() -> Vec<(String, String)> {
    let docs = fs::read_dir(root().join("docs")).expect("the pages");
    let mut names: Vec<String> = docs
        .map(|it| format!("docs/{}", it.expect("a page").file_name().to_string_lossy()))
        .filter(|it| it.ends_with(".md"))
        .chain(["README.md", "CONTRIBUTING.md", "SECURITY.md"].map(str::to_owned))
        .collect();
    names.sort();
    let text = |name: &String| fs::read_to_string(root().join(name)).expect("a page");
    names.iter().map(|name| (name.clone(), text(name))).collect()
}

/// Blocks of YAML, each with its line.
fn blocks(page: &str) -> Vec<(usize, String)> {
    let mut blocks: Vec<(usize, String)> = Vec::new();
    let mut within = false;
    for (number, line) in page.lines().enumerate() {
        match line {
            "```yaml" => {
                within = true;
                blocks.push((number + 2, String::new()));
            }
            "```" => within = false,
            _ if within => blocks.last_mut().expect("it began").1.push_str(&format!("{line}\n")),
            _ => {}
        }
    }
    blocks
}

/// Services that a page speaks of and does not write out.
const SPOKEN_OF: [(&str, &[&str]); 1] = [("docs/manifests.md", &["api", "api-next"])];

#[test]
fn manifests_and_configurations_of_the_pages_are_understood() {
    let mut checked = 0;
    for (name, text) in pages() {
        let folder = Folder::new();
        let (mut manifests, mut serves, mut dns) = (0, false, None);
        for (line, block) in blocks(&text) {
            checked += 1;
            if block.lines().any(|it| it.starts_with("apiVersion: ")) {
                folder.write(&format!("line-{line}.yaml"), &block);
                manifests += 1;
                serves |= block.lines().any(|it| it == "kind: Service");
                continue;
            }
            let file = folder.0.path().join(format!("line-{line}.yaml"));
            // Keys that pages speak of are there, and of their owner alone.
            let mut block = block;
            for (name, text) in [("tsig.key", "c2VjcmV0LW9mLWEtcGFnZQ==\n"), ("layer2.key", &"0f".repeat(32))]
            {
                let key = folder.0.path().join(name);
                fs::write(&key, text).expect("written");
                fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("is ours");
                block = block.replace(&format!("/etc/seaway/{name}"), &key.display().to_string());
            }
            // Addresses of the reader's machine: the check names those that no interface has.
            block = block.replace("addresses: [10.0.0.5]", "addresses: [127.0.0.1]");
            if block.contains("internal.pem") {
                let pair = rcgen::generate_simple_self_signed(["internal.example".to_owned()])
                    .expect("a certificate");
                let pem = pair.cert.pem() + &pair.signing_key.serialize_pem();
                fs::write(folder.0.path().join("internal.pem"), pem).expect("written");
            }
            fs::write(&file, &block).expect("written");
            // Names of Services are published where zones are configured.
            dns = block.starts_with("dns:").then(|| file.clone()).or(dns);
            let output = run(&["config", "--check", file.to_str().expect("a path")]);
            assert!(output.status.success(), "{name}:{line}: {}{}", stdout(&output), stderr(&output));
        }
        for spoken_of in SPOKEN_OF.iter().filter(|(page, _)| *page == name).flat_map(|(_, names)| *names) {
            let service = format!(
                "apiVersion: v1\nkind: Service\nmetadata: {{name: {spoken_of}, annotations: {{seaway.dev/backends: \
                 '10.255.0.1:80'}}}}\nspec: {{ports: [{{port: 80}}]}}\n"
            );
            folder.write(&format!("{spoken_of}.yaml"), &service);
        }
        if manifests > 0 {
            // A folder that serves nothing is a Problem; a page may be about pools alone.
            if !serves {
                let served = "apiVersion: v1\nkind: Service\nmetadata: {name: served, annotations: {seaway.dev/backends: \
                              '10.255.0.1:80'}}\nspec: {type: LoadBalancer, ports: [{port: 80}]}\n";
                folder.write("served.yaml", served);
            }
            let (shown, config) = (folder.manifests(), dns.unwrap_or_default());
            let path = |it: &std::path::Path| it.to_str().expect("a path").to_owned();
            let mut arguments = vec!["check".to_owned(), path(&shown)];
            if config.is_absolute() {
                arguments.extend(["--config".to_owned(), path(&config)]);
            }
            let output = run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
            assert!(output.status.success(), "{name}: {}{}", stdout(&output), stderr(&output));
        }
    }
    assert!(checked >= 7, "{checked} blocks: are they found?");
}

/// What is to be typed, in blocks of commands and within lines, each with its line: without what comes after it.
fn commands(page: &str) -> Vec<(usize, String)> {
    let mut commands = Vec::new();
    for (number, line) in page.lines().enumerate() {
        match line.strip_prefix("    ") {
            Some(typed) => {
                let typed = typed.trim().trim_start_matches("$ ");
                commands.push((number + 1, typed.split("  ").next().unwrap_or(typed).to_owned()));
            }
            None => {
                let spans = line.split('`').skip(1).step_by(2);
                commands.extend(spans.map(|it| (number + 1, it.to_owned())));
            }
        }
    }
    commands
}

/// The arguments for `seaway` in a command, or none.
fn arguments(command: &str) -> Option<Vec<String>> {
    let end = ["…", " > ", " | ", " && ", "; ", " # "].iter().filter_map(|it| command.find(it)).min();
    let command = &command[..end.unwrap_or(command.len())];
    let words = command.split_whitespace().skip_while(|it| *it == "sudo" || it.contains('='));
    let mut words = words.map(|it| it.trim_matches(['[', ']']).to_owned()).peekable();
    match words.next()?.as_str() {
        "seaway" => words.peek().is_some().then(|| words.collect()),
        "kubectl" if words.peek().is_some_and(|it| it == "seaway") => {
            words.next();
            Some(["kubectl".to_owned()].into_iter().chain(words).collect())
        }
        "cargo" => {
            let ours: Vec<_> = words.skip_while(|it| it != "--").skip(1).collect();
            (command.contains(" -p seaway-cli ") && !ours.is_empty()).then_some(ours)
        }
        _ => None,
    }
}

/// With `--help` behind them, commands, their subcommands and options are looked up, and nothing is done.
#[test]
fn commands_of_the_pages_exist_with_all_their_options() {
    let mut typed = 0;
    for (name, text) in pages() {
        for (line, command) in commands(&text) {
            // It has arguments of another program's, and no help.
            let Some(arguments) = arguments(&command).filter(|it| it[0] != "import") else { continue };
            typed += 1;
            let mut all: Vec<&str> = arguments.iter().map(String::as_str).collect();
            all.push("--help");
            let output = run(&all);
            assert!(output.status.success(), "{name}:{line}: {command}: {}", stderr(&output));
        }
    }
    assert!(typed >= 100, "{typed} commands: are they found?");
}

#[test]
fn files_of_this_repository_that_the_pages_apply_are_there() {
    let mut applied = 0;
    for (name, text) in pages() {
        for (line, command) in commands(&text) {
            for word in command
                .split_whitespace()
                .filter(|it| it.starts_with("deploy/") || it.starts_with("examples/"))
            {
                applied += 1;
                let path = word.trim_end_matches([',', ';', ')']);
                assert!(root().join(path).exists(), "{name}:{line}: {path} is not there");
            }
        }
    }
    assert!(applied >= 20, "{applied} files: are they found?");
}
