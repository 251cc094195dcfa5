use super::{imported, printed, server};

#[test]
fn what_sends_requests_elsewhere_is_closed() {
    const TO: &str = "proxy_pass http://10.0.0.1:1; proxy_set_header Host $host;";
    const CLOSED: &str = "Closed, requests get 403";
    const OPEN: &str = "seaway.dev/host: shop.example/";
    let ups = "upstream up { server 10.0.0.1:1; } upstream no { server 127.0.0.1:9; }";
    let any = format!("server {{ listen 80 default_server; server_name _; location / {{ {TO} }} }}");
    let wild = format!("server {{ listen 80; server_name *.a.example; location / {{ {TO} }} }}");
    let own = |name: &str| {
        format!(
            "server {{ listen 80; server_name {name}; allow 10.0.0.0/8; deny all; location / {{ {TO} }} }}"
        )
    };
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("known"), "proxy_buffering off;\n").expect("written");
    let here = folder.path().display();
    let table = [
        (
            "a variable that an if sets again",
            format!(
                "{ups} {}",
                server(
                    "location / { set $u up; if ($remote_addr != 10.0.0.1) { set $u no; } proxy_pass http://$u; }"
                )
            ),
            CLOSED,
            OPEN,
        ),
        (
            "a variable that is set twice",
            format!(
                "{ups} {}",
                server(
                    "location / { set $u up; set $u no; proxy_pass http://$u; proxy_set_header Host $host; }"
                )
            ),
            "127.0.0.1:9",
            "10.0.0.1:1",
        ),
        (
            "a variable that is set to what clients say",
            format!("{ups} {}", server("set $u up; location / { set $u $arg_u; proxy_pass http://$u; }")),
            CLOSED,
            OPEN,
        ),
        (
            "a variable whose name begins as another",
            format!("{ups} {}", server("set $u up; location / { proxy_pass http://$upper; }")),
            CLOSED,
            OPEN,
        ),
        (
            "a backend in an if",
            server(&format!("location / {{ if ($allowed = 0) {{ proxy_pass http://10.0.0.9:1; }} {TO} }}")),
            CLOSED,
            OPEN,
        ),
        (
            "a redirect of some paths",
            server(&format!(
                "location / {{ if ($request_uri ~ x) {{ return 302 https://x.example/; }} {TO} }}"
            )),
            CLOSED,
            OPEN,
        ),
        (
            "a redirect by host",
            server(&format!(
                "if ($host != a.example) {{ return 302 https://x.example/; }} location / {{ {TO} }}"
            )),
            CLOSED,
            OPEN,
        ),
        (
            "https in a location",
            server(&format!(
                "location / {{ if ($scheme = http) {{ return 301 https://$host$request_uri; }} {TO} }}"
            )),
            "https-redirect: \"true\"",
            "",
        ),
        (
            "files below what is forwarded",
            server(&format!("location /secret/ {{ root /srv; }} location / {{ {TO} }}")),
            CLOSED,
            "",
        ),
        (
            "a socket below what is forwarded",
            server(&format!("location /secret/ {{ proxy_pass http://unix:/s; }} location / {{ {TO} }}")),
            CLOSED,
            "",
        ),
        (
            "another spelling of a path that redirects",
            server(&format!("location /adm {{ return 302 https://sso.example/; }} location / {{ {TO} }}")),
            "(?:/|%2[fF])+(?:a|%61)(?:d|%64)",
            "",
        ),
        (
            "files that are there",
            server(&format!("location / {{ try_files $uri =404; {TO} }}")),
            CLOSED,
            OPEN,
        ),
        (
            "a directive that is not known",
            server(&format!("location / {{ testcookie on; {TO} }}")),
            CLOSED,
            OPEN,
        ),
        (
            "a name below a wildcard",
            format!("{} {wild}", own("b_1.a.example")),
            CLOSED,
            "seaway.dev/host: \"*.a.example/\"",
        ),
        (
            "a wildcard below a wildcard",
            format!("{} {wild}", own("*.b_1.a.example")),
            CLOSED,
            "seaway.dev/host: \"*.a.example/\"",
        ),
        (
            "localhost beside the default server",
            format!("{any} {}", own("localhost")),
            "seaway.dev/host: localhost/",
            CLOSED,
        ),
        ("no name beside the default server", format!("{any} {}", own("_")), CLOSED, "seaway.dev/path: /\n"),
        (
            "a folder that is not here",
            server(&format!("location / {{ include /nonexistent/*.conf; {TO} }}")),
            CLOSED,
            OPEN,
        ),
        (
            "a folder that is not here, of a server",
            server(&format!("include /nonexistent/*.conf; location / {{ {TO} }}")),
            CLOSED,
            OPEN,
        ),
        (
            "a file with the end of a known name",
            server(&format!("location / {{ include /nonexistent/no-mime.types; {TO} }}")),
            CLOSED,
            OPEN,
        ),
        (
            "a file that is here",
            server(&format!("location / {{ include {here}/kno*; include {here}/none*; {TO} }}")),
            OPEN,
            CLOSED,
        ),
        (
            "folders of servers",
            format!("http {{ include /nonexistent/*.conf; {} }}", server(&format!("location / {{ {TO} }}"))),
            OPEN,
            CLOSED,
        ),
        (
            "a line feed at the end",
            server(&format!("location ~ \\.php$ {{ deny all; }} location / {{ {TO} }}")),
            r"\\.php(?:%0[aA])?",
            "",
        ),
        (
            "a zero byte",
            server(&format!("location ~ \\.php$ {{ deny all; }} location / {{ {TO} }}")),
            "%(?:0[0aA]|",
            "",
        ),
        (
            "https at another port",
            format!(
                "{any} server {{ listen 8080; server_name b.example; if ($scheme = http) {{ return 301 https://$host$request_uri; }} location / {{ {TO} }} }}"
            ),
            "seaway.dev/path: /",
            "8080",
        ),
    ];
    let is_wrong = |(_, of, expected, absent): &&(&str, String, &str, &str)| {
        let (folder, report) = imported("nginx", of);
        let text = folder.printed();
        let is_silent = *expected == CLOSED && report.is_whole();
        !text.contains(expected) || (!absent.is_empty() && text.contains(absent)) || is_silent
    };
    let wrong: Vec<String> = table
        .iter()
        .filter(is_wrong)
        .map(|it| format!("{}:\n{}\n{}", it.0, it.1, printed("nginx", &it.1)))
        .collect();
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
}
