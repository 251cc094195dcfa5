mod exact;
mod open;

use super::super::{
    report::Verdict,
    tests::{imported, printed},
};

/// A server of `shop.example` at port 80 with these lines.
fn server(lines: &str) -> String {
    format!("server {{ listen 80; server_name shop.example; {lines} }}")
}

#[test]
fn each_directive_has_its_counterpart() {
    for (lines, expected) in [
        (
            "location / { proxy_pass http://127.0.0.1:1; }",
            &["seaway.dev/host: shop.example/", "seaway.dev/backends: \"127.0.0.1:1\""][..],
        ),
        ("location / { proxy_pass http://localhost:1; }", &["\"127.0.0.1:1\""]),
        (
            "location / { proxy_pass http://app.internal; proxy_set_header Host $host; }",
            &["\"app.internal:80\""],
        ),
        ("location / { proxy_pass http://app.internal; }", &["urlRewrite: {hostname: app.internal}"]),
        (
            "location / { proxy_pass https://10.0.0.1; }",
            &["\"10.0.0.1:443\"", "appProtocol: https", "backend-tls-verify: \"off\""],
        ),
        (
            "location / { proxy_pass https://10.0.0.1; proxy_ssl_verify on; proxy_ssl_name a.b; }",
            &["seaway.dev/backend-tls-name: a.b"],
        ),
        ("location / { grpc_pass grpc://10.0.0.1:5; }", &["appProtocol: grpc"]),
        ("location /a/ { proxy_pass http://10.0.0.1:1/; }", &["seaway.dev/strip-prefix: \"true\""]),
        ("location /a/ { proxy_pass http://10.0.0.1:1/b/; }", &["replacePrefixMatch: /b"]),
        (
            "location = /a { proxy_pass http://10.0.0.1:1/b; }",
            &["type: Exact, value: /a", "replaceFullPath: /b"],
        ),
        (
            "location ~ \\.php$ { proxy_pass http://10.0.0.1:1; }",
            &["type: RegularExpression, value: \"(?s-u:.)*\\\\.php(?:%0[aA])?\""],
        ),
        (
            "location /a/ { rewrite ^/a/(.*)$ /$1 break; proxy_pass http://10.0.0.1:1; }",
            &["seaway.dev/strip-prefix: \"true\""],
        ),
        (
            "location / { client_max_body_size 10m; proxy_pass http://10.0.0.1:1; }",
            &["max-body-size: \"10Mi\""],
        ),
        ("proxy_read_timeout 2m; location / { proxy_pass http://10.0.0.1:1; }", &["timeout-answer: \"2m\""]),
        (
            "location / { proxy_connect_timeout 500ms; proxy_pass http://10.0.0.1:1; }",
            &["timeout-connect: \"500ms\""],
        ),
        (
            "location / { proxy_set_header X-A b; proxy_pass http://10.0.0.1:1; }",
            &["requestHeaderModifier: {set: [{name: X-A, value: b}]}"],
        ),
        (
            "location / { add_header X-A b; proxy_hide_header X-B; proxy_pass http://10.0.0.1:1; }",
            &["remove: [X-B]", "{name: X-A, value: b}"],
        ),
        (
            "location /a { return 301 /b; } location / { proxy_pass http://10.0.0.1:1; }",
            &["replaceFullPath: /b", "statusCode: 301"],
        ),
        (
            "return 302 https://www.shop.example$request_uri;",
            &["hostname: www.shop.example, scheme: https, statusCode: 302"],
        ),
        ("rewrite ^ https://$host$request_uri? permanent;", &["scheme: https, statusCode: 301"]),
        (
            "location / { try_files $uri @app; } location @app { proxy_pass http://10.0.0.1:1; }",
            &["\"10.0.0.1:1\""],
        ),
        (
            "location / { allow 10.0.0.0/8; deny all; proxy_pass http://10.0.0.1:1; }",
            &["seaway.dev/source-ranges: \"10.0.0.0/8\""],
        ),
        ("location / { allow all; proxy_pass http://10.0.0.1:1; }", &["seaway.dev/host: shop.example/"]),
    ] {
        let text = printed("nginx", &server(lines));
        for part in expected {
            assert!(text.contains(part), "{lines}: {part} is missing:\n{text}");
        }
        assert!(!text.contains("255.255.255.255"), "{lines} is closed:\n{text}");
    }
}

