mod exact;
mod open;

use super::super::{
    report::Verdict,
    tests::{imported, printed},
};

/// A frontend with these lines, and two backends.
fn web(lines: &str) -> String {
    format!(
        "defaults\n mode http\nfrontend web\n bind :80\n{lines}\n default_backend app\nbackend app\n server a 10.0.0.1:1\nbackend api\n server b 10.0.0.2:1\n"
    )
}

#[test]
fn each_condition_has_its_counterpart() {
    for (lines, expected) in [
        ("", "seaway.dev/path: /\n"),
        (" use_backend api if { hdr(host) -i api.example }", "seaway.dev/host: api.example/\n"),
        (" use_backend api if { hdr_end(host) -i .api.example }", "host: \"*.api.example/\""),
        (
            " acl is_api hdr(host) -i a.example\n acl is_api hdr(host) -i b.example\n use_backend api if is_api",
            "host: \"a.example/, b.example/\"",
        ),
        (" use_backend api if { path_beg /api }", "seaway.dev/path: /api\n"),
        (" use_backend api if { path -m beg /api }", "seaway.dev/path: /api\n"),
        (" use_backend api if { path /a /b }", "type: Exact, value: /b"),
        (" use_backend api if { path_reg ^/v[0-9]+/ }", "value: \"/v[0-9]+/(?s-u:.)*\""),
        (" use_backend api if { path_end -i .png }", "value: \"(?i:(?s-u:.)*\\\\.png)\""),
        (" use_backend api if { method POST }", "method: POST"),
        (" use_backend api if { hdr(x-v) 2 }", "headers: [{name: x-v, value: \"2\"}]"),
        (" use_backend api if { url_param(v) 2 }", "queryParams: [{name: v, value: \"2\"}]"),
        (
            " use_backend api if { path_beg /api } || { hdr(host) a.example }",
            "seaway.dev/host: \"a.example/api, a.example/\"",
        ),
        (" http-request deny if { path_beg /adm } !{ src 10.0.0.0/8 }", "source-ranges: \"10.0.0.0/8\""),
        (" http-request deny unless { src 10.0.0.0/8 }", "source-ranges: \"10.0.0.0/8\""),
        (" acl own src 10.0.0.0/8\n http-request deny if ! own", "source-ranges: \"10.0.0.0/8\""),
        (" http-request deny if ! { src 10.0.0.0/8 }", "source-ranges: \"10.0.0.0/8\""),
        (" http-request allow if { src 10.0.0.0/8 }\n http-request deny", "source-ranges: \"10.0.0.0/8\""),
        (" redirect location /b code 301 if { path /a }", "replaceFullPath: /b"),
        (
            " redirect prefix https://b.example if { hdr(host) a.example }",
            "hostname: b.example, scheme: https, statusCode: 302",
        ),
        (" redirect scheme https code 301 if !{ ssl_fc }", "scheme: https, statusCode: 301"),
        (" http-request set-header X-A b", "set: [{name: X-A, value: b}]"),
    ] {
        let text = printed("haproxy", &web(lines));
        assert!(text.contains(expected), "{lines}: {expected} is missing:\n{text}");
    }
}

#[test]
fn the_first_rule_counts_even_where_a_later_one_is_more_exact() {
    let text = printed(
        "haproxy",
        &web(
            " use_backend api if { path_beg /api }\n use_backend app if { path_beg /api/v2 }\n use_backend app if { hdr(host) a.example }",
        ),
    );
    // `/api` of every host, and of the one that has rules of its own; nothing of `/api/v2`.
    assert!(
        text.contains("seaway.dev/host: a.example/api\n") && text.contains("seaway.dev/path: /api\n"),
        "{text}"
    );
    assert!(!text.contains("/api/v2"), "{text}");
    let denied = printed(
        "haproxy",
        &web(" http-request deny if { path_beg /adm }\n use_backend api if { hdr(host) a.example }"),
    );
    let closed = denied.matches("Closed, requests get 403").count();
    assert!(closed == 2 && denied.contains("hostnames: [a.example]"), "{denied}");
}

