use super::super::{
    report::Verdict,
    tests::{imported, printed},
};

/// An Ingress with these annotations, a path of its kind, and its Service.
fn ingress(annotations: &str, path: &str, kind: &str) -> String {
    format!(
        "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: a\n  annotations: {{{annotations}}}\nspec:\n  tls: [{{hosts: [a.example], secretName: t}}]\n  \
         rules:\n  - host: a.example\n    http:\n      paths:\n      - path: {path}\n        pathType: {kind}\n        backend: {{service: {{name: web, port: {{number: 80}}}}}}\n---\n\
         apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\nspec: {{ports: [{{port: 80}}]}}\n"
    )
}

fn ours(name: &str, value: &str) -> String {
    format!("nginx.ingress.kubernetes.io/{name}: '{value}'")
}

#[test]
fn each_annotation_has_its_counterpart() {
    for (name, value, path, expected) in [
        ("x", "false", "/a", "{path: {type: PathPrefix, value: /a}}"),
        ("ssl-redirect", "false", "/", "seaway.dev/https-redirect: \"false\""),
        ("x", "false", "/", "seaway.dev/https-redirect: \"true\", seaway.dev/tls: t"),
        ("rewrite-target", "/", "/a", "replaceFullPath: /"),
        ("rewrite-target", "/$2", "/a(/|$)(.*)", "replacePrefixMatch: /"),
        (
            "whitelist-source-range",
            "10.0.0.0/8, 192.0.2.1",
            "/",
            "seaway.dev/source-ranges: \"10.0.0.0/8, 192.0.2.1\"",
        ),
        ("proxy-body-size", "8m", "/", "seaway.dev/max-body-size: \"8Mi\""),
        ("proxy-read-timeout", "90", "/", "seaway.dev/timeout-answer: \"90s\""),
        ("affinity", "cookie", "/", "seaway.dev/sticky-cookie: \"INGRESSCOOKIE\""),
        ("backend-protocol", "HTTPS", "/", "seaway.dev/backend-tls: \"true\""),
        ("permanent-redirect", "https://b.example/x", "/", "hostname: b.example"),
        ("app-root", "/start", "/", "replaceFullPath: /start"),
        ("server-alias", "b.example", "/", "hostnames: [a.example, b.example]"),
        ("upstream-vhost", "b.example", "/", "urlRewrite: {hostname: b.example}"),
        ("use-regex", "true", "/v[0-9]+", "value: \"(?i:(?:/|%2[fF])+v[0-9]+)(?s-u:.)*\""),
        ("ssl-passthrough", "true", "/", "seaway.dev/tls-passthrough: \"true\""),
    ] {
        let text = printed("ingress", &ingress(&ours(name, value), path, "ImplementationSpecific"));
        assert!(text.contains(expected), "{name}: {expected} is missing:\n{text}");
    }
    let exact = printed("ingress", &ingress("", "/a", "Exact"));
    assert!(
        exact.contains("{type: Exact, value: /a}")
            && exact.contains("parentRefs: [{name: seaway, namespace: seaway-system}]"),
        "{exact}"
    );
}

#[test]
fn what_protects_and_cannot_be_translated_closes_its_routes() {
    for (name, value) in [
        ("auth-type", "basic"),
        ("auth-url", "http://auth.example"),
        ("auth-tls-secret", "default/ca"),
        ("limit-rps", "5"),
        ("denylist-source-range", "10.0.0.0/8"),
        ("whitelist-source-range", "everybody"),
        ("enable-modsecurity", "true"),
        ("configuration-snippet", "deny all;"),
        ("server-snippet", "if ($bad) { return 403; }"),
    ] {
        let text = printed("ingress", &ingress(&ours(name, value), "/", "Prefix"));
        assert!(
            text.contains("seaway.dev/source-ranges: \"255.255.255.255/32\""),
            "{name} does not close:\n{text}"
        );
    }
    for key in [
        "traefik.ingress.kubernetes.io/router.middlewares: a",
        "haproxy.org/allow-list: a",
        "nginx.org/policies: a",
    ] {
        let text = printed("ingress", &ingress(key, "/", "Prefix"));
        assert!(text.contains("255.255.255.255/32"), "{key} does not close:\n{text}");
    }
}

