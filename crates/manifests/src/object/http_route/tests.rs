use super::*;
use crate::object::tests::{facts, faults};
use seaway_model::load_balancer::{Cors, Filter, HeaderChange, Origin, Redirect, TextMatch};

fn text(spec: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: shop}}\nspec:\n{spec}"
    )
}

fn route(spec: &str) -> HttpRoute {
    match facts(&text(spec)).remove(0) {
        Fact::HttpRoute(route) => Arc::unwrap_or_clone(route),
        other => panic!("{other:?}"),
    }
}

/// The only rule, from its fields.
fn rule_of(fields: &str) -> RouteRule {
    let mut rules = route(&format!("  rules:\n  - {}\n", fields.replace('\n', "\n    "))).rules;
    assert_eq!(rules.len(), 1);
    rules.remove(0)
}

fn prefix(path: &str) -> Match {
    Match { path: Some(PathMatch::Prefix(path.into())), ..Match::default() }
}

#[test]
fn a_route_gets_the_defaults_of_an_api_server() {
    let empty = route("  parentRefs: [{name: any}]\n");
    assert_eq!((empty.hosts.len(), empty.rules.len()), (0, 1));
    assert_eq!(empty.rules[0].matches, [prefix("/")]);
    let plain = rule_of("backendRefs: [{name: web, port: 80}]");
    assert_eq!(plain.matches, [prefix("/")]);
    let Action::Forward(backends) = &plain.action else { panic!("{plain:?}") };
    let (to, weight) = &backends[0];
    assert_eq!((to.namespace.as_str(), to.service.as_str(), to.port, *weight), ("default", "web", 80, 1));
    assert_eq!(to.field.as_str(), "spec.rules[0].backendRefs[0]");
    assert_eq!(rule_of("matches: [{method: GET}]").matches[0].path, Some(PathMatch::Prefix("/".into())));
    assert_eq!(rule_of("matches: [{path: {value: /a}}]").matches, [prefix("/a")]);
}

#[test]
fn parents_are_gateways_of_its_own_namespace_unless_they_say_otherwise() {
    let refs = "  parentRefs:\n  - {name: near}\n  - {name: far, namespace: infra, sectionName: http}\n  - {name: mesh, group: \"\", \
                kind: Service}\n";
    let named: Vec<String> =
        route(refs).parents.iter().map(|it| format!("{}/{}", it.namespace, it.name)).collect();
    assert_eq!(named, ["default/near", "infra/far"]);
    assert_eq!(route("  hostnames: [shop.example]\n").parents, []);
}

#[test]
fn all_that_a_request_must_be_is_read() {
    let spec = "  hostnames: [shop.example, '*.eu.example']\n  rules: []\n";
    assert_eq!(
        faults(&text(spec)),
        ["6 spec.rules: Invalid value: 0: spec.rules in body should have at least 1 items"]
    );
    let hosts = route("  hostnames: [shop.example, '*.eu.example']\n").hosts;
    assert_eq!(hosts, [HostPattern::Exact("shop.example".into()), HostPattern::Under("eu.example".into())]);
    let rule = rule_of(
        "matches:\n- path: {type: Exact, value: /a}\n  method: POST\n  headers: [{name: X-A, value: b}, {name: x-a, value: later}]\n  \
         queryParams: [{type: RegularExpression, name: q, value: '^b+$'}]\n- path: {type: RegularExpression, value: '/b.*'}",
    );
    assert_eq!(
        rule.matches,
        [
            Match {
                path: Some(PathMatch::Exact("/a".into())),
                method: Some("POST".into()),
                headers: vec![("X-A".into(), TextMatch::Exact("b".into()))],
                query: vec![("q".into(), TextMatch::Regex("^b+$".into()))],
            },
            Match { path: Some(PathMatch::Regex("/b.*".into())), ..Match::default() },
        ]
    );
}

