//! Texts in the language of another proxy, given where YAML is read: who has such a file looks for the way to translate it.

use crate::tree::Position;

/// What is said of a text that is a configuration of nginx or HAProxy; nothing of any other.
pub fn other_language(text: &str) -> Option<String> {
    let lines = || text.lines().map(|it| it.split('#').next().unwrap_or_default().trim_end());
    let is_nginx = |line: &str| {
        let line = line.trim_start();
        let word = line.split([' ', '\t', '{']).next().unwrap_or_default();
        let opens = ["http", "server", "events", "upstream", "location", "stream"].contains(&word)
            && line.ends_with('{');
        opens || ["proxy_pass", "worker_processes", "server_name"].contains(&word) && line.ends_with(';')
    };
    let is_haproxy = |line: &str| match line.split_once([' ', '\t']) {
        None => ["global", "defaults"].contains(&line),
        Some((word, name)) => {
            ["frontend", "backend", "listen", "defaults"].contains(&word) && !name.contains([':', '{', ';'])
        }
    };
    let is_object = |line: &str| line.starts_with("apiVersion:") || line.starts_with("kind:");
    let (name, command) = match () {
        // One that stands in a ConfigMap is not what is read.
        () if lines().any(is_object) => return None,
        () if lines().any(is_nginx) => ("nginx", "nginx"),
        () if lines().any(is_haproxy) => ("HAProxy", "haproxy"),
        () => return None,
    };
    Some(format!(
        "this is a configuration of {name}, and Seaway reads YAML: seaway import {command} FILE translates it into manifests"
    ))
}

/// Where a text has the marker of a merge that was not resolved, and what is said of it. Git writes each with a word behind it.
pub fn merge_conflict(text: &str) -> Option<(Position, String)> {
    let is_marker = |line: &&str| ["<<<<<<< ", ">>>>>>> ", "||||||| "].iter().any(|it| line.starts_with(it));
    let (line_number, line) = (1_u32..).zip(text.lines()).find(|(_, line)| is_marker(line))?;
    let message = format!("{line:?} is the marker of a merge conflict, and no YAML");
    Some((Position { line: line_number, column: 1 }, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_marker_of_a_merge_conflict_is_found() {
        let text = "kind: Service\n<<<<<<< HEAD\na: 1\n=======\na: 2\n>>>>>>> other\n";
        let (at, message) = merge_conflict(text).expect("there is one");
        assert_eq!((at.line, at.column), (2, 1));
        assert!(message.starts_with("\"<<<<<<< HEAD\" is the marker"), "{message}");
        assert_eq!(merge_conflict("a: |\n  <<<<<<< HEAD\nb: <<<<<<< x\n"), None);
    }

    #[test]
    fn configurations_of_other_proxies_are_known_and_nothing_else() {
        for (text, command) in [
            ("user www-data;\nworker_processes auto;\n", Some("import nginx")),
            ("server {\n    listen 80;\n}\n", Some("import nginx")),
            ("# mine\nhttp {\n  upstream shop { server 10.0.0.1; }\n}\n", Some("import nginx")),
            ("global\n  maxconn 100\nfrontend x\n  bind *:80\n", Some("import haproxy")),
            ("listen stats # here\n    bind 127.0.0.1:9000\n", Some("import haproxy")),
            ("# global\nfrontDoor: {port: 80}\n", None),
            ("global: true\nbackend: a b\n", None),
            ("apiVersion: v1\nkind: Service\nmetadata: {name: server}\n", None),
            ("server: {\n  a: 1}\n", None),
            ("kind: ConfigMap\ndata:\n  nginx.conf: |\n    server {\n    }\n", None),
            ("", None),
        ] {
            let found = other_language(text);
            assert_eq!(found.is_some(), command.is_some(), "{text}: {found:?}");
            assert!(command.zip(found).is_none_or(|(it, found)| found.contains(it)), "{text}");
        }
    }
}
