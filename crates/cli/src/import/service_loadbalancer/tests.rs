use super::*;

fn yaml(flags: &[&str], json: Option<&str>) -> String {
    let mut bank = ServiceLoadbalancerFlags::default();
    let flags: Vec<String> = flags.iter().map(|it| (*it).to_owned()).collect();
    bank.flags(&flags).expect("they are right");
    if let Some(json) = json {
        bank.json(json).expect("it is right");
    }
    bank.yaml()
}

fn keys(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.trim_start().starts_with('#') && !line.is_empty());
    lines.map(|line| line.split("  #").next().unwrap_or_default().trim_end()).collect::<Vec<_>>().join("\n")
}

#[test]
fn each_flag_has_its_key() {
    let table: [(&[&str], &str); 9] = [
        (&[], "frontDoor:\n  enabled: true"),
        (&["--http-port=8080"], "frontDoor:\n  enabled: true\n  port: 8080"),
        (
            &["--tcp-services=mysql:3306, nginxsvc:443"],
            "frontDoor:\n  enabled: true\ntcpServices:\n- mysql:3306\n- nginxsvc:443",
        ),
        (
            &["--tcp-services", "mysql:3306", "--namespace", "shop"],
            "frontDoor:\n  enabled: true\ntcpServices:\n- shop/mysql:3306",
        ),
        (
            &["--stats-port=1937"],
            "frontDoor:\n  enabled: true\nadmin:\n  listen: [\"127.0.0.1:1937\", \"[::1]:1937\"]",
        ),
        (
            &["--balance-algorithm=leastconn"],
            "frontDoor:\n  enabled: true\ndefaults:\n  balance: least-connections",
        ),
        (
            &["--error-page=file:///etc/404.html", "--default-return-code=410"],
            "frontDoor:\n  enabled: true\n  unmatched: {code: 410, page: \"/etc/404.html\"}",
        ),
        (
            &["--error-page=http://pages.example/404"],
            "frontDoor:\n  enabled: true\n  unmatched: {page: \"error-page.html\"}",
        ),
        (&["--target-service=web"], "frontDoor:\n  enabled: true\n  services: annotated"),
    ];
    for (flags, expected) in table {
        assert_eq!(keys(&yaml(flags, None)), expected, "{flags:?}");
    }
}

#[test]
fn what_has_no_counterpart_is_told() {
    let text = yaml(
        &["--use-kubernetes-cluster-service=false", "--syslog", "--v=4"],
        Some(
            r#"{"name": "haproxy", "reloadCmd": "./haproxy_reload", "template": "template.cfg", "algorithm": "source"}"#,
        ),
    );
    for part in [
        "--use-kubernetes-cluster-service=false\n#     Seaway connects to no cluster",
        "--syslog\n#     logs go to",
        "reloadCmd: \"./haproxy_reload\"\n#     Seaway needs no reload",
        "template: \"template.cfg\"\n#     Seaway has no template",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    assert!(text.contains("\n  balance: source-hash\n"), "{text}");
    let uri = yaml(&["--balance-algorithm=uri"], Some(r#"{"algorithm": "leastconn"}"#));
    assert!(
        uri.contains("--balance-algorithm=uri\n#     Seaway does not have this algorithm")
            && !uri.contains("balance:\n")
    );
}

#[test]
fn what_cannot_be_read_is_refused() {
    for flags in [
        &["mysql:3306"][..],
        &["--tcp-services=mysql"],
        &["--http-port=0"],
        &["--default-return-code=99"],
        &["--http-port"],
        &["--no-such-flag=1"],
    ] {
        let flags: Vec<String> = flags.iter().map(|it| (*it).to_owned()).collect();
        assert!(ServiceLoadbalancerFlags::default().flags(&flags).is_err(), "{flags:?}");
    }
    assert!(ServiceLoadbalancerFlags::default().json("[]").is_err());
}
