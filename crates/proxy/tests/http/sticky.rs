//! Clients that keep their member: by a cookie, or by their address.

use std::{collections::HashSet, net::SocketAddr, sync::Arc, time::Duration};

use seaway_model::{
    Pool, PoolId,
    load_balancer::{
        Action, Affinity, CookieMode, Filter, Match, MemberState, PassiveHealthCheck, PathMatch, Rule,
    },
};

use crate::{peer, scene::*, stage::*};

fn by_cookie(mode: CookieMode, members: &[SocketAddr]) -> Pool {
    Pool { affinity: Some(Affinity::Cookie { name: "SEAT".into(), mode, key: None }), ..pool(members) }
}

const NAMES: [&str; 3] = ["one", "two", "three"];

/// Three who say which they are.
fn three() -> [Member; 3] {
    NAMES.map(Member::saying)
}

fn all(members: &[Member]) -> Vec<SocketAddr> {
    members.iter().map(Member::at).collect()
}

fn asked(path: &str, cookies: &str) -> String {
    let cookie = if cookies.is_empty() { String::new() } else { format!("Cookie: {cookies}\r\n") };
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n{cookie}\r\n")
}

/// The cookie that an answer sets, without what is said about it.
fn told(answer: &Message) -> Option<String> {
    answer.field("set-cookie").map(|it| it.split(';').next().unwrap().to_owned())
}

#[test]
fn a_client_with_our_cookie_keeps_its_member_which_never_sees_it() {
    let members = three();
    let (stage, at) = front(&[]);
    stage.put(by_cookie(CookieMode::Insert, &all(&members)));
    let mut client = Client::new(at);
    let mut seen = HashSet::new();
    for _ in 0..3 {
        let first = client.ask(asked("/", ""));
        let cookie = told(&first).expect("a newcomer is told");
        assert!(seen.insert(cookie.clone()), "newcomers are spread as they always are");
        let whole = first.field("set-cookie").unwrap();
        assert_eq!(whole, format!("{cookie}; Path=/; HttpOnly; SameSite=Lax"));
        assert_eq!(first.field("cache-control"), Some("private"));
        let ip = members[0].at().ip().to_string();
        assert!(!cookie.contains(&ip) && cookie.len() == "SEAT=".len() + 16, "{cookie}");
        for cookies in [cookie.clone(), format!("a=1; {cookie}; b=2"), format!("SEAT=old; {cookie}")] {
            let answer = client.ask(asked("/", &cookies));
            assert_eq!(
                (answer.body, told(&Message { head: answer.head, body: vec![] })),
                (first.body.clone(), None)
            );
        }
    }
    let heard: Vec<_> = members.iter().flat_map(Member::heard).collect();
    assert!(heard.iter().all(|it| !it.head.contains("SEAT")));
    assert_eq!(heard.iter().filter(|it| it.field("cookie") == Some("a=1; b=2")).count(), 3);
}

#[test]
fn whose_member_is_gone_or_leaves_or_fails_gets_another_and_is_told() {
    let members = three();
    let everybody = all(&members);
    type Change = fn(&mut Pool, usize);
    let changes: [(&str, Change); 2] = [
        ("gone", |pool, index| drop(pool.members.remove(index))),
        ("draining", |pool, index| pool.members[index].state = MemberState::Draining),
    ];
    for (why, change) in changes {
        let (stage, at) = front(&[]);
        stage.put(by_cookie(CookieMode::Insert, &everybody));
        let mut client = Client::new(at);
        let first = client.ask(asked("/", ""));
        let cookie = told(&first).unwrap();
        let mut changed = by_cookie(CookieMode::Insert, &everybody);
        let mine = members[NAMES.iter().position(|it| it.as_bytes() == first.body).unwrap()].at();
        let index = changed.members.iter().position(|it| it.at == mine).unwrap();
        change(&mut changed, index);
        stage.put(changed);
        let second = client.ask(asked("/", &cookie));
        let renewed = told(&second).expect(why);
        assert_ne!((&renewed, &second.body), (&cookie, &first.body), "{why}");
        assert_eq!(client.ask(asked("/", &renewed)).body, second.body, "{why}");
        // Back again, nobody is moved a second time.
        stage.put(by_cookie(CookieMode::Insert, &everybody));
        assert_eq!(client.ask(asked("/", &renewed)).body, second.body, "{why}");
    }
    let (stage, at) = front(&[]);
    let mut dead = by_cookie(CookieMode::Insert, &[members[0].at(), nobody()]);
    dead.passive = Some(PassiveHealthCheck {
        failures: 1,
        eject: Duration::from_secs(60),
        ..PassiveHealthCheck::default()
    });
    let mark = |pool: &Pool, at: SocketAddr| {
        let compiled = seaway_snapshot::CompiledPool::compile(Arc::new(pool.clone()));
        String::from_utf8(compiled.mark_of(at).unwrap().as_bytes().to_vec()).unwrap()
    };
    let failed = dead.members.iter().map(|it| it.at).find(|it| *it != members[0].at()).unwrap();
    let cookie = format!("SEAT={}", mark(&dead, failed));
    stage.put(dead);
    let answer = Client::new(at).ask(asked("/", &cookie));
    assert_eq!((answer.status(), told(&answer).is_some()), (200, true));
}