#[test]
fn all_filters_of_the_standard_channel_are_read() {
    let rule = rule_of(
        "filters:\n- type: RequestHeaderModifier\n  requestHeaderModifier: {set: [{name: a, value: b}], add: [{name: c, value: d}], remove: [e]}\n\
         - type: ResponseHeaderModifier\n  responseHeaderModifier: {remove: [Server]}\n\
         - type: URLRewrite\n  urlRewrite: {hostname: inner.example, path: {type: ReplacePrefixMatch, replacePrefixMatch: new}}\n\
         - type: RequestMirror\n  requestMirror: {backendRef: {name: copy, port: 81}, fraction: {numerator: 1, denominator: 8}}\n\
         - type: RequestMirror\n  requestMirror: {backendRef: {name: copy, port: 82}, percent: 3}\n\
         - type: CORS\n  cors: {allowOrigins: ['https://*.shop.example:8443', 'http://*'], allowMethods: [GET], allowHeaders: ['*'], allowCredentials: true, maxAge: 60}",
    );
    let pair = |name: &str, value: &str| (Name::from(name), Name::from(value));
    let change =
        HeaderChange { set: vec![pair("a", "b")], add: vec![pair("c", "d")], remove: vec!["e".into()] };
    let origin =
        |host: Option<HostPattern>, scheme: &str, port| Origin::Like { scheme: scheme.into(), host, port };
    let told = |filter: &Filter<seaway_model::fact::BackendRef>| match filter {
        Filter::Mirror { to, per_mille } => format!("{}:{} {per_mille}", to.service, to.port),
        other => format!("{other:?}"),
    };
    assert_eq!(rule.filters[0], Filter::RequestHeaders(change));
    assert_eq!(
        rule.filters[1],
        Filter::ResponseHeaders(HeaderChange { remove: vec!["Server".into()], ..HeaderChange::default() })
    );
    assert_eq!(rule.filters[2], Filter::RewriteHost("inner.example".into()));
    assert_eq!(rule.filters[3], Filter::RewritePrefix("/new".into()));
    assert_eq!((told(&rule.filters[4]), told(&rule.filters[5])), ("copy:81 125".into(), "copy:82 30".into()));
    assert_eq!(
        rule.filters[6],
        Filter::Cors(Cors {
            origins: vec![
                origin(Some(HostPattern::Under("shop.example".into())), "https", Some(8443)),
                origin(None, "http", None)
            ],
            credentials: true,
            methods: vec!["GET".into()],
            headers: vec!["*".into()],
            expose: Vec::new(),
            max_age: Duration::from_secs(60),
        })
    );
}

#[test]
fn a_redirect_is_what_a_rule_does_instead_of_leading_anywhere() {
    let rule = rule_of(
        "matches: [{path: {value: /old}}]\nfilters: [{type: RequestRedirect, requestRedirect: {scheme: https, port: 8443, \
         statusCode: 301, path: {type: ReplacePrefixMatch, replacePrefixMatch: /new}}}]",
    );
    let expected = Redirect {
        scheme: Some("https".into()),
        host: None,
        port: Some(8443),
        path: Some(PathMatch::Prefix("/new".into())),
        code: 301,
    };
    assert_eq!(rule.action, Action::Redirect(expected));
    let usual = rule_of("filters: [{type: RequestRedirect, requestRedirect: {hostname: a.example}}]");
    let Action::Redirect(redirect) = usual.action else { panic!("{usual:?}") };
    assert_eq!((redirect.code, redirect.host.as_deref()), (302, Some("a.example")));
}

#[test]
fn times_and_attempts_are_read_and_zero_is_no_limit() {
    let rule = rule_of("timeouts: {request: 1m, backendRequest: 500ms}\nretry: {attempts: 3}");
    assert_eq!(
        (rule.timeout, rule.attempt_timeout, rule.retries),
        (Some(Duration::from_secs(60)), Some(Duration::from_millis(500)), Some(3))
    );
    assert_eq!(rule_of("timeouts: {request: 0s, backendRequest: 5s}").timeout, None);
}

#[test]
fn what_is_valid_and_not_understood_is_noted_and_spoils_nothing_here() {
    let table = [
        (
            "filters: [{type: ExtensionRef, extensionRef: {group: a.example, kind: Foo, name: bar}}]",
            "spec.rules[0].filters[0]",
        ),
        ("filters: [{type: ExternalAuth, externalAuth: {protocol: HTTP}}]", "spec.rules[0].filters[0]"),
        ("backendRefs: [{name: web, group: a.example, kind: Bucket}]", "spec.rules[0].backendRefs[0].kind"),
        (
            "backendRefs: [{name: web, port: 80, filters: [{type: URLRewrite, urlRewrite: {}}]}]",
            "spec.rules[0].backendRefs[0].filters",
        ),
        ("retry: {codes: [503]}", "spec.rules[0].retry.codes"),
        ("retry: {backoff: 1s}", "spec.rules[0].retry.backoff"),
        ("sessionPersistence: {type: Cookie}", "spec.rules[0].sessionPersistence"),
        // Without these, a rule would take more requests than it was meant to.
        ("match: [{path: {value: /only}}]", "spec.rules[0].match"),
        ("filter: [{type: URLRewrite}]", "spec.rules[0].filter"),
        ("matches: [{paths: {value: /only}}]", "spec.rules[0].matches[0].paths"),
        ("matches: [{header: [{name: x-token, value: a}]}]", "spec.rules[0].matches[0].header"),
        ("matches: [{path: {valeu: /only}}]", "spec.rules[0].matches[0].path.valeu"),
    ];
    for (fields, field) in table {
        let rule = rule_of(fields);
        assert_eq!(rule.matches, [prefix("/")], "{fields}: the rule answers there");
        let noted: Vec<Name> = rule.unsupported.into_iter().map(|it| it.field).collect();
        assert_eq!(noted, [Name::from(field)], "{fields}");
    }
}

