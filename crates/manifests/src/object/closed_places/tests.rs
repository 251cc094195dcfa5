use super::*;

const RANGES: &str = "seaway.dev/source-ranges: 10.0.0.0/8";

fn places(text: &str) -> Option<String> {
    closed_places(text).map(|it| it.listed())
}

#[test]
fn a_text_that_protects_says_its_places_in_whatever_style_it_is_written() {
    let service = |annotations: &str| {
        format!("apiVersion: v1\nkind: Service\nmetadata:\n\tname: a\n  annotations:\n    {annotations}\n")
    };
    let route =
        |spec: &str| format!("kind: HTTPRoute\nmetadata:\n  annotations:\n    {RANGES}\nspec:\n  {spec}\n");
    for (text, expected) in [
        (service(&format!("seaway.dev/host: shop.example/admin\n    {RANGES}")), "shop.example/admin"),
        (service(&format!("{RANGES}\n    seaway.dev/host: \"http://shop.example/admin")), "shop.example/admin"),
        (service(&format!("seaway.dev/host: a.example,b.example/x # y\n    {RANGES}")), "a.example/, b.example/x"),
        (service(&format!("seaway.dev/hosts: a.example/x\n    {RANGES}")), "a.example/x"),
        (service(&format!("seaway.dev/path: /admin\n    {RANGES}")), "/admin"),
        (
            format!("metadata: {{annotations: {{seaway.dev/host: shop.example/admin, {RANGES}}}}}\nspec: ["),
            "shop.example/admin",
        ),
        (
            r#"{"annotations": {"seaway.dev/host": "shop.example/admin", "seaway.dev/basic-auth": "u"},"#.to_owned(),
            "shop.example/admin",
        ),
        (route("hostnames: [shop.example, '*.b.example']\n  path: {value: /admin}"), "shop.example/admin, *.b.example/admin"),
        (
            route("hostnames:\n  - shop.example\n  - \"b.example\"\n  rules:\n  - matches:\n    - path:\n        value: /admin"),
            "b.example/admin, shop.example/admin",
        ),
        (route("hostnames: [shop.example]"), "shop.example/"),
        (
            "kind: Ingress\nmetadata:\n  annotations:\n    nginx.ingress.kubernetes.io/whitelist-source-range: 10.0.0.0/8\nspec:\n  rules:\n  \
             - host: shop.example\n    http:\n      paths:\n      - path: /admin\n"
                .to_owned(),
            "shop.example/admin",
        ),
        (
            "kind: IngressRoute\n  - match: Host(`shop.example`) && PathPrefix(`/admin`)\n    middlewares: [{name: allow}]\n".to_owned(),
            "shop.example/admin",
        ),
        (service(&format!("seaway.dev/host: {{{{ .Values.host }}}}\n    {RANGES}")), ""),
    ] {
        assert_eq!(places(&text).as_deref(), Some(expected), "{text}");
    }
}

#[test]
fn what_protects_nothing_or_is_a_comment_closes_nothing() {
    for text in [
        "seaway.dev/host: shop.example/admin\n\tname: a\n".to_owned(),
        format!("seaway.dev/host: shop.example/admin\n# {RANGES}\n"),
        "a: [".to_owned(),
    ] {
        assert_eq!(places(&text), None, "{text}");
    }
    assert_eq!(places(&format!("# seaway.dev/host: shop.example\n{RANGES}\n")).as_deref(), Some(""));
}

#[test]
fn a_huge_text_names_no_more_places_than_a_person_writes() {
    let hosts: Vec<String> = (0..100_000).map(|it| format!("h{it}.example")).collect();
    let paths: String = (0..10_000).map(|it| format!("    value: /p{it}\n")).collect();
    let text = format!("{RANGES}\nhostnames: [{}]\n{paths}", hosts.join(", "));
    let facts = closed_places(&text).expect("it protects").facts("a.yaml:1");
    let count = |fact: &Fact| match fact {
        Fact::HttpRoute(it) => it.hosts.len() * it.rules[0].matches.len(),
        _ => 0,
    };
    assert_eq!(facts.iter().map(count).sum::<usize>(), MOST * MOST);
}