#[test]
fn who_has_no_weight_keeps_those_it_has_and_gets_nobody_new() {
    let members = three();
    let (stage, at) = front(&[]);
    stage.put(by_cookie(CookieMode::Insert, &all(&members[..1])));
    let mut client = Client::new(at);
    let cookie = told(&client.ask(asked("/", ""))).unwrap();
    let mut pool = by_cookie(CookieMode::Insert, &all(&members));
    pool.members.iter_mut().filter(|it| it.at == members[0].at()).for_each(|it| it.weight = 0);
    stage.put(pool);
    for _ in 0..4 {
        assert_eq!(client.ask(asked("/", &cookie)).body, b"one");
        assert_ne!(client.ask(asked("/", "")).body, b"one");
    }
}

#[test]
fn another_process_with_the_same_plan_knows_the_same_cookie() {
    let members = three();
    let mut cookies = HashSet::new();
    for _ in 0..2 {
        let (stage, at) = front(&[]);
        stage.put(by_cookie(CookieMode::Insert, &all(&members)));
        let mut client = Client::new(at);
        let one = (0..3).map(|_| client.ask(asked("/", ""))).find(|it| it.body == b"one").unwrap();
        cookies.insert(told(&one));
    }
    assert_eq!(cookies.len(), 1, "{cookies:?}");
}

#[test]
fn a_members_own_cookie_gets_our_mark_and_comes_back_as_it_was() {
    let members = NAMES.map(|name| {
        Member::new(move |_, heard| {
            let cookies = match heard.first() {
                "GET /login HTTP/1.1" => {
                    "Set-Cookie: SEAT=s3cret; Path=/app; Secure\r\nSet-Cookie: other=1\r\n"
                }
                "GET /logout HTTP/1.1" => "Set-Cookie: SEAT=; Max-Age=0\r\n",
                _ => "",
            };
            Some(format!("HTTP/1.1 200 OK\r\n{cookies}Content-Length: {}\r\n\r\n{name}", name.len()))
        })
    });
    let (stage, at) = front(&[]);
    stage.put(by_cookie(CookieMode::Rewrite, &all(&members)));
    let mut client = Client::new(at);
    assert_eq!(told(&client.ask(asked("/", ""))), None, "who has none of its own gets none of ours");
    let login = client.ask(asked("/login", ""));
    let set: Vec<&str> = login.head.lines().filter_map(|it| it.strip_prefix("Set-Cookie: ")).collect();
    let (mark, own) = set[1].split_once('~').expect("our mark, and the member's value");
    assert_eq!((set[0], own, set.len()), ("other=1", "s3cret; Path=/app; Secure", 2));
    let cookie = format!("{mark}~s3cret");
    for _ in 0..3 {
        let answer = client.ask(asked("/", &format!("{cookie}; other=1")));
        assert_eq!((&answer.body, told(&answer)), (&login.body, None));
    }
    let unknown = client.ask(asked("/", "SEAT=AAAAAAAAAAAAAAAA~old"));
    assert_eq!(unknown.status(), 200);
    let heard: Vec<_> = members.iter().flat_map(Member::heard).collect();
    let cookies: Vec<&str> = heard.iter().filter_map(|it| it.field("cookie")).collect();
    assert_eq!(cookies.iter().filter(|it| **it == "SEAT=s3cret; other=1").count(), 3, "{cookies:?}");
    assert!(cookies.contains(&"SEAT=old"), "{cookies:?}");
    let logout = client.ask(asked("/logout", &cookie));
    assert_eq!(logout.field("set-cookie"), Some("SEAT=; Max-Age=0"), "taking it back is left as it is");
}

#[test]
fn each_prefix_has_a_cookie_of_its_own() {
    let members = three();
    let (stage, at) = front_with(&[], |listener| {
        let mut shop = everything();
        shop.matches = ["/shop", "/eu/shop"]
            .map(|path| Match { path: Some(PathMatch::Prefix(path.into())), ..Match::default() })
            .into();
        shop.filters = vec![Filter::RewritePrefix("/".into())];
        let mut exact = everything();
        exact.matches = vec![Match { path: Some(PathMatch::Exact("/exact".into())), ..Match::default() }];
        listener.rules = [shop, exact, everything()].map(Arc::new).into();
        listener.http.trusted = vec!["127.0.0.0/8".parse().unwrap()];
    });
    stage.put(by_cookie(CookieMode::Insert, &all(&members)));
    let mut client = Client::new(at);
    for (path, expected) in
        [("/shop/x", "/shop"), ("/eu/shop", "/eu/shop"), ("/exact", "/"), ("/", "/"), ("/else", "/")]
    {
        let answer = client.ask(asked(path, ""));
        let set = answer.field("set-cookie").unwrap();
        assert!(set.contains(&format!("; Path={expected}; HttpOnly")), "{path}: {set}");
        assert!(!set.contains("Secure"));
    }
    let secure = client.ask("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-Proto: https\r\n\r\n");
    assert!(secure.field("set-cookie").unwrap().ends_with("; Secure"), "{}", secure.head);
}