#[test]
fn upstreams_are_services() {
    for (lines, expected) in [
        ("server 10.0.0.1;", "\"10.0.0.1:80\""),
        (
            "server 10.0.0.1:1 weight=3; server [2001:db8::1]:2 backup;",
            "\"10.0.0.1:1 weight=3, [2001:db8::1]:2 backup\"",
        ),
        ("server 10.0.0.1:1 down; server 10.0.0.2:1;", "backends: \"10.0.0.2:1\""),
        ("server 10.0.0.1:1 max_fails=0;", "passive-ejection: \"off\""),
        ("server 10.0.0.1:1 max_conns=30;", "max-connections-per-member: \"30\""),
        ("server 10.0.0.1:1 max_conns=30;", "queue-timeout: \"0s\""),
        ("ip_hash; server 10.0.0.1:1;", "balance: source-hash"),
        ("hash $remote_addr consistent; server 10.0.0.1:1;", "balance: source-hash"),
        ("random two least_conn; server 10.0.0.1:1;", "balance: random-two"),
        ("sticky cookie srv; server 10.0.0.1:1;", "sticky-cookie: srv"),
    ] {
        let of = format!(
            "upstream a {{ {lines} }} {}",
            server("location / { proxy_pass http://a; proxy_set_header Host $host; }")
        );
        let text = printed("nginx", &of);
        assert!(text.contains(expected), "{lines}: {expected} is missing:\n{text}");
    }
}

/// What protects is written closed: every request gets 403.
#[test]
fn what_protects_and_cannot_be_translated_closes_its_location() {
    for lines in [
        "deny 10.0.0.1;",
        "deny all;",
        "allow 10.0.0.0/8; deny 10.0.0.1; deny all;",
        "auth_basic a;",
        "auth_request /auth;",
        "limit_req zone=a;",
        "limit_conn a 1;",
        "limit_except GET { deny all; }",
        "valid_referers none;",
        "if ($http_user_agent ~ bot) { return 403; }",
        "internal;",
        "access_by_lua_block { if x then ngx.exit({403}) end }",
        "modsecurity on;",
        "rewrite_by_lua_block { check() }",
        "my_auth_module on;",
        "include not-here.conf;",
        "ssl_crl /revoked.pem;",
        "if ($request_method = POST) { return 503; }",
        "if ($cookie_session = '') { return 302 /login; }",
        "set_real_ip_from 10.0.0.0/8; allow 192.0.2.7; deny all;",
        "rewrite ^/b/(.*)$ /c/$1 permanent;",
        "return 200 text;",
    ] {
        for of in [
            server(&format!(
                "location /a {{ {lines} proxy_pass http://10.0.0.1:1; }} location / {{ proxy_pass http://10.0.0.1:1; }}"
            )),
            server(&format!("{lines} location / {{ proxy_pass http://10.0.0.1:1; }}")),
        ] {
            let text = printed("nginx", &of);
            assert!(text.contains("255.255.255.255/32"), "{lines} does not close:\n{text}");
        }
    }
    // A list of networks is the only protection that satisfy any leaves.
    let any = server(
        "location / { satisfy any; allow 10.0.0.0/8; deny all; auth_basic a; proxy_pass http://10.0.0.1:1; }",
    );
    assert!(printed("nginx", &any).contains("source-ranges: \"10.0.0.0/8\""));
    // Without TLS, or at more addresses, nothing is served that was not.
    let loopback = format!(
        "{} server {{ listen 127.0.0.1:80; server_name b.example; location / {{ proxy_pass http://10.0.0.1:1; }} }}",
        server("location / { proxy_pass http://10.0.0.1:2; }")
    );
    assert!(
        printed("nginx", &loopback)
            .contains("Closed, requests get 403: this server listens only at loopback")
    );
    let tls =
        "server { listen 443 ssl; server_name a.example; location / { proxy_pass http://10.0.0.1:1; } }";
    assert!(printed("nginx", tls).contains("the server has no certificate"));
}

