//! Which test programs there are: read from what cargo printed when it built them.

use std::{fs, path::PathBuf};

use serde_json::Value;

use crate::options::Options;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// The folder of its package: `proxy`, `bench`.
    pub(crate) package: String,
    /// `lib`, `bin` or `test`.
    pub(crate) kind: String,
    pub(crate) name: String,
    pub(crate) path: PathBuf,
    /// Where cargo would run it.
    pub(crate) folder: PathBuf,
}

impl Program {
    /// By the name that it begins with, as CONTRIBUTING.md says.
    pub(crate) fn tier(&self) -> &'static str {
        const BY_NAME: [&str; 7] = ["net", "walk", "browser", "openstack", "kubernetes", "peers", "long"];
        if self.kind != "test" {
            return "unit";
        }
        match BY_NAME.iter().find(|tier| self.name.starts_with(**tier)) {
            Some(tier) => tier,
            None if self.package == "cli" => "walk",
            None => "unit",
        }
    }

    pub(crate) fn label(&self) -> String {
        match self.kind.as_str() {
            "test" => format!("{}, tests/{}", self.package, self.name),
            "bin" => format!("{} (program)", self.package),
            _ => self.package.clone(),
        }
    }

    /// What a person types to run it, or one test of it.
    pub(crate) fn command(&self) -> String {
        let only = match self.kind.as_str() {
            "test" => format!("--test {}", self.name),
            "bin" => format!("--bin {}", self.name),
            _ => "--lib".to_owned(),
        };
        let features = if self.package == "testkit" { " --features kubernetes" } else { "" };
        format!("cargo test -p seaway-{}{features} {only}", self.package)
    }
}

pub(crate) fn programs(options: &Options) -> Result<Vec<Program>, String> {
    let log = fs::read_to_string(&options.build_log)
        .map_err(|error| format!("cannot read {}: {error}", options.build_log.display()))?;
    let mut programs: Vec<Program> = log.lines().filter_map(program).collect();
    programs.sort_by(|a, b| (a.label(), &a.path).cmp(&(b.label(), &b.path)));
    programs.dedup();
    if programs.is_empty() {
        return Err(format!("cargo named no test program in {}", options.build_log.display()));
    }
    Ok(programs)
}

fn program(line: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(line).ok()?;
    let is_test = message["profile"]["test"].as_bool()?;
    let kind = message["target"]["kind"][0].as_str()?;
    if message["reason"] != "compiler-artifact" || !is_test || kind == "example" {
        return None;
    }
    let folder = PathBuf::from(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    Some(Program {
        package: folder.file_name()?.to_str()?.to_owned(),
        kind: kind.to_owned(),
        name: message["target"]["name"].as_str()?.to_owned(),
        path: message["executable"].as_str()?.into(),
        folder,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(package: &str, kind: &str, name: &str) -> Program {
        let [package, kind, name] = [package, kind, name].map(str::to_owned);
        Program { package, kind, name, path: PathBuf::new(), folder: PathBuf::new() }
    }

    #[test]
    fn the_name_of_a_program_says_its_tier() {
        for (package, kind, name, tier) in [
            ("proxy", "lib", "seaway_proxy", "unit"),
            ("proxy", "test", "tcp", "unit"),
            ("announce", "test", "netns", "net"),
            ("testkit", "test", "net_topology", "net"),
            ("admin", "test", "browser", "browser"),
            ("cli", "test", "walk", "walk"),
            ("cli", "test", "anything", "walk"),
            ("cli", "bin", "seaway", "unit"),
            ("cli", "test", "kubernetes_native", "kubernetes"),
            ("openstack", "test", "openstack_flows", "openstack"),
            ("proxy", "test", "peers_attacks", "peers"),
        ] {
            assert_eq!(named(package, kind, name).tier(), tier, "{package} {kind} {name}");
        }
    }

    #[test]
    fn only_test_programs_are_taken_from_what_cargo_prints() {
        let message = |test: bool, kind: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/x/crates/proxy/Cargo.toml","target":{{"kind":["{kind}"],"name":"tcp"}},"profile":{{"test":{test}}},"executable":"/t/tcp-1"}}"#
            )
        };
        let found = program(&message(true, "test")).expect("a test program");
        assert_eq!((found.label(), found.tier()), ("proxy, tests/tcp".to_owned(), "unit"));
        assert_eq!(found.folder, PathBuf::from("/x/crates/proxy"));
        for line in [message(false, "bin"), message(true, "example"), "warning: no JSON".to_owned()] {
            assert_eq!(program(&line), None, "{line}");
        }
    }
}
