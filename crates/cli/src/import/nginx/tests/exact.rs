//! What Seaway would do in another way than nginx is named, and what it would open is closed.

use super::{super::super::report::Verdict, imported, printed, server};

const TO: &str = "proxy_pass http://10.0.0.1:1;";

#[test]
fn what_nginx_withholds_from_members_closes() {
    for name in ["proxy_pass_request_headers", "proxy_pass_request_body"] {
        let of = |value: &str| {
            let (folder, report) =
                imported("nginx", &server(&format!("location / {{ {name} {value}; {TO} }}")));
            (folder.printed().contains("Closed, requests get 403"), report.is_whole())
        };
        assert_eq!((of("off"), of("on")), ((true, false), (false, true)), "{name}");
        let around = printed("nginx", &server(&format!("{name} off; location / {{ {TO} }}")));
        assert!(around.contains("Closed, requests get 403"), "{around}");
    }
}

#[test]
fn fixed_headers_are_sent_and_others_are_named() {
    for (listen, line, expected) in [
        ("80", "X-Forwarded-Proto https", "set: [{name: X-Forwarded-Proto, value: https}]"),
        ("80", "X-Forwarded-Port 443", "set: [{name: X-Forwarded-Port, value: \"443\"}]"),
        ("80", "X-Forwarded-Proto $scheme", "seaway.dev/host: shop.example/"),
        ("443 ssl", "X-Forwarded-Proto https", ""),
    ] {
        let of = server(&format!("location / {{ proxy_set_header {line}; {TO} }}"));
        let of =
            of.replace("listen 80", &format!("ssl_certificate a; ssl_certificate_key b; listen {listen}"));
        let text = printed("nginx", &of);
        assert!(text.contains(expected), "{line}:\n{text}");
        assert!(!expected.is_empty() || !text.contains("X-Forwarded"), "{line}:\n{text}");
    }
    let named = |lines: &str, line: &str, verdict: Verdict, what: &str| {
        let of = format!("server {{ listen 80; {lines} location / {{ {TO}\nproxy_set_header {line};\n}} }}");
        let (_, report) = imported("nginx", &of);
        report.why(2).iter().any(|it| it.0 == verdict && it.1.contains(what))
    };
    assert!(named("", "X-Forwarded-Proto $http_x_forwarded_proto", Verdict::Differs, "frontDoor.trusted"));
    for line in ["X-Real-IP $remote_addr", "X-Auth-User \"\"", "X-A b"] {
        assert!(named("", line, Verdict::Differs, "a client may send it as X_"), "{line}");
        assert!(!named("underscores_in_headers on;", line, Verdict::Differs, "a client"), "{line}");
    }
}

#[test]
fn a_default_server_redirects_to_its_own_name() {
    let of = "server { listen 80 default_server; server_name git.example; return 301 https://$server_name$request_uri; }\n\
              server { listen 443 ssl; server_name git.example; ssl_certificate a; ssl_certificate_key b; location / { proxy_pass http://10.0.0.1:1; } }";
    let text = printed("nginx", of);
    assert!(text.contains("hostname: git.example, scheme: https, statusCode: 301"), "{text}");
    let text = printed("nginx", &of.replace("https://$server_name", "https://$host"));
    assert!(text.contains("{scheme: https, statusCode: 301}"), "{text}");
}

#[test]
fn escapes_are_refused_where_a_protected_path_may_be_meant() {
    for (expression, slash, said) in [
        ("\\.bak$", false, "an escape of a letter"),
        ("^/a.*\\.bak$", false, "an escape of a letter"),
        ("^/a/[a-z0-9]+x$", false, "an escape of a letter"),
        ("^/a.b$", true, "%2F in their paths"),
        ("^/a[^b]b$", true, "%2F in their paths"),
        ("^/a\\Wb$", true, "%2F in their paths"),
        ("^/a b$", true, "any % in their paths"),
    ] {
        let of = server(&format!("location / {{ {TO} }} location ~ \"{expression}\" {{ deny all; }}"));
        let (folder, report) = imported("nginx", &of);
        let text = folder.printed();
        let refuses = text.contains("2[dDeEfF]") || text.contains("value: \"(?s-u:.)*%(?s-u:.)*\"");
        assert_eq!(refuses, slash, "{expression}:\n{text}");
        assert!(report.why(1).iter().any(|it| it.1.contains(said)), "{expression}: {:?}", report.why(1));
    }
}

#[test]
fn what_no_request_has_closes_nothing() {
    for lines in ["location (foo) { alias /x/; deny all; }", "ssi_types text/plain;", "override_charset on;"]
    {
        let text = printed("nginx", &server(&format!("location / {{ {TO} }} {lines}")));
        assert!(!text.contains("255.255.255.255"), "{lines} closes:\n{text}");
    }
}
