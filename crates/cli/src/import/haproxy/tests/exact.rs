//! What Seaway would do in another way than HAProxy is named, and what it would open is closed.

use super::{super::super::report::Verdict, imported, printed, web};

/// Each line of a frontend, what the output has, and what it has not.
fn differ(table: &[(&str, &str, &str)]) -> Vec<String> {
    let is_wrong = |(lines, expected, absent): &&(&str, &str, &str)| {
        let text = printed("haproxy", &web(lines));
        !text.contains(expected) || (!absent.is_empty() && text.contains(absent))
    };
    let of = |it: &(&str, &str, &str)| format!("{}:\n{}", it.0, printed("haproxy", &web(it.0)));
    table.iter().filter(is_wrong).map(of).collect()
}

#[test]
fn members_get_the_headers_that_haproxy_sends() {
    let wrong = differ(&[
        (" http-request del-header X-Forwarded-For\n option forwardfor", "path: /\n", "X-Forwarded-For"),
        (" http-request del-header X-Forwarded-For", "remove: [X-Forwarded-For]", ""),
        (
            " http-request del-header X-Forwarded-Port\n http-request set-header X-Forwarded-Port %[dst_port]",
            "path: /\n",
            "X-Forwarded-Port",
        ),
        (" option forwardfor header X-Client-IP", "remove: [X-Client-IP]", ""),
        (" option forwardfor header X-Forwarded-For", "path: /\n", "remove"),
        (
            " http-request set-header X-Forwarded-Proto https",
            "set: [{name: X-Forwarded-Proto, value: https}]",
            "",
        ),
        (" http-request set-header X-Forwarded-Proto https if { ssl_fc }", "path: /\n", "X-Forwarded-Proto"),
        (
            " http-request del-header X-A\n http-request set-header X-A b",
            "set: [{name: X-A, value: b}]",
            "remove",
        ),
        (" http-request set-header X-A b\n http-request del-header X-A", "remove: [X-A]", "set:"),
    ]);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    for (line, verdict) in [
        (" option forwardfor header X-Client-IP", Verdict::LeftOut),
        (" http-request set-header X-Forwarded-Proto %[hdr(x-proto)]", Verdict::Differs),
        (" option http-restrict-req-hdr-names delete", Verdict::LeftOut),
        (" option http-restrict-req-hdr-names reject", Verdict::Closed),
        (" filter spoe engine waf config waf.conf", Verdict::LeftOut),
        (" option httpslog", Verdict::NoEffect),
        (" .notice \"a text\"", Verdict::NoEffect),
    ] {
        let (_, report) = imported("haproxy", &web(line));
        assert!(report.why(5).iter().any(|it| it.0 == verdict), "{line}: {:?}", report.why(5));
    }
}

#[test]
fn a_closed_frontend_keeps_its_backends_and_networks() {
    let networks = " http-request deny if !{ src 10.0.0.0/8 }\n";
    let wrong = differ(&[
        (" http-request deny if { nbsrv(app) lt 1 }", "backendRefs: [{name: app", "statusCode: 302"),
        (
            &format!("{networks} http-request deny if {{ nbsrv(app) lt 1 }}"),
            "keep its networks: seaway.dev/source-ranges: 10.0.0.0/8",
            "source-ranges: \"10.0.0.0/8\"",
        ),
        (
            " use_backend api if { hdr_beg(host) img }",
            "seaway.dev/backends: \"10.0.0.2:1 name=b\"",
            "path: /\n",
        ),
        (" option httpslogs", "backendRefs: [{name: app", "path: /\n"),
    ]);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A TCP frontend with a backend of these lines.
fn tcp(lines: &str) -> String {
    format!("defaults\n mode tcp\nfrontend f\n bind :5000\n default_backend b\nbackend b\n{lines}\n")
}

#[test]
fn members_are_checked_as_haproxy_does_or_not_served() {
    let two = |one: &str, two: &str| format!(" server a 10.0.0.1:1 {one}\n server b 10.0.0.2:1 {two}");
    for (lines, expected, absent) in [
        (
            " option httpchk GET /primary\n".to_owned() + &two("check port 8008", "check port 8009"),
            "# Nothing could be translated.",
            "",
        ),
        (" option httpchk GET /primary\n".to_owned() + &two("check port 8008", "check"), "# Nothing", ""),
        (
            " option httpchk GET /primary\n".to_owned() + &two("check port 8008", "check port 8008"),
            "health-check-port: \"8008\"",
            "",
        ),
        (two("check port 8008", "check port 8009"), "type: LoadBalancer", "health-check-port"),
        (
            " option httpchk GET /healthz\n".to_owned()
                + &two("check check-ssl verify none", "check check-ssl"),
            "type: LoadBalancer",
            "health-check",
        ),
        (
            " option httpchk GET /healthz\n option ssl-hello-chk\n".to_owned() + &two("check", "check"),
            "type: LoadBalancer",
            "health-check",
        ),
    ] {
        let (folder, report) = imported("haproxy", &tcp(&lines));
        let text = folder.printed();
        assert!(text.contains(expected) && (absent.is_empty() || !text.contains(absent)), "{lines}:\n{text}");
        assert_eq!(report.is_whole(), expected.starts_with("health"), "{lines}");
    }
    let web = "defaults\n mode http\nlisten l\n bind :80\n option httpchk GET /a\n server a 10.0.0.1:1 ssl verify none check check-ssl\n";
    assert!(printed("haproxy", web).contains("health-check-path: /a"));
    let (_, report) = imported("haproxy", &tcp(&two("check on-marked-down shutdown-sessions", "check")));
    assert!(report.why(7).iter().any(|it| it.0 == Verdict::LeftOut), "{:?}", report.why(7));
}