#[test]
fn other_spellings_of_a_protected_path_are_protected() {
    let of = server(
        "location /adm { allow 10.0.0.0/8; deny all; proxy_pass http://10.0.0.1:1; } location /adm/open/ { proxy_pass http://10.0.0.1:1; } location / { proxy_pass http://10.0.0.1:1; }",
    );
    let text = printed("nginx", &of);
    let spelled = r#"value: "(?:/|%2[fF])+(?:a|%61)(?:d|%64)(?:m|%6[dD])(?s-u:.)*""#;
    assert!(text.contains(spelled), "{text}");
    // What is below comes first, as an expression too.
    let below = r#"value: "/adm/open(?:/(?s-u:.)*)?""#;
    assert!(text.find(below).expect("it is open") < text.find(spelled).expect("it is protected"), "{text}");
}

#[test]
fn a_name_without_a_route_does_not_go_to_the_default_server() {
    let of = "server { listen 80 default_server; location / { proxy_pass http://10.0.0.1:1; } } server { listen 80; server_name a.example; root /srv; } \
              server { listen 80; server_name b.example; return 444; }";
    let text = printed("nginx", of);
    for host in ["a.example", "b.example"] {
        let at = text.find(&format!("hostnames: [{host}]")).unwrap_or_else(|| panic!("{host}: {text}"));
        let head = text[..at].rfind("apiVersion").expect("it is an object");
        assert!(text[head..at].contains("255.255.255.255/32"), "{host} is open:\n{text}");
    }
}