#[test]
fn each_fault_of_a_rule_is_told_in_the_words_of_the_api_server() {
    let kinds = "when type one of ['Exact', 'PathPrefix']";
    let backend = "backendRefs: [{name: web, port: 80}]";
    let table: &[(&str, &[&str])] = &[
        (
            "matches: [{path: {value: shop}}]",
            &[&format!(
                "spec.rules[0].matches[0].path: Invalid value: \"object\": value must be an absolute path and start with '/' {kinds}"
            )],
        ),
        (
            "matches: [{path: {type: Exact, value: /a//b}}]",
            &[&format!(
                "spec.rules[0].matches[0].path: Invalid value: \"object\": must not contain '//' {kinds}"
            )],
        ),
        (
            "matches: [{path: {type: Suffix, value: /a}}]",
            &[
                "spec.rules[0].matches[0].path.type: Unsupported value: \"Suffix\": supported values: \"Exact\", \"PathPrefix\", \"RegularExpression\"",
            ],
        ),
        (
            "matches: [{method: get}]",
            &[
                "spec.rules[0].matches[0].method: Unsupported value: \"get\": supported values: \"GET\", \"HEAD\", \"POST\", \"PUT\", \"DELETE\", \"CONNECT\", \"OPTIONS\", \"TRACE\", \"PATCH\"",
            ],
        ),
        (
            "matches: [{headers: [{name: 'a b', value: c}]}]",
            &[
                "spec.rules[0].matches[0].headers[0].name: Invalid value: \"a b\": spec.rules[0].matches[0].headers[0].name in body should match '^[A-Za-z0-9!#$%&'*+\\-.^_\\x60|~]+$'",
            ],
        ),
        (
            "matches: [{headers: [{name: a, value: b}, {name: a, value: c}]}]",
            &["spec.rules[0].matches[0].headers[1]: Duplicate value: {\"name\":\"a\"}"],
        ),
        ("backendRefs: [{port: 80}]", &["spec.rules[0].backendRefs[0].name: Required value"]),
        (
            "backendRefs: [{name: web}]",
            &[
                "spec.rules[0].backendRefs[0]: Invalid value: \"object\": Must have port for Service reference",
            ],
        ),
        (
            "backendRefs: [{name: web, port: 80, weight: -1}]",
            &[
                "spec.rules[0].backendRefs[0].weight: Invalid value: -1: must be between 0 and 1000000, inclusive",
            ],
        ),
        ("filters: [{urlRewrite: {}}]", &["spec.rules[0].filters[0].type: Required value"]),
        (
            "filters: [{type: CORS}]",
            &[
                "spec.rules[0].filters[0]: Invalid value: \"object\": filter.cors must be specified for CORS filter.type",
            ],
        ),
        (
            "filters: [{type: CORS, cors: {}, urlRewrite: {}}]",
            &[
                "spec.rules[0].filters[0]: Invalid value: \"object\": filter.urlRewrite must be nil if the filter.type is not URLRewrite",
            ],
        ),
        (
            "filters: [{type: CORS, cors: {}}, {type: CORS, cors: {}}]",
            &["spec.rules[0].filters: Invalid value: \"object\": CORS filter cannot be repeated"],
        ),
        (
            "filters: [{type: CORS, cors: {allowOrigins: [shop.example]}}]",
            &[
                "spec.rules[0].filters[0].cors.allowOrigins[0]: Invalid value: \"shop.example\": spec.rules[0].filters[0].cors.allowOrigins[0] in body should match '(^\\*$)|(^(http(s)?):\\/\\/(((\\*\\.)?([a-zA-Z0-9\\-]+\\.)*[a-zA-Z0-9-]+|\\*)(:([0-9]{1,5}))?)$)'",
            ],
        ),
        (
            "filters: [{type: RequestRedirect, requestRedirect: {statusCode: 304}}]",
            &[
                "spec.rules[0].filters[0].requestRedirect.statusCode: Unsupported value: 304: supported values: \"301\", \"302\", \"303\", \"307\", \"308\"",
            ],
        ),
        (
            "filters: [{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: a, value: \"b\\r\\nc\"}]}}]",
            &[
                "spec.rules[0].filters[0].requestHeaderModifier.set[0].value: Invalid value: \"b\\r\\nc\": must consist of printable characters, separated by single tabs or spaces",
            ],
        ),
        (
            "filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: \"/a b\"}}}]",
            &[
                "spec.rules[0].filters[0].urlRewrite.path.replaceFullPath: Invalid value: \"/a b\": must only contain characters that are valid in a path",
            ],
        ),
        (
            "matches: [{path: {type: Exact, value: /a}}]\nfilters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /}}}]",
            &[
                "spec.rules[0]: Invalid value: \"object\": When using URLRewrite filter with path.replacePrefixMatch, exactly one PathPrefix match must be specified",
            ],
        ),
        (
            &format!("filters: [{{type: RequestRedirect, requestRedirect: {{}}}}]\n{backend}"),
            &[
                "spec.rules[0]: Invalid value: \"object\": RequestRedirect filter must not be used together with backendRefs",
            ],
        ),
        (
            "timeouts: {request: 1, backendRequest: 1 s}",
            &[
                "spec.rules[0].timeouts.request: Invalid value: 1: must be a string, in quotes",
                "spec.rules[0].timeouts.backendRequest: Invalid value: \"1 s\": spec.rules[0].timeouts.backendRequest in body should match '^([0-9]{1,5}(h|m|s|ms)){1,4}$'",
            ],
        ),
        (
            "timeouts: {request: 1s, backendRequest: 2s}",
            &[
                "spec.rules[0].timeouts: Invalid value: \"object\": backendRequest timeout cannot be longer than request timeout",
            ],
        ),
        (
            "retry: {attempts: 0}",
            &[
                "spec.rules[0].retry.attempts: Invalid value: 0: spec.rules[0].retry.attempts in body should be greater than or equal to 1",
            ],
        ),
    ];
    for (fields, wanted) in table {
        let spec = format!("  rules:\n  - {}\n", fields.replace('\n', "\n    "));
        let told: Vec<String> = faults(&text(&spec));
        let told: Vec<&str> = told.iter().filter_map(|it| Some(it.split_once(' ')?.1)).collect();
        assert_eq!(told, *wanted, "{fields}");
    }
}

