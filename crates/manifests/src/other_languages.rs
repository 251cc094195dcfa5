//! Texts in the language of another proxy, given where YAML is read: who has such a file looks for the way to translate it.

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

#[cfg(test)]
mod tests {
    use super::*;

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