#[test]
fn tls_is_the_front_doors() {
    let of = "server { listen 80; server_name a.example; location /.well-known/x { proxy_pass http://10.0.0.1:2; } location / { return 301 https://$host$request_uri; } } \
              server { listen 443 ssl; server_name a.example; ssl_certificate /c.pem; ssl_certificate_key /k.pem; ssl_protocols TLSv1.3; \
              add_header Strict-Transport-Security max-age=100; location / { proxy_pass http://10.0.0.1:1; } }";
    let text = printed("nginx", of);
    for part in [
        "- {cert: /c.pem, key: /k.pem}",
        "profile: modern",
        "hsts: \"100s\"",
        "seaway.dev/https-redirect: \"true\"",
        "seaway.dev/https-redirect: \"false\"",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    let all = of.replace("location /.well-known/x { proxy_pass http://10.0.0.1:2; }", "");
    let text = printed("nginx", &all);
    assert!(text.contains("redirect: true") && !text.contains("https-redirect"), "{text}");
    let clients =
        all.replace("ssl_protocols TLSv1.3;", "ssl_verify_client on; ssl_client_certificate /ca.pem;");
    assert!(printed("nginx", &clients).contains("clients: {authorities: /ca.pem}"));
    let some = format!(
        "{clients} server {{ listen 443 ssl; server_name b.example; ssl_certificate /c.pem; ssl_certificate_key /k.pem; location / {{ proxy_pass http://10.0.0.1:1; }} }}"
    );
    let text = printed("nginx", &some);
    assert!(
        !text.contains("clients:") && text.contains("run a second seaway for the servers that require them"),
        "{text}"
    );
}

#[test]
fn what_is_not_translated_is_reported_with_its_line() {
    let of = "worker_processes 4;\nhttp {\n gzip on;\n unheard_of 1;\n server {\n  listen 80;\n  location / { root /srv; }\n  location /x { proxy_pass http://$y; }\n  location /s { proxy_pass http://unix:/s; }\n }\n}";
    let (_, report) = imported("nginx", of);
    for (line, verdict, part) in [
        (1, Verdict::NoEffect, "settings of the process"),
        (3, Verdict::LeftOut, "seaway.dev/compress: gzip"),
        (4, Verdict::Closed, "does not know this directive"),
        (7, Verdict::LeftOut, "serves no files"),
        (8, Verdict::LeftOut, "no variables"),
        (9, Verdict::LeftOut, "UNIX sockets are not supported"),
    ] {
        let told = report.why(line);
        assert!(told.iter().any(|(of, why)| *of == verdict && why.contains(part)), "line {line}: {told:?}");
    }
    assert!(!report.is_whole());
}

/// Each of them was open once: what has to be in the output, and what must not be.
#[test]
fn nothing_is_open_that_nginx_closes() {
    const TO: &str = "proxy_pass http://10.0.0.1:1; proxy_set_header Host $host;";
    const CLOSED: &str = "Closed, requests get 403";
    let tls = "listen 443 ssl; ssl_certificate /c.pem; ssl_certificate_key /k.pem;";
    for (of, expected, absent) in [
        // A named location has protection of its own.
        (
            server(&format!("location /t/ {{ try_files $uri @n; }} location @n {{ auth_basic x; {TO} }}")),
            CLOSED,
            "seaway.dev/host:",
        ),
        (
            server(&format!(
                "location /t/ {{ try_files $uri @n; }} location @n {{ allow 10.0.0.0/8; deny all; {TO} }}"
            )),
            "source-ranges: \"10.0.0.0/8\"",
            "seaway.dev/host:",
        ),
        // Each port has its own addresses.
        (
            format!("server {{ listen 127.0.0.1:80; {tls} server_name a.b; location / {{ {TO} }} }}"),
            "listens only at loopback",
            "seaway.dev/host:",
        ),
        // An expression within a location is for its paths.
        (
            server(&format!("location /pub/ {{ {TO} location ~ \\.php$ {{ {TO} }} }}")),
            "value: \"(?:/|%2[fF])+pub(?:/|%2[fF])+(?s-u:.)*\\\\.php(?:%0[aA])?\"",
            "value: \"(?s-u:.)*\\\\.php",
        ),
        (
            server(&format!("location /pub/ {{ {TO} location ~ p.*x$ {{ {TO} }} }}")),
            "a nested location applies only within its parent",
            "p.*x",
        ),
        (
            server(&format!(
                "location / {{ {TO} location ~ \\.php$ {{ {TO} }} }} location /admin/ {{ deny all; }}"
            )),
            "a nested location applies only within its parent",
            "php",
        ),
        // Proxies that one server believes are not believed by others.
        (
            format!(
                "server {{ server_name b.example; set_real_ip_from 10.0.0.0/8; real_ip_header X-Forwarded-For; location / {{ {TO} }} }} {}",
                server(&format!("allow 192.0.2.7; deny all; location / {{ {TO} }}"))
            ),
            "source-ranges: \"192.0.2.7\"",
            "trusted",
        ),
        // What a client sends in a header that nginx would set.
        (
            server(&format!(
                "location / {{ {TO} proxy_set_header X-Real-IP $remote_addr; proxy_set_header X-User $remote_user; }}"
            )),
            "remove: [X-Real-IP, X-User]",
            CLOSED,
        ),
        // What answers comes before what forwards.
        (
            server(&format!("location / {{ return 301 https://login.example/; {TO} }}")),
            "hostname: login.example",
            "10.0.0.1:1",
        ),
        (
            server(&format!(
                "rewrite ^/a$ /b permanent; rewrite ^/c$ /d permanent; return 403; location / {{ {TO} }}"
            )),
            "Closed, requests get 403: return 403",
            "10.0.0.1:1",
        ),
        (server(&format!("return 200 ok; location / {{ {TO} }}")), CLOSED, "10.0.0.1:1"),
        // ^~ comes before expressions, unless a longer location is in it.
        (
            server(&format!(
                "location ^~ /a/ {{ {TO} }} location /a/secret/ {{ deny all; }} location ~ \\.png$ {{ {TO} }}"
            )),
            "a(?:/|%2[fF])+secret(?:/|%2[fF])+",
            "PathPrefix",
        ),
        (
            server(
                "location ^~ /a/ { proxy_pass http://10.0.0.1:1/; } location ~ png$ { proxy_pass http://10.0.0.1:1; }",
            ),
            "cannot be given precedence over the regular-expression locations",
            "PathPrefix",
        ),
        // Other spellings.
        (
            server(&format!("location ~ ^/admin/secret {{ deny all; }} location / {{ {TO} }}")),
            "value: \"(?:/|%2[fF])+admin(?:/|%2[fF])+secret(?s-u:.)*\"",
            "secret\"",
        ),
        (
            server(&format!(
                "location /adm/in/ {{ allow 10.0.0.0/8; deny all; proxy_pass http://10.0.0.1:1/; }} location / {{ {TO} }}"
            )),
            "value: \"/+adm/{2,}in(?s-u:.)*\"",
            "strip-prefix",
        ),
        (
            server(&format!(
                "location /adm {{ allow 10.0.0.0/8; deny all; proxy_pass http://10.0.0.1:1/; }} location / {{ {TO} }}"
            )),
            "value: \"/adm[^/](?s-u:.)*\"",
            "strip-prefix",
        ),
        // Names that cannot be written come to the default server.
        (
            format!(
                "server {{ listen 80 default_server; location / {{ {TO} }} }} server {{ listen 80; server_name ~^admin\\..*$; deny all; location / {{ {TO} }} }}"
            ),
            "without the access restriction of the server at",
            "seaway.dev/host:",
        ),
    ] {
        let text = printed("nginx", &of);
        assert!(text.contains(expected), "{of}: {expected} is missing:\n{text}");
        assert!(!text.contains(absent), "{of}: {absent} is there:\n{text}");
    }
    // Exact: only the address of the listener that is published elsewhere counts.
    let own = format!(
        "server {{ listen 127.0.0.1:80; listen 127.0.0.1:443 ssl; ssl_certificate /c.pem; ssl_certificate_key /k.pem; server_name a.b; location / {{ {TO} }} }}"
    );
    assert!(!printed("nginx", &own).contains(CLOSED));
    let asks = format!(
        "server {{ {tls} server_name a.b; ssl_verify_client on; ssl_client_certificate /ca.pem; location / {{ {TO} }} }}"
    );
    assert!(!imported("nginx", &asks).1.lines(false).concat().contains("does not read this directive"));
}

#[test]
fn a_break_that_ends_nothing_closes_nothing() {
    const TO: &str = "proxy_pass http://10.0.0.1:1;";
    for (lines, is_closed) in [
        (format!("location / {{ break; {TO} }}"), false),
        (format!("break; location / {{ {TO} }}"), false),
        (format!("location / {{ set $a b; break; {TO} }}"), false),
        (format!("location / {{ break; {TO} set $a b; }}"), true),
        (format!("location / {{ break; return 403; {TO} }}"), true),
        (format!("break; if ($http_x) {{ return 403; }} location / {{ {TO} }}"), true),
    ] {
        let text = printed("nginx", &server(&lines));
        assert_eq!(text.contains("255.255.255.255/32"), is_closed, "{lines}:\n{text}");
    }
}

#[test]
fn names_of_containers_are_named_with_what_to_do() {
    let of = "upstream app {\n server web:9000;\n}\nserver {\n listen 80;\n location / { proxy_pass http://app; }\n location /a { proxy_pass http://web; }\n location /b { proxy_pass http://unix:/s; }\n}";
    let (_, report) = imported("nginx", of);
    for (line, part) in [
        (2, "publish the port of the container and write 127.0.0.1:PORT"),
        (6, "none of the servers of this upstream"),
        (7, "publish the port of the container"),
        (8, "UNIX sockets are not supported"),
    ] {
        let found = report.why(line);
        assert!(found.iter().any(|it| it.1.contains(part)), "line {line}: {part}: {found:?}");
    }
    let (_, report) = imported(
        "haproxy",
        "defaults\n mode http\nfrontend f\n bind :80\n default_backend b\nbackend b\n server a web:80\n",
    );
    assert!(report.why(7).iter().any(|it| it.1.contains("publish the port of the container")));
}