#[test]
fn of_pools_that_share_requests_the_cookie_tells_which() {
    let members = three();
    let (stage, at) = front_with(&[], |listener| {
        let mut rule: Rule = everything();
        rule.action = Action::Forward(vec![
            (PoolId("old".into()), 0),
            (PoolId("new".into()), 1),
            (PoolId("x".into()), 1),
        ]);
        listener.rules = vec![rule.into()];
    });
    for (id, member) in ["old", "new", "x"].into_iter().zip(&members) {
        stage.put(Pool { id: PoolId(id.into()), ..by_cookie(CookieMode::Insert, &[member.at()]) });
    }
    let mut client = Client::new(at);
    let (mut one_of_each, mut cookies) = (HashSet::new(), Vec::new());
    while one_of_each.len() < 2 {
        let answer = client.ask(asked("/", ""));
        if one_of_each.insert(answer.body.clone()) {
            cookies.push((told(&answer).unwrap(), answer.body));
        }
    }
    assert!(!one_of_each.contains(&b"one"[..]), "nobody new comes to a pool without weight");
    for (cookie, body) in cookies {
        for _ in 0..6 {
            assert_eq!(client.ask(asked("/", &cookie)).body, body);
        }
    }
}

#[test]
fn streams_of_http_2_keep_their_member_too() {
    let members = three();
    let (stage, at) = front(&[]);
    stage.put(by_cookie(CookieMode::Insert, &all(&members)));
    let mut client = peer::Peer::new(at);
    let (head, body, _) = client.ask(peer::get("/"), None).unwrap();
    let cookie = head.headers()["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    for _ in 0..4 {
        let mut request = peer::get("/");
        // Browsers send each crumb by itself.
        request.headers_mut().append("cookie", "a=1".parse().unwrap());
        request.headers_mut().append("cookie", cookie.parse().unwrap());
        let (head, again, _) = client.ask(request, None).unwrap();
        assert_eq!((again, head.headers().get("set-cookie")), (body.clone(), None));
    }
    let heard: Vec<_> = members.iter().flat_map(Member::heard).collect();
    assert_eq!(heard.iter().filter(|it| it.field("cookie") == Some("a=1")).count(), 4);
}

#[test]
fn a_client_keeps_its_member_by_its_address_as_trusted_proxies_tell_it() {
    let members = three();
    let (stage, at) = front_with(&[], |listener| {
        listener.http.trusted = vec!["127.0.0.0/8".parse().unwrap()];
    });
    stage.put(Pool { affinity: Some(Affinity::ClientIp(Duration::from_secs(60))), ..pool(&all(&members)) });
    let mut bodies = HashSet::new();
    // Which of them an address belongs to hangs on the members' ports, which are others in every run: with 16 addresses
    // one run in 200 left a member out.
    for client in 0..254 {
        let request = format!("GET / HTTP/1.1\r\nHost: a\r\nX-Forwarded-For: 192.0.2.{client}\r\n\r\n");
        let first = Client::new(at).ask(&request).body;
        for _ in 0..3 {
            assert_eq!(Client::new(at).ask(&request).body, first, "192.0.2.{client}");
        }
        bodies.insert(first);
        if client >= 16 && bodies.len() == 3 {
            return;
        }
    }
    panic!("other clients go elsewhere, but went to {} of three members only", bodies.len());
}

#[test]
fn whom_a_cookie_leads_to_a_backup_goes_back_when_another_member_is_there() {
    let members = three();
    let spare = members[2].at();
    let put = |stage: &Stage, weight: u32| {
        let mut pool = by_cookie(CookieMode::Insert, &all(&members));
        pool.members.iter_mut().for_each(|it| it.backup = it.at == spare);
        pool.members.iter_mut().filter(|it| it.at != spare).for_each(|it| it.weight = weight);
        stage.put(pool);
    };
    let (stage, at) = front(&[]);
    put(&stage, 1);
    let mut client = Client::new(at);
    assert!((0..6).all(|_| client.ask(asked("/", "")).body != b"three"));
    put(&stage, 0);
    let answer = client.ask(asked("/", ""));
    let cookie = told(&answer).expect("a newcomer is told");
    assert_eq!(answer.body, b"three");
    assert_eq!(client.ask(asked("/", &cookie)).body, b"three", "it stays while no other is there");
    put(&stage, 1);
    let back = client.ask(asked("/", &cookie));
    assert!(back.body != b"three" && told(&back).is_some(), "{}", back.head);
}