#[test]
fn services_of_the_file_are_taken_over_and_others_are_named() {
    let text = printed("ingress", &ingress(&ours("proxy-body-size", "8m"), "/", "Prefix"));
    assert!(text.contains("# file: manifests/service-web.yaml\napiVersion: \"v1\"\n"), "{text}");
    let whole = ingress(&ours("proxy-body-size", "8m"), "/", "Prefix");
    let (alone, _) = whole.split_once("---").expect("two documents");
    let (_, report) = imported("ingress", alone);
    let told = report.why(12);
    let wanted = "kubectl -n default annotate --overwrite service web seaway.dev/max-body-size=8Mi";
    assert!(told.iter().any(|(of, why)| *of == Verdict::LeftOut && why.contains(wanted)), "{told:?}");
}

/// Ingresses: name, annotations, class, host, path.
fn several(of: &[(&str, &str, &str, &str, &str)]) -> String {
    let one = |(name, annotations, class, host, path): &(&str, &str, &str, &str, &str)| {
        format!(
            "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata:\n  name: {name}\n  annotations: {{{annotations}}}\nspec:\n  ingressClassName: {class}\n  \
             rules:\n  - host: {host}\n    http: {{paths: [{{path: {path}, pathType: Prefix, backend: {{service: {{name: {name}, port: {{number: 80}}}}}}}}]}}\n"
        )
    };
    of.iter().map(one).collect::<Vec<_>>().join("---\n")
}

#[test]
fn a_canary_takes_no_requests() {
    let of = several(&[
        ("new", &ours("canary", "true"), "nginx", "a.example", "/"),
        ("old", "", "nginx", "a.example", "/"),
    ]);
    let (folder, report) = imported("ingress", &of);
    let text = folder.printed();
    assert!(text.contains("name: old") && !text.contains("name: new"), "{text}");
    let told = report.why(1);
    assert!(told.iter().any(|(of, why)| *of == Verdict::LeftOut && why.contains("a canary")), "{told:?}");
}

#[test]
fn a_host_that_asks_for_certificates_is_closed_in_all_ingresses() {
    let of = several(&[
        ("free", "", "nginx", "b.example", "/"),
        ("api", "", "nginx", "a.example", "/api"),
        ("app", &ours("auth-tls-secret", "default/ca"), "nginx", "a.example", "/"),
    ]);
    let text = printed("ingress", &of);
    assert!(text.matches("# Closed, requests get 403").count() == 2, "{text}");
    assert!(text.contains("requires client certificates for this host"), "{text}");
}

#[test]
fn an_annotation_that_may_say_who_can_connect_closes() {
    for key in [
        "alb.ingress.kubernetes.io/inbound-cidrs: 10.0.0.0/8",
        "alb.ingress.kubernetes.io/scheme: internal",
        "acme.example/whitelist: a",
        "acme.example/allowed-from: a",
        "nginx.ingress.kubernetes.io/new-deny-list: a",
    ] {
        let text = printed("ingress", &ingress(key, "/", "Prefix"));
        assert!(text.contains("255.255.255.255/32"), "{key} does not close:\n{text}");
    }
    for key in ["acme.cert-manager.io/authority: a", "external-dns.alpha.kubernetes.io/ttl: '5'"] {
        let text = printed("ingress", &ingress(key, "/", "Prefix"));
        assert!(!text.contains("255.255.255.255/32"), "{key} closes:\n{text}");
    }
}

#[test]
fn classes_that_are_published_together_are_told() {
    let of = several(&[("a", "", "nginx", "a.example", "/"), ("b", "", "internal", "b.example", "/")]);
    let (_, report) = imported("ingress", &of);
    let told = report.why(7);
    assert!(
        told.iter().any(|(of, why)| *of == Verdict::LeftOut
            && why.contains("share one front door")
            && why.contains("internal")),
        "{told:?}"
    );
}

