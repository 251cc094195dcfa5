//! Where directives begin in a text, found without the importers: these lines have to come to something.

/// Numbers and texts of lines.
type Lines<'t> = Vec<(u32, &'t str)>;

pub(super) fn directives<'t>(kind: &str, of: &'t str) -> Lines<'t> {
    match kind {
        "nginx" => of_nginx(of),
        "ingress" => of_ingresses(of),
        _ => numbered(of).filter(|(_, it)| !it.is_empty() && !it.starts_with('#')).collect(),
    }
}

/// Those that say who gets an answer: by networks, passwords, limits, certificates.
pub(super) fn that_protect<'t>(kind: &str, of: &'t str) -> Lines<'t> {
    let nginx = [
        "deny",
        "auth_basic",
        "auth_request",
        "limit_req",
        "limit_conn",
        "limit_except",
        "internal",
        "ssl_verify_client",
    ];
    let is_one = |text: &str| {
        let words: Vec<&str> = text.trim_end_matches(';').split_whitespace().collect();
        let (first, second) = (words.first().copied(), words.get(1).copied());
        let first = first.unwrap_or_default();
        match kind {
            "nginx" => nginx.contains(&first) && second != Some("off"),
            "ingress" => ["auth-", "whitelist-", "allowlist-", "denylist-", "/limit-"]
                .iter()
                .any(|it| first.contains(it)),
            _ => {
                let refuses = ["deny", "reject", "auth", "tarpit", "silent-drop"];
                matches!(first, "http-request" | "tcp-request" | "block")
                    && words.iter().any(|it| refuses.contains(it))
            }
        }
    };
    directives(kind, of).into_iter().filter(|(_, it)| is_one(it)).collect()
}

fn numbered(of: &str) -> impl Iterator<Item = (u32, &str)> {
    (1_u32..).zip(of.lines().map(str::trim))
}

/// A directive may have several lines: it begins where the one before it has ended.
fn of_nginx(of: &str) -> Lines<'_> {
    let mut found = Vec::new();
    let (mut quote, mut is_open, mut is_lua) = (None, false, false);
    for (number, line) in numbered(of) {
        // A block of Lua is one directive. Blocks within it do not end in lines of their own in what is fetched.
        if is_lua {
            is_lua = line != "}";
            continue;
        }
        if !is_open && !line.is_empty() && !line.starts_with(['#', '}']) {
            found.push((number, line));
            is_lua = line.ends_with("_by_lua_block {");
        }
        let mut before = ' ';
        let mut letters = line.chars();
        while let Some(it) = letters.next() {
            let begins = before.is_whitespace() || ";{}".contains(before);
            match (quote, it) {
                (_, '\\') => {
                    letters.next();
                    is_open = true;
                }
                (Some(of), it) if it == of => quote = None,
                (Some(_), _) => {}
                (None, '#') if begins => break,
                (None, '"' | '\'') if begins => {
                    quote = Some(it);
                    is_open = true;
                }
                // `${name}` ends nothing.
                (None, '{') if before == '$' => drop(letters.by_ref().find(|it| *it == '}')),
                (None, ';' | '{' | '}') => is_open = false,
                (None, it) => is_open |= !it.is_whitespace(),
            }
            before = it;
        }
    }
    found
}

/// What an Ingress is made of stands in lines of its own. Objects of other kinds, and of old versions, are judged as a whole.
fn of_ingresses(of: &str) -> Lines<'_> {
    let read = [
        "host:",
        "path:",
        "secretName:",
        "defaultBackend:",
        "ingressClassName:",
        "kubernetes.io/ingress.class:",
    ];
    let mut found = Vec::new();
    let mut document: Lines<'_> = Vec::new();
    for (number, line) in numbered(of).chain([(0, "---")]) {
        let line = line.trim_start_matches("- ");
        if !line.starts_with("---") {
            document.push((number, line));
            continue;
        }
        let has = |text: &str| document.iter().any(|(_, it)| *it == text);
        if has("kind: Ingress") && has("apiVersion: networking.k8s.io/v1") {
            let is_read =
                |it: &str| read.iter().any(|of| it.starts_with(of)) || it.contains("ingress.kubernetes.io/");
            found.extend(document.iter().filter(|(_, it)| is_read(it)));
        }
        document.clear();
    }
    found
}

#[test]
fn directives_are_found_where_they_begin() {
    let lines = |kind: &str, of: &str| directives(kind, of).iter().map(|it| it.0).collect::<Vec<_>>();
    let nginx = "# a\nhttp {\n  log_format a 'b;'\n    'c {';\n  types { a b; }\n\n  gzip_types a\n  # c\n    b; # d\n  if (${x}) {\n}\n}";
    assert_eq!(lines("nginx", nginx), [2, 3, 5, 7, 10]);
    let ingress = "apiVersion: networking.k8s.io/v1\nkind: Ingress\nspec:\n  rules:\n  - host: a\n    http:\n      paths:\n      - backend: {}\n        path: /\n---\nkind: Pod\nhost: a\n";
    assert_eq!(lines("ingress", ingress), [5, 9]);
    assert_eq!(lines("haproxy", "\n# a\nglobal\n  b\n"), [3, 4]);
    assert_eq!(that_protect("nginx", "deny 10.0.0.1;\ndeny all;\nauth_basic off;\n").len(), 2);
}
