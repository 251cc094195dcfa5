//! Commands that pages show, held against the program's own command line.

use std::{fs, path::Path};

use clap::Parser;

use crate::args::{Cli, kubectl::Plugin};

const PAGES: [&str; 7] = [
    "from-occm.md",
    "from-occm-before.md",
    "from-occm-abort.md",
    "from-occm-back.md",
    "octavia.md",
    "octavia-plan.md",
    "octavia-orphans.md",
];

/// Lines of code that call Seaway, as words.
fn commands(page: &str) -> Vec<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(page);
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("    ")).map(str::trim_start);
    let ours = lines.filter(|it| it.starts_with("seaway ") || it.starts_with("kubectl seaway "));
    // What follows is for a shell, or for people.
    let called = |it: &str| {
        [" |", " >", " #", "  "]
            .iter()
            .fold(it.to_owned(), |it, end| it.split(end).next().unwrap_or_default().to_owned())
    };
    ours.map(|it| called(it).split_whitespace().map(str::to_owned).collect()).collect()
}

#[test]
fn every_command_that_a_page_shows_is_one() {
    let mut shown = 0;
    for page in PAGES {
        for command in commands(page) {
            let parsed = match command[0].as_str() {
                "kubectl" => Plugin::try_parse_from(&command[1..]).map(drop),
                _ => Cli::try_parse_from(&command).map(drop),
            };
            assert!(parsed.is_ok(), "{page}: {command:?}: {}", parsed.unwrap_err());
            shown += 1;
        }
    }
    assert!(shown > 12, "{shown}");
}
