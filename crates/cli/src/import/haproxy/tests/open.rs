use super::{imported, printed, web};

/// Which of these configurations are open: each has to have the first text in its output, and not the second one; and none
/// ends as if all were translated.
fn open(table: &[(&str, String, &str, &str)]) -> Vec<String> {
    let is_wrong = |(_, of, expected, absent): &&(&str, String, &str, &str)| {
        let (folder, report) = imported("haproxy", of);
        let text = folder.printed();
        let is_silent = *expected == CLOSED && report.is_whole();
        !text.contains(expected) || (!absent.is_empty() && text.contains(absent)) || is_silent
    };
    table
        .iter()
        .filter(is_wrong)
        .map(|it| format!("{}:\n{}\n{}", it.0, it.1, printed("haproxy", &it.1)))
        .collect()
}

const CLOSED: &str = "Closed, requests get 403";
/// The Service that all may ask.
const OPEN: &str = "seaway.dev/path: /\n";
const NONE: &str = "# Nothing could be translated.";

/// With the backend that all lead to.
fn app(text: &str) -> String {
    format!("{text}\nbackend app\n server a 10.0.0.1:1\n")
}

#[test]
fn nothing_is_open_that_haproxy_closes() {
    let guarded = |line: &str| {
        web(line).replace("backend api\n", "backend api\n http-request deny unless { src 10.0.0.0/8 }\n")
    };
    let chain = |lines: &str| {
        format!(
            "defaults a\n mode http\ndefaults b from a\n timeout client 1s\n{lines}\nbackend app from b\n server a 10.0.0.1:1\n"
        )
    };
    let header = r#"headers: [{name: x-role, type: RegularExpression, value: "(?s-u:.)*"}]"#;
    let wrong = open(&[
        (
            "defaults from defaults",
            chain("frontend f from b\n bind :80\n http-request deny if { path_beg /admin }\n default_backend app"),
            "value: \"/admin(?s-u:.)*\"",
            "load-balancer-class",
        ),
        (
            "a listen of such defaults",
            chain("listen l from b\n bind :80\n http-request auth\n server a 10.0.0.1:1"),
            CLOSED,
            OPEN,
        ),
        ("no value", web(" http-request deny if { url_param(debug) -m found }"), CLOSED, OPEN),
        ("no value of an ACL", web(" acl q urlp(a) -m found\n http-request tarpit if q"), CLOSED, OPEN),
        ("no path", web(" http-request deny if { path -m found }"), CLOSED, OPEN),
        ("no method", web(" http-request deny if { method -m found }"), CLOSED, OPEN),
        ("a method in another way", web(" http-request deny if { method -m beg PO }"), CLOSED, OPEN),
        ("a method in small letters", web(" http-request deny if { method -i delete }"), CLOSED, OPEN),
        ("a comparison", web(" http-request deny if { ssl_fc eq 0 }"), CLOSED, OPEN),
        ("a part of a path", web(" http-request deny if { path,field(1,:) /a }"), CLOSED, OPEN),
        ("a parameter that is there twice", web(" http-request deny if { url_param(a) 1 }"), CLOSED, OPEN),
        ("a header that is there twice", web(" http-request deny if { hdr(x-role) admin }"), header, ""),
        ("a whole header", web(" http-request deny if { fhdr(x-role) admin }"), header, ""),
        (
            "use_backend by address, to one that refuses",
            web(" use_backend api if { path_beg /admin } !{ src 10.0.0.0/8 }\n use_backend app if { path_beg /admin }"),
            "value: \"/admin(?s-u:.)*\"",
            "seaway.dev/path: \"/, /admin\"",
        ),
        ("use_backend by address alone", web(" use_backend api unless { src 10.0.0.0/8 }"), CLOSED, OPEN),
        ("use_backend of a map", web(" use_backend %[req.hdr(host),map(/m)]"), CLOSED, OPEN),
        ("use_backend by the beginning of a host", guarded(" use_backend api if { hdr_beg(host) admin. }"), CLOSED, OPEN),
        (
            "the beginning of a path, to one that refuses",
            guarded(" use_backend api if { path_beg /secret- }"),
            r#"value: "/secret\\-(?s-u:.)*""#,
            "value: /secret-}",
        ),
        (
            "an expression before an exact path, to one that refuses",
            guarded(" use_backend api if { path_reg ^/ad }\n use_backend app if { path /admin }"),
            CLOSED,
            "seaway.dev/path: /admin",
        ),
        (
            "a redirect by address",
            web(" http-request redirect location https://vpn.example/ if !{ src 10.0.0.0/8 }"),
            "source-ranges: \"10.0.0.0/8\"",
            "",
        ),
        (
            "a redirect by cookie",
            web(" http-request redirect location /login unless { req.cook(sid) -m found }"),
            CLOSED,
            OPEN,
        ),
        ("a redirect that cannot be written", web(" redirect location https://a.example/?b if { path_beg /x }"), CLOSED, ""),
        (
            "an answer by address",
            web(" http-request return status 200 string closed if !{ src 10.0.0.0/8 }"),
            "source-ranges: \"10.0.0.0/8\"",
            "",
        ),
        ("another path", web(" http-request set-path /public%[path]"), CLOSED, OPEN),
        ("another destination", web(" http-request set-dst var(txn.x)"), CLOSED, OPEN),
        ("another host", web(" http-request set-header Host %[var(txn.x)]"), CLOSED, OPEN),
        ("another response", web(" http-response return status 404 if { status 200 }"), CLOSED, OPEN),
        ("responses of TCP", web(" tcp-response content reject"), CLOSED, OPEN),
        ("an action that is not known", web(" http-request unheard-of"), CLOSED, OPEN),
        ("a word that is not known", web(" reqideny ^/admin"), CLOSED, OPEN),
        ("an option that is not known", web(" option unheard-of"), CLOSED, OPEN),
        ("a filter that is not known", web(" filter lua.check"), CLOSED, OPEN),
        ("networks that are answered by HAProxy", web(" monitor-net 10.0.0.0/8"), CLOSED, OPEN),
        (
            "a server by address",
            web("").replace(" server a 10.0.0.1:1\n", " server a 10.0.0.1:1\n use-server a if { src 10.0.0.0/8 }\n"),
            CLOSED,
            OPEN,
        ),
        (
            "a list of certificates",
            app("defaults\n mode http\nfrontend f\n bind :443 ssl crt a.pem crt-list b\n default_backend app"),
            CLOSED,
            OPEN,
        ),
        (
            "https at another port",
            app("defaults\n mode http\nfrontend g\n bind :80\n default_backend app\nfrontend f\n bind :8080\n redirect scheme https if !{ ssl_fc }\n default_backend app"),
            "seaway.dev/path: /",
            "8080",
        ),
        ("TCP by address", app("frontend t\n bind :1\n use_backend x unless { src 10.0.0.0/8 }\n default_backend app"), NONE, ""),
        ("rules of HTTP in TCP", app("frontend t\n bind :1\n http-request deny\n default_backend app"), NONE, ""),
        (
            "rules of HTTP behind TCP",
            "frontend t\n bind :1\n default_backend b\nbackend b\n mode http\n http-request auth\n server a 10.0.0.1:1\n".to_owned(),
            NONE,
            "",
        ),
        ("a rule of TCP that is not known", app("frontend t\n bind :1\n tcp-request content unheard-of\n default_backend app"), NONE, ""),
        (
            "a name in TLS whose backend has no server",
            app("frontend t\n bind :443\n use_backend no if { req.ssl_sni a.b.example }\n use_backend app if { req.ssl_sni -m end .b.example }\nbackend no"),
            NONE,
            "",
        ),
        (
            "a wider name in TLS that comes first",
            app("frontend t\n bind :443\n use_backend no if { req.ssl_sni -m end .b.example }\n use_backend app if { req.ssl_sni a.b.example }\nbackend no\n tcp-request content reject"),
            NONE,
            "",
        ),
    ]);
    assert!(wrong.is_empty(), "{} are open:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn what_earlier_rules_take_is_not_asked_again() {
    let text = printed(
        "haproxy",
        &web(
            " acl is_api path_beg /api\n use_backend api if is_api\n use_backend app if { hdr(host) a.example } !is_api",
        ),
    );
    assert!(!text.contains("255.255.255.255") && text.contains("a.example/"), "{text}");
}

#[test]
fn defaults_that_are_not_there_are_refused() {
    for (text, why) in [
        ("frontend f from x\n bind :80", "file:1: from x: no defaults before it have this name"),
        ("defaults a\ndefaults a\nfrontend f from a", "file:3: from a: several defaults have this name"),
        ("defaults a from a", "file:1: from a: no defaults before it have this name"),
    ] {
        let text = crate::import::tests::text("file", text);
        let error = super::super::read_text(std::path::Path::new("/nonexistent/file"), &text).err();
        assert_eq!(error.map(|it| it.to_string()).unwrap_or_default(), why);
    }
}
