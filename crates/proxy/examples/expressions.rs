//! What regular expressions cost a request: all at once, as routes have them, beside one after the other.
//!
//! `taskset -c 1 cargo run --release -p seaway-proxy --example expressions [ROUNDS]`
#![allow(clippy::print_stdout)]

use std::{
    hint::black_box,
    sync::Arc,
    time::{Duration, Instant},
};

use regex::bytes::Regex;
use seaway_model::{
    Kind, ObjectRef, Owner, PoolId,
    load_balancer::{Match, PathMatch, Rule},
};
use seaway_snapshot::{RequestParts, Routes};

/// A path, and nothing else.
struct Path<'p>(&'p [u8]);

impl RequestParts for Path<'_> {
    fn host(&self) -> &[u8] {
        b"shop.example"
    }

    fn path(&self) -> &[u8] {
        self.0
    }

    fn method(&self) -> &[u8] {
        b"GET"
    }

    fn query(&self) -> &[u8] {
        b""
    }

    fn header(&self, _: &[u8]) -> Option<&[u8]> {
        None
    }
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|it| it.parse().ok()).unwrap_or(7);
    let flood = |at| format!("/(a|b|[a-f])*(x|y){{1,20}}{at}.*");
    let ordinary = |at| format!("/shop-{at}/v[0-9]+/items/[^/]+(/\\w+)?");
    let parted = |at| format!("/.*k{at}.*l{at}.*");
    let explosive = |at| format!("/.*[ab][^/]{{300}}{at}.*");
    let long = |text: &str| format!("/{}", text.repeat(2_000 / text.len()));
    compare("flood-expressions", flood, &long("a"), rounds);
    compare("ordinary, the last one", ordinary, "/shop-63/v12/items/blue-shoes/size", rounds);
    compare("seen in any order", parted, &long("klk1l3k63"), rounds);
    compare("2^300 states each", explosive, &scattered(), rounds);
}

/// Of two letters, in an order that does not repeat, and never 300 of them.
fn scattered() -> String {
    let mut seed = 7_u64;
    let letter = |at: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(at | 1);
        if at.is_multiple_of(250) {
            '/'
        } else if seed >> 40 & 1 == 0 {
            'a'
        } else {
            'b'
        }
    };
    (0..2_000).map(letter).collect()
}

fn compare(name: &str, expression: impl Fn(usize) -> String, path: &str, rounds: usize) {
    let texts: Vec<String> = (0..64).map(expression).collect();
    let alone: Vec<Regex> =
        texts.iter().map(|it| Regex::new(&format!("^(?:{it})$")).expect("it is one")).collect();
    let object = ObjectRef::new(Kind::HTTPRoute, "shop", "expressions");
    let owner = Owner::Object { object, uid: "1".into() };
    let matches =
        texts.iter().map(|it| Match { path: Some(PathMatch::Regex(it.as_str().into())), ..Match::default() });
    let rule =
        Arc::new(Rule { matches: matches.collect(), ..Rule::forward_all(owner, PoolId("members".into())) });
    let began = Instant::now();
    let routes = Routes::compile(&[rule]);
    let compiled = began.elapsed();
    let path = path.as_bytes();
    assert_eq!(alone.iter().any(|it| it.is_match(path)), routes.find(&Path(path)).is_some());
    let mut times = Vec::new();
    for _ in 0..rounds {
        let before = per_call(|| alone.iter().any(|it| it.is_match(black_box(path))));
        let after = per_call(|| routes.find(&Path(black_box(path))).is_some());
        times.push((before, after));
    }
    let median = |mut all: Vec<f64>| {
        all.sort_by(f64::total_cmp);
        all[all.len() / 2]
    };
    let before = median(times.iter().map(|it| it.0).collect());
    let after = median(times.iter().map(|it| it.1).collect());
    let quotient = median(times.iter().map(|it| it.1 / it.0).collect());
    println!(
        "{name}: one by one {before:.2} us, at once {after:.2} us, quotient {quotient:.3}; compiled in {compiled:.1?}"
    );
}

/// Microseconds.
fn per_call(run: impl Fn() -> bool) -> f64 {
    black_box(run());
    let (began, mut calls) = (Instant::now(), 0_u32);
    while began.elapsed() < Duration::from_millis(200) {
        black_box(run());
        calls += 1;
    }
    began.elapsed().as_secs_f64() * 1e6 / f64::from(calls)
}