#[test]
fn what_protects_and_cannot_be_translated_closes_its_routes() {
    for lines in [
        " http-request deny if { src 10.0.0.1 }",
        " http-request auth unless { http_auth(users) }",
        " http-request deny if { sc_http_req_rate(0) gt 10 }",
        " http-request deny if !{ path_beg /a }",
        " http-request tarpit if { hdr_sub(user-agent) bot }",
        " http-request silent-drop if { path_reg ^/x }",
        " http-request lua.check",
        " http-request return status 403 if { path /a }",
        " http-response deny if { res.hdr(x) y }",
        " tcp-request connection reject if { src_conn_rate gt 3 }",
        " rate-limit sessions 10",
    ] {
        let text = printed("haproxy", &web(lines));
        assert!(text.contains("255.255.255.255/32"), "{lines} does not close:\n{text}");
    }
    for (of, why) in [
        (
            "defaults\n mode http\nfrontend a\n bind :443 ssl crt /nowhere/\n default_backend b\nbackend b\n server a 10.0.0.1:1\n",
            "this frontend has no certificate",
        ),
        (
            "defaults\n mode http\nfrontend a\n bind :80 accept-proxy\n default_backend b\nbackend b\n server a 10.0.0.1:1\n",
            "takes no PROXY protocol",
        ),
    ] {
        assert!(printed("haproxy", of).contains(why), "{of}");
    }
    // More than can be written closes all.
    let many: String = (0..300).map(|it| format!(" /secret{it}")).collect();
    let text = printed("haproxy", &web(&format!(" http-request deny if {{ path{many} }}")));
    assert!(text.contains("255.255.255.255/32") && !text.contains("value: /secret"), "{text}");
    // A listener of TCP that refuses by more than networks is not opened.
    let tcp = "frontend a\n bind :1\n tcp-request connection reject if { src_conn_rate gt 3 }\n default_backend b\nbackend b\n server a 10.0.0.1:1\n";
    assert_eq!(printed("haproxy", tcp), "# Nothing could be translated.");
}

#[test]
fn servers_and_their_checks_are_a_service() {
    for (lines, expected) in [
        (" server a 10.0.0.1:1 weight 3 backup", "\"10.0.0.1:1 name=a weight=3 backup\""),
        (" server a 10.0.0.1:1 disabled\n server b 10.0.0.2:1", "\"10.0.0.2:1 name=b\""),
        (" balance leastconn\n server a 10.0.0.1:1", "balance: least-connections"),
        (" cookie S prefix\n server a 10.0.0.1:1 cookie a", "sticky-cookie-mode: rewrite"),
        (" stick on src\n server a 10.0.0.1:1", "sessionAffinity: ClientIP"),
        (" option httpchk GET /h\n server a 10.0.0.1:1 check inter 3s fall 4", "health-check-path: /h"),
        (
            " option httpchk\n http-check send meth GET uri /h hdr Host a.example\n server a 10.0.0.1:1",
            "health-check-host: a.example",
        ),
        (" server a 10.0.0.1:1 check inter 2000 rise 3", "health-check-interval: \"2s\""),
        (" server a 10.0.0.1:1 ssl verify none sni str(a.example)", "backend-tls-name: a.example"),
        (" server a 10.0.0.1:1 send-proxy-v2", "proxy-protocol: v2"),
        (" server a 10.0.0.1:1 proto h2", "appProtocol: h2c"),
        (" timeout server 5m\n server a 10.0.0.1:1", "timeout-answer: \"5m\""),
        (" server a 10.0.0.1:1 maxconn 30", "max-connections-per-member: \"30\""),
        (" timeout queue 2s\n server a 10.0.0.1:1 maxconn 30", "queue-timeout: \"2s\""),
    ] {
        let of = format!(
            "defaults\n mode http\nfrontend web\n bind :80\n default_backend app\nbackend app\n{lines}\n"
        );
        let text = printed("haproxy", &of);
        assert!(text.contains(expected), "{lines}: {expected} is missing:\n{text}");
    }
}

#[test]
fn what_is_not_translated_is_reported_with_its_line() {
    let (_, report) = imported(
        "haproxy",
        &web(
            " compression algo gzip\n use_backend api if { src 10.0.0.1 }\n unheard of\n http-request set-path /x",
        ),
    );
    for (line, verdict, part) in [
        (5, Verdict::LeftOut, "seaway.dev/compress: gzip"),
        (6, Verdict::Closed, "does not route by the client's address"),
        (7, Verdict::Closed, "does not know this line"),
        (8, Verdict::Closed, "replaces a prefix"),
    ] {
        let told = report.why(line);
        assert!(told.iter().any(|(of, why)| *of == verdict && why.contains(part)), "line {line}: {told:?}");
    }
}