#[test]
fn snippets_that_may_refuse_close() {
    let closes = |annotations: &str| {
        printed("ingress", &ingress(annotations, "/", "Prefix")).contains("255.255.255.255/32")
    };
    let wrong: Vec<&str> = [
        "if ($http_x_key != \"secret\") { return 503; }",
        "return 302 https://sso.example;",
        "return\t403;",
        "rewrite ^ /x last;",
        "internal;",
        "set $proxy_upstream_name \"default-other-80\";",
        "location /x { proxy_pass http://10.0.0.9; }",
        "proxy_set_header X-User $remote_user;",
        "unheard_of on;",
        "add_header X-A b",
    ]
    .into_iter()
    .filter(|it| !closes(&ours("configuration-snippet", &it.replace('\'', "''"))))
    .collect();
    assert!(wrong.is_empty(), "open: {wrong:?}");
    let open =
        "more_set_headers \"X-A: b\"; add_header X-B c; gzip on; proxy_set_header X-Forwarded-Proto https;";
    assert!(!closes(&ours("configuration-snippet", open)));
    for (name, value) in [
        ("permanent-redirect", "https://b.example/$request_uri"),
        ("temporal-redirect", "/x?y"),
        ("app-root", "https://b.example"),
    ] {
        assert!(closes(&ours(name, value)), "{name} is open");
    }
}

#[test]
fn what_counts_for_a_host_closes_all_its_ingresses() {
    let all = |first: (&str, &str), second: &str| {
        let of = several(&[("a", first.1, "nginx", first.0, "/one"), ("b", "", "nginx", second, "/")]);
        let (folder, report) = imported("ingress", &of);
        (folder.printed().matches("# Closed, requests get 403").count(), report.is_whole())
    };
    let snippet = ours("server-snippet", "allow 10.0.0.0/8; deny all;");
    assert_eq!(all(("a.example", &snippet), "a.example"), (2, false));
    assert_eq!(all(("b.example", &snippet), "a.example"), (1, false));
    assert_eq!(all(("a.example", "nginx.org/server-snippets: deny all;"), "a.example"), (2, false));
    // A name that cannot be written, and the wildcard that gets its requests.
    let networks = ours("whitelist-source-range", "10.0.0.0/8");
    assert_eq!(all(("b_1.a.example", &networks), "\"*.a.example\""), (1, false));
    // An Ingress that is not read.
    let of = several(&[("a", "", "nginx", "a.example", "/one"), ("b", "", "nginx", "a.example", "/")]);
    let text = printed("ingress", &of.replacen("networking.k8s.io/v1", "extensions/v1beta1", 1));
    assert!(text.contains("Closed, requests get 403"), "{text}");
    // What the controller does for all.
    let text = printed(
        "ingress",
        &format!(
            "{of}---\napiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata: {{global-auth-url: a}}\n"
        ),
    );
    assert_eq!(text.matches("Closed, requests get 403").count(), 2, "{text}");
}

#[test]
fn a_path_that_cannot_be_written_is_not_left_to_shorter_ones() {
    let of = |path: &str| {
        ingress(
            &format!("{}, {}", ours("use-regex", "true"), ours("rewrite-target", "/x/$1")),
            path,
            "ImplementationSpecific",
        )
    };
    for (path, expected) in [
        ("/admin(.*)/(.*)", "value: \"(?i:(?:/|%2[fF])+admin)(?s-u:.)*\""),
        ("/admins?/(.*)x", "value: \"(?i:(?:/|%2[fF])+admin)(?s-u:.)*\""),
    ] {
        let text = printed("ingress", &of(path));
        assert!(text.contains(expected) && text.contains("255.255.255.255/32"), "{path}:\n{text}");
    }
}

#[test]
fn www_is_redirected() {
    let text = printed("ingress", &ingress(&ours("from-to-www-redirect", "true"), "/", "Prefix"));
    assert!(
        text.contains("hostnames: [www.a.example]") && text.contains("hostname: a.example, statusCode: 308"),
        "{text}"
    );
}

#[test]
fn a_protected_prefix_ends_at_a_segment_in_all_of_its_spellings() {
    let of = several(&[
        ("a", &ours("whitelist-source-range", "10.0.0.0/8"), "nginx", "a.example", "/"),
        ("b", &ours("whitelist-source-range", "127.0.0.0/8"), "nginx", "a.example", "/pub/"),
    ]);
    let text = printed("ingress", &of);
    let written = "(?:/|%2[fF])+(?:p|%70)(?:u|%75)(?:b|%62)(?:(?:/|%2[fF])+(?s-u:.)*)?";
    assert!(text.contains(&format!("value: \"{written}\"")), "{text}");
}