/// By what a fault is, and not by its words.
#[test]
fn more_than_this_version_accepts_is_no_reason_not_to_follow_what_an_api_server_accepted() {
    let backends: Vec<String> = (0..17).map(|number| format!("{{name: b{number}, port: 80}}")).collect();
    let long = "a".repeat(1025);
    let spec = format!(
        "  rules:\n  - matches: [{{path: {{value: /{long}}}}}]\n    backendRefs: [{}]\n",
        backends.join(", ")
    );
    let told = faults(&text(&spec));
    assert!(told.iter().any(|it| it.contains("Too many: 17")), "{told:?}");
    assert!(told.iter().any(|it| it.contains("Too long: ")), "{told:?}");
    let accepted = |text: &str| {
        let roots = crate::tree::parse(text).expect("is YAML");
        let faults = ValidationErrors::default();
        let facts = read_accepted(&Field::root(&roots[0], &faults)).expect("has a name");
        match &facts[0] {
            Fact::HttpRoute(route) => route.rules[0].clone(),
            other => panic!("{other:?}"),
        }
    };
    let rule = accepted(&text(&spec));
    assert_eq!(rule.unsupported, []);
    assert_eq!(rule.matches.len(), 1);
    let wrong = text("  rules:\n  - backendRefs: [{name: b, port: 0}]\n");
    assert_eq!(accepted(&wrong).unsupported.len(), 1, "that is wrong for every version");
}

#[test]
fn hosts_and_versions_are_judged_too() {
    let told = faults(&text("  hostnames: [Shop.example, '*']\n"));
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("5 spec.hostnames[0]: Invalid value: \"Shop.example\": spec.hostnames[0] in body should match '^(\\*\\.)?[a-z0-9]"), "{told:?}");
    let old = faults(&text("  rules: []\n").replace("/v1", "/v1alpha2"));
    assert!(old[0].contains("no matches for kind \"HTTPRoute\" in version"), "{old:?}");
}