#[test]
fn networks_that_may_ask_are_those_of_the_original() {
    for (lines, expected) in [
        (
            " acl lan src 10.0.0.0/8\n acl vpn src 192.168.0.0/16\n http-request deny if !lan !vpn",
            "source-ranges: \"10.0.0.0/8, 192.168.0.0/16\"",
        ),
        (
            " http-request deny if !{ src 10.0.0.0/8 }\n http-request deny if !{ src 10.1.0.0/16 }",
            "source-ranges: \"10.1.0.0/16\"",
        ),
        (
            " http-request deny if !{ src 10.0.0.0/8 }\n http-request deny if !{ src 192.168.0.0/16 }",
            "source-ranges: \"255.255.255.255/32\"",
        ),
    ] {
        let text = printed("haproxy", &web(lines));
        assert!(text.contains(expected), "{lines}: {expected} is missing:\n{text}");
    }
}

#[test]
fn conditions_that_are_not_of_the_path_alone_close_what_they_protect() {
    for lines in [" http-request deny if { url_sub debug= }", " http-request deny if { url_beg /a?b }"] {
        let text = printed("haproxy", &web(lines));
        assert!(
            text.contains("255.255.255.255/32") && text.contains("PathPrefix, value: /}"),
            "{lines}:\n{text}"
        );
    }
    let text = printed("haproxy", &web(" http-request deny if { url_beg /adm }"));
    assert!(text.contains("/adm"), "{text}");
}

/// A configuration without the sections that do not matter.
fn with_app(text: &str) -> String {
    printed("haproxy", &format!("{text}\nbackend app\n server a 10.0.0.1:1\n"))
}

#[test]
fn tcp_rules_admit_whom_the_original_admits() {
    let first = "10.0.0.0/8";
    for (of, expected) in [
        (
            format!(" tcp-request connection reject if !{{ src {first} }} !{{ src 192.168.0.0/16 }}"),
            "\"10.0.0.0/8, 192.168.0.0/16\"",
        ),
        (
            format!(
                " tcp-request connection reject if !{{ src {first} }}\n tcp-request content reject if !{{ src 10.1.0.0/16 }}"
            ),
            "source-ranges: \"10.1.0.0/16\"",
        ),
        (
            format!(" tcp-request connection accept if {{ src {first} }}\n tcp-request connection reject"),
            "source-ranges: \"10.0.0.0/8\"",
        ),
        // What one set of rules accepts has to pass the others.
        (
            format!(" tcp-request connection accept if {{ src {first} }}\n tcp-request content reject"),
            "# Nothing could be translated.",
        ),
        (
            format!(
                " tcp-request content reject if !{{ src {first} }}\n tcp-request content reject if !{{ src 192.168.0.0/16 }}"
            ),
            "# Nothing could be translated.",
        ),
        (
            format!(
                " tcp-request connection set-src hdr(x)\n tcp-request content reject if !{{ src {first} }}"
            ),
            "# Nothing could be translated.",
        ),
    ] {
        let text = with_app(&format!("frontend t\n bind :1\n{of}\n default_backend app"));
        assert!(text.contains(expected), "{of}: {expected} is missing:\n{text}");
    }
    let limited = with_app("frontend t\n bind :1\n rate-limit sessions 9\n default_backend app");
    assert!(limited.contains("# Nothing could be translated."), "{limited}");
    // Rules of a backend, and of the defaults.
    let rule = "tcp-request content reject if !{ src 10.1.0.0/16 }";
    for text in [
        format!("frontend t\n bind :1\n default_backend b\nbackend b\n {rule}\n server a 10.0.0.1:1\n"),
        format!(
            "defaults\n {rule}\nfrontend t\n bind :1\n default_backend b\nbackend b\n server a 10.0.0.1:1\n"
        ),
    ] {
        let text = printed("haproxy", &text);
        assert!(text.contains("source-ranges: \"10.1.0.0/16\""), "{text}");
    }
}