#[test]
fn a_service_is_not_at_its_name_even_where_no_route_can_be_written() {
    let service = "---\napiVersion: v1\nkind: Service\nmetadata: {name: dash}\nspec: {ports: [{port: 80}]}\n";
    for (annotations, host) in
        [(ours("auth-url", "http://auth.example"), "my_dash.example"), (ours("canary", "true"), "a.example")]
    {
        let of = several(&[("dash", &annotations, "nginx", host, "/")]) + service;
        let (folder, report) = imported("ingress", &of);
        let text = folder.printed();
        assert!(
            text.contains("services: annotated") && text.contains("seaway.dev/front-door: \"false\""),
            "{text}"
        );
        assert!(!text.contains("HTTPRoute") && !report.is_whole(), "{text}");
    }
    let own = service.replace("{name: dash}", "{name: dash, annotations: {seaway.dev/host: a.example}}");
    let text = printed("ingress", &(several(&[("dash", "", "nginx", "b.example", "/")]) + &own));
    assert!(!text.contains("front-door"), "{text}");
}

#[test]
fn paths_of_a_host_with_expressions_are_protected_in_all_cases_and_by_their_beginning() {
    let networks = ours("whitelist-source-range", "192.168.0.0/16");
    for (other, path) in [("use-regex", "true"), ("rewrite-target", "/x")] {
        let of = several(&[
            ("app", &ours(other, path), "nginx", "a.example", "/"),
            ("adm", &networks, "nginx", "a.example", "/ad"),
            ("pub", "", "nginx", "a.example", "/ad/pub"),
            ("far", "", "nginx", "b.example", "/ad"),
        ]);
        let text = printed("ingress", &of);
        let written = r#""(?:/|%2[fF])+(?:[aA]|%[64]1)(?:[dD]|%[64]4)(?s-u:.)*""#;
        assert!(text.contains(&format!("RegularExpression, value: {written}")), "{text}");
        assert!(
            text.contains("{type: PathPrefix, value: /}") && text.contains("{type: PathPrefix, value: /ad}"),
            "{text}"
        );
        // The longest one comes first, and is an expression as well.
        let at = |it: &str| text.find(it).unwrap_or_else(|| panic!("{it} is missing:\n{text}"));
        assert!(at("(?:[pP]|%[75]0)") < at(written), "{text}");
    }
}

#[test]
fn a_replaced_prefix_does_not_come_before_expressions() {
    let of = |first: (&str, &str)| {
        let rewrite = format!("{}, {}", ours("use-regex", "true"), ours("rewrite-target", "/$2"));
        let of = several(&[
            ("some", &rewrite, "nginx", "a.example", "\"/some(/|$)(.*)\""),
            ("adm", first.1, "nginx", "a.example", first.0),
        ]);
        let (folder, report) = imported("ingress", &of);
        let closed = folder.printed().matches("# Closed, requests get 403").count();
        (closed, folder.printed().contains("type: PathPrefix, value: /some"), report.is_whole())
    };
    let networks = ours("whitelist-source-range", "192.168.0.0/16");
    // nginx never comes to it.
    assert_eq!(of(("/some/admin", &networks)), (1, true, false));
    assert_eq!(of(("/some/admin", "")), (0, true, false));
    // An expression would take its requests.
    assert_eq!(of(("/so", &networks)), (1, false, false));
    assert_eq!(of(("/so", "")), (0, true, true));
    assert_eq!(of(("/other", &networks)), (0, true, true));
}

#[test]
fn tls_without_a_secret_is_redirected_once_there_is_a_certificate_and_named() {
    let of = ingress("", "/", "Prefix").replace(", secretName: t", "");
    let (folder, report) = imported("ingress", &of);
    let text = folder.printed();
    assert!(
        text.contains("seaway.dev/https-redirect: \"true\"") && !text.contains("seaway.dev/tls:"),
        "{text}"
    );
    assert!(!report.is_whole());
    let of = of.replace("annotations: {}", &format!("annotations: {{{}}}", ours("ssl-redirect", "false")));
    assert!(printed("ingress", &of).contains("seaway.dev/https-redirect: \"false\""));
}

#[test]
fn what_the_cookie_of_seaway_does_not_have_is_named() {
    for (name, value, verdict) in [
        ("session-cookie-samesite", "None", Verdict::LeftOut),
        ("session-cookie-samesite", "Lax", Verdict::NoEffect),
        ("session-cookie-max-age", "172800", Verdict::LeftOut),
        ("session-cookie-path", "/", Verdict::NoEffect),
    ] {
        let (_, report) = imported("ingress", &ingress(&ours(name, value), "/", "Prefix"));
        assert!(report.why(5).iter().any(|it| it.0 == verdict), "{name}: {value}: {:?}", report.why(5));
    }
}

