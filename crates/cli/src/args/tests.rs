//! The page of the command line: what `--help` says of each command.

use clap::{Command, CommandFactory, Parser};

use super::{Cli, kubectl};

/// Of it and of each of its subcommands, those that are hidden aside.
fn sections(command: &mut Command, name: &str, page: &mut String) {
    let help = command.clone().bin_name(name).term_width(100).render_long_help().to_string();
    *page += &format!("\n## {name}\n\n```text\n{}\n```\n", help.trim_end());
    let subcommands = command.get_subcommands_mut().filter(|it| !it.is_hide_set() && it.get_name() != "help");
    for subcommand in subcommands {
        let name = format!("{name} {}", subcommand.get_name());
        sections(subcommand, &name, page);
    }
}

#[test]
fn the_command_line_is_well_formed() {
    Cli::command().debug_assert();
    kubectl::Plugin::command().debug_assert();
}

#[test]
fn a_port_that_is_no_number_is_refused_with_what_a_port_is() {
    for arguments in [
        &["init", "web", "--port", "http"][..],
        &["run", "web", "--status-port", "70000"],
        &["demo", "--http-port", "8081a"],
        &["node", "--probe-port", "x"],
    ] {
        let refused = Cli::try_parse_from([&["seaway"], arguments].concat()).expect_err("it is no port");
        assert!(
            refused.to_string().contains("a port is a number from 1 to 65535"),
            "{arguments:?}: {refused}"
        );
    }
}

#[test]
fn the_page_of_the_command_line_is_what_help_says() {
    let mut page = String::from(
        "# The command line\n\n<!-- Written by a test from crates/cli/src/args; see CONTRIBUTING.md -->\n\nWhat `--help` says of each command. \
         `seaway completions bash` prints completions for bash, `seaway man` the manual page.\n",
    );
    sections(&mut Cli::command().version("VERSION"), "seaway", &mut page);
    let trimmed: String = page.lines().map(|it| format!("{}\n", it.trim_end())).collect();
    let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    seaway_testkit::golden::same(file, &trimmed);
}