#[test]
fn rules_of_the_defaults_are_rules_of_all_that_have_them() {
    let text = with_app(
        "defaults base\n mode http\n http-request deny if { path_beg /admin }\n http-request deny if !{ src 10.0.0.0/8 }\n http-request del-header X-User\nfrontend f from base\n bind :80\n default_backend app",
    );
    assert!(text.contains("255.255.255.255/32") && text.contains("\"10.0.0.0/8\""), "{text}");
    assert!(text.contains("remove: [X-User]"), "{text}");
}

#[test]
fn what_tcp_accepts_is_not_exempt_from_rules_of_http() {
    let text = printed(
        "haproxy",
        &web(
            " tcp-request connection accept if { src 10.0.0.0/8 }\n http-request deny if { path_beg /admin }",
        ),
    );
    assert!(text.contains("255.255.255.255/32") && !text.contains("10.0.0.0/8"), "{text}");
}

#[test]
fn an_address_or_an_interface_of_a_bind_is_not_passed_over() {
    for binds in [
        " bind 127.0.0.1:80\n bind *:443 ssl crt a.pem",
        " bind 10.0.0.5:80\n bind 192.0.2.5:443 ssl crt a.pem",
        " bind *:80 interface eth1",
        " bind *:80 namespace ns",
        " bind *:443 ssl crt a.pem crl-file b.pem",
        " bind *:80 unheard-of",
    ] {
        let text = with_app(&format!("defaults\n mode http\nfrontend f\n{binds}\n default_backend app"));
        assert!(text.contains("255.255.255.255/32"), "{binds} is open:\n{text}");
    }
    for binds in [
        " bind 127.0.0.1:80\n bind 127.0.0.1:443 ssl crt a.pem",
        " bind *:80 name web maxconn 5 tfo\n bind :443 ssl crt a.pem alpn h2 strict-sni curves X25519",
    ] {
        let text = with_app(&format!("defaults\n mode http\nfrontend f\n{binds}\n default_backend app"));
        assert!(!text.contains("255.255.255.255/32"), "{binds} is closed:\n{text}");
    }
    for text in [
        "frontend t\n bind :1 interface eth1\n default_backend app",
        "defaults\n mode http\nfrontend g\n bind :80\n http-request return status 200\nfrontend f\n bind :8080 interface eth1\n default_backend app",
    ] {
        let text = with_app(text);
        assert!(!text.contains("8080") && !text.contains("load-balancer-class"), "{text}");
    }
}

#[test]
fn what_is_compared_after_it_was_changed_is_closed() {
    for lines in [
        " http-request set-src hdr(x-real-ip)\n http-request deny if !{ src 10.0.0.0/8 }",
        " http-request normalize-uri path-merge-slashes\n http-request deny if { path_beg /admin }",
        " http-request set-path /a\n http-request deny if { path /a }",
        " http-request set-header Host a.example\n http-request deny if { hdr(host) a.example }",
    ] {
        let text = printed("haproxy", &web(lines));
        assert!(text.contains("255.255.255.255/32"), "{lines} is open:\n{text}");
        assert!(!text.contains("seaway.dev/path: /\n") && !text.contains("10.0.0.0/8"), "{lines}:\n{text}");
    }
}

#[test]
fn a_header_that_the_proxy_sets_is_not_taken_from_clients() {
    for line in [
        "set-header X-Client-CN %[ssl_c_s_dn(cn)]",
        "set-header X-Client-CN yes if { path_beg /a }",
        "del-header X-Client-CN if { path_beg /a }",
    ] {
        let text = printed("haproxy", &web(&format!(" http-request {line}")));
        assert!(text.contains("remove: [X-Client-CN]"), "{line}:\n{text}");
    }
}

#[test]
fn an_address_beside_the_name_of_a_section_is_named() {
    for head in ["frontend web *:80", "listen web 0.0.0.0:80", "listen *:80"] {
        let (_, report) =
            imported("haproxy", &format!("defaults\n mode http\n{head}\n server a 10.0.0.1:1\n"));
        let found = report.why(3);
        assert!(
            found.iter().any(|it| it.0 == Verdict::LeftOut && it.1.contains("as a bind line")),
            "{head}: {found:?}"
        );
    }
    let (_, report) = imported("haproxy", "defaults d\n mode http\nfrontend web from d\n bind :80\n");
    assert!(report.why(3).iter().all(|it| it.0 != Verdict::LeftOut), "{:?}", report.why(3));
}