#[test]
fn hosts_secrets_and_the_default_backend_are_reported_where_they_stand() {
    let of = ingress("", "/", "Prefix")
        .replace("  rules:", "  defaultBackend:\n    service: {name: web, port: {number: 80}}\n  rules:");
    let (_, report) = imported("ingress", &of);
    let of_line = |text: &str| {
        let number = (1_u32..).zip(of.lines()).find(|(_, it)| it.contains(text)).map(|it| it.0);
        report.why(number.expect("it is there"))
    };
    let has = |text: &str, wanted: Verdict, why: &str| {
        let found = of_line(text);
        assert!(found.iter().any(|it| it.0 == wanted && it.1.contains(why)), "{text}: {found:?}");
    };
    has("secretName: t", Verdict::Differs, "the Secret t is not in this file");
    has("- host: a.example", Verdict::Translated, "");
    has("defaultBackend:", Verdict::Translated, "");
    has("path: /", Verdict::Translated, "");
}

#[test]
fn a_rule_without_paths_is_named_and_its_host_is_not_left_to_others() {
    let of = |annotations: &str| {
        let one = several(&[("a", annotations, "nginx", "a.example", "/")]);
        let (one, _) = one.split_once("    http:").expect("it has paths");
        let two =
            several(&[("b", "", "nginx", "b.example", "/")]).replace("- host: b.example\n    http", "- http");
        imported("ingress", &format!("{one}---\n{two}"))
    };
    let (folder, report) = of("");
    let why = report.why(9);
    assert!(why.iter().any(|it| it.0 == Verdict::LeftOut && it.1.contains("without paths")), "{why:?}");
    assert!(!folder.printed().contains("Closed"), "{}", folder.printed());
    let (folder, _) = of(&ours("whitelist-source-range", "10.0.0.0/8"));
    assert!(folder.printed().contains("Closed, requests get 403"), "{}", folder.printed());
}

#[test]
fn of_two_values_for_one_service_the_stricter_or_the_first_is_written_and_the_other_named() {
    let https = ours("backend-protocol", "HTTPS");
    let verified = format!("{https}, {}", ours("proxy-ssl-verify", "on"));
    for (a, b, written, said) in [
        (
            ours("proxy-body-size", "8m"),
            ours("proxy-body-size", "1m"),
            "max-body-size=1Mi",
            "gets seaway.dev/max-body-size: 1Mi, which is stricter, and not 8Mi, which another Ingress asks for",
        ),
        (
            ours("proxy-body-size", "1m"),
            ours("proxy-body-size", "8m"),
            "max-body-size=1Mi",
            "gets seaway.dev/max-body-size: 1Mi, which another Ingress asks for, and not 8Mi",
        ),
        (
            ours("proxy-body-size", "0"),
            ours("proxy-body-size", "8m"),
            "max-body-size=8Mi",
            "gets seaway.dev/max-body-size: 8Mi, which is stricter, and not 0,",
        ),
        (
            https.clone(),
            verified.clone(),
            "backend-tls-verify=on",
            "gets seaway.dev/backend-tls-verify: on, which is stricter, and not off,",
        ),
        (
            verified,
            https,
            "backend-tls-verify=on",
            "gets seaway.dev/backend-tls-verify: on, which another Ingress asks for, and not off",
        ),
        (
            ours("proxy-read-timeout", "10"),
            ours("proxy-read-timeout", "20"),
            "timeout-answer=10s",
            "gets seaway.dev/timeout-answer: 10s, which another Ingress asks for, and not 20s",
        ),
    ] {
        let of = several(&[("a", &a, "nginx", "a.example", "/"), ("b", &b, "nginx", "b.example", "/")])
            .replace("service: {name: b", "service: {name: a");
        let (_, report) = imported("ingress", &of);
        let lines = report.lines(false);
        assert!(lines.iter().any(|it| it.contains(said)), "{said}: {lines:?}");
        let last = lines.iter().rfind(|it| it.contains("annotate --overwrite service"));
        assert!(last.is_some_and(|it| it.contains(written)), "{written}: {lines:?}");
    }
}
