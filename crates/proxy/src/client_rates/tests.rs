use std::thread;

use proptest::prelude::*;
use seaway_model::{Kind, ObjectRef, load_balancer::RequestRate};

use super::*;

fn limit(of: &str, per_second: u32, burst: u32, key: ClientKey) -> RateLimit {
    let (namespace, name) = of.split_once('/').unwrap();
    let of = ObjectRef::new(Kind::Service, namespace, name);
    RateLimit { of, rate: RequestRate { per_second, burst, key } }
}

fn by_address(per_second: u32, burst: u32) -> RateLimit {
    limit("default/shop", per_second, burst, ClientKey::Address)
}

fn v4(number: u32) -> RateLimitKey<'static> {
    RateLimitKey::Address(IpAddr::V4(number.into()))
}

fn v6(text: &str) -> RateLimitKey<'static> {
    RateLimitKey::Address(text.parse().unwrap())
}

#[test]
fn a_burst_is_admitted_at_once_and_then_the_rate() {
    let (rates, limit) = (ClientRates::new(), by_address(2, 5));
    let admitted = |now, times| (0..times).filter(|_| rates.admit(&limit, v4(1), now).is_ok()).count();
    assert_eq!(admitted(1_000, 9), 5);
    assert_eq!(rates.admit(&limit, v4(1), 1_000), Err(1));
    assert_eq!(admitted(1_499, 9), 0);
    assert_eq!(admitted(1_500, 9), 1);
    assert_eq!(admitted(3_000, 9), 3);
    assert_eq!(admitted(1_000_000, 9), 5, "no more than the burst, however long it was quiet");
    assert_eq!(admitted(999_000, 9), 0, "the clock of a worker that is late admits nobody twice");
    assert!(rates.admit(&limit, v4(2), 1_000_000).is_ok(), "another client");
}

#[test]
fn whoever_is_refused_is_told_when_to_come_back() {
    let rates = ClientRates::new();
    for (per_second, burst, asked, told) in [(1, 1, 1, 1), (1, 10, 10, 1), (1000, 1, 1, 1)] {
        let limit =
            limit(&format!("default/s{per_second}-{burst}-{asked}"), per_second, burst, ClientKey::Address);
        (0..asked).for_each(|_| assert!(rates.admit(&limit, v4(1), 5_000).is_ok()));
        let result = rates.admit(&limit, v4(1), 5_000);
        assert_eq!(result.err().unwrap_or_default(), told);
        assert!(rates.admit(&limit, v4(1), 5_000 + 1_000 * told).is_ok(), "it came back then");
    }
    // A limit that was lowered or raised meanwhile: no more is made up for than the new one allows.
    let (many, few, fast) = (by_address(1, 60), by_address(1, 1), by_address(1_000, 10));
    (0..60).for_each(|_| assert!(rates.admit(&many, v4(1), 5_000).is_ok()));
    assert_eq!(rates.admit(&few, v4(1), 5_000), Err(1));
    assert_eq!(rates.admit(&fast, v4(1), 5_000), Err(1));
    assert!(rates.admit(&fast, v4(1), 7_000).is_ok(), "not after a minute");
}

#[test]
fn clients_are_told_apart_as_the_limit_says() {
    let (rates, header) = (ClientRates::new(), ClientKey::Header("x-key".into()));
    let cookie = ClientKey::Cookie("x-key".into());
    let mut fresh = 0;
    for (one, other, key, are_one) in [
        (v4(1), v4(1), ClientKey::Address, true),
        (v4(1), v4(2), ClientKey::Address, false),
        (v6("2001:db8::1"), v6("2001:db8::ffff:ffff:ffff:ffff"), ClientKey::Address, true),
        (v6("2001:db8::1"), v6("2001:db8:0:1::1"), ClientKey::Address, false),
        (v6("::1"), v4(1), ClientKey::Address, false),
        (RateLimitKey::Value(b"a"), RateLimitKey::Value(b"a"), header.clone(), true),
        (RateLimitKey::Value(b"a"), RateLimitKey::Value(b"b"), header.clone(), false),
        (RateLimitKey::Value(b"a"), v4(1), header, false),
        (RateLimitKey::Value(b"a"), RateLimitKey::Value(b"a"), cookie, true),
    ] {
        fresh += 1;
        let limit = limit(&format!("default/s{fresh}"), 1, 1, key);
        assert_eq!(rates.admit(&limit, one, 9), Ok(()));
        assert_eq!(rates.admit(&limit, other, 9).is_err(), are_one, "{one:?} {other:?} {limit:?}");
    }
    let of = |name| limit(name, 1, 1, ClientKey::Address);
    assert!(rates.admit(&of("a/shop"), v4(9), 9).is_ok());
    assert!(rates.admit(&of("b/shop"), v4(9), 9).is_ok(), "limits of others are others");
    assert!(rates.admit(&of("a/shop"), v4(9), 9).is_err());
}

proptest! {
    #[test]
    fn in_any_window_no_more_are_admitted_than_rate_and_burst_allow(
        per_second in prop_oneof![1_u32..20, Just(333), Just(1_000), Just(999_999)],
        burst in 1_u32..30,
        gaps in prop::collection::vec(prop_oneof![4 => Just(0_u64), 2 => 1_u64..50, 1 => 50_u64..3_000], 1..300),
    ) {
        let (rates, limit) = (ClientRates::new(), by_address(per_second, burst));
        let (mut now, mut admitted) = (1_000_u64, Vec::new());
        for gap in gaps {
            now += gap;
            match rates.admit(&limit, v4(7), now) {
                Ok(()) => admitted.push(now),
                Err(seconds) => {
                    prop_assert!(seconds >= 1);
                    // Who waits as it is told is admitted: asking in vain costs nothing.
                    if gap > 1_000 {
                        now += seconds * 1_000;
                        prop_assert_eq!(rates.admit(&limit, v4(7), now), Ok(()));
                        admitted.push(now);
                    }
                }
            }
        }
        for (first, from) in admitted.iter().enumerate() {
            for (last, to) in admitted.iter().enumerate().skip(first) {
                let most = u64::from(per_second) as f64 * (to - from) as f64 / 1_000.0 + f64::from(burst);
                prop_assert!((last - first + 1) as f64 <= most + 1e-6, "{} to {}: more than {most}", from, to);
            }
        }
    }
}

#[test]
fn a_rate_by_which_a_second_cannot_be_divided_is_rather_less_than_more() {
    let (rates, limit) = (ClientRates::new(), by_address(999_999, 1_000_000));
    let admitted = |now| (0..1_000_000).filter(|_| rates.admit(&limit, v4(1), now).is_ok()).count();
    assert_eq!(admitted(1_000), 1_000_000);
    let in_a_second = admitted(2_000);
    assert!((999_000..=999_999).contains(&in_a_second), "{in_a_second}");
}

#[test]
fn workers_share_one_limit() {
    let (rates, limit) = (ClientRates::new(), by_address(1, 1_000));
    let admitted: usize = thread::scope(|scope| {
        let ask = || (0..1_000).filter(|_| rates.admit(&limit, v4(1), 5_000).is_ok()).count();
        let workers: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        workers.into_iter().map(|it| it.join().unwrap()).sum()
    });
    assert_eq!(admitted, 1_000);
}

#[test]
fn a_flood_of_new_addresses_refuses_nobody_and_gives_nobody_a_new_bucket() {
    let (rates, limit) = (ClientRates::new(), by_address(10, 20));
    let spent: Vec<u32> = (0..2_000).collect();
    for client in &spent {
        (0..20).for_each(|_| assert!(rates.admit(&limit, v4(*client), 1_000).is_ok()));
    }
    // Four times as many as have a place, all at once; no machine is so fast.
    let flood = 1 << 20;
    let refused = (0..flood).filter(|it| rates.admit(&limit, v4((1 << 30) + it), 1_000).is_err()).count();
    assert_eq!(refused, 0);
    let again = spent.iter().filter(|it| rates.admit(&limit, v4(**it), 1_000).is_ok()).count();
    assert_eq!(again, 0, "who had used its bucket up stays refused");
    assert!(
        (0..100).all(|it| rates.admit(&limit, v4((1 << 29) + it), 1_000).is_ok()),
        "newcomers are admitted"
    );
}

#[test]
fn so_many_clients_as_are_promised_have_a_bucket_each() {
    for (share, most) in [(4, 1.0 / 1_000.0), (2, 1.0 / 40.0)] {
        let (rates, limit) = (ClientRates::new(), by_address(10, 1));
        let clients = u32::try_from(PLACES / share).unwrap();
        let forgotten =
            (0..clients).chain(0..clients).filter(|it| rates.admit(&limit, v4(*it), 1_000).is_ok()).count()
                - PLACES / share;
        let lost = forgotten as f64 / f64::from(clients);
        assert!(lost <= most, "of 1/{share}: {lost}");
    }
}

#[test]
fn a_flood_at_one_namespace_takes_its_own_places() {
    let rates = ClientRates::new();
    let (quiet, flooded) =
        (limit("quiet/shop", 1, 1, ClientKey::Address), limit("loud/shop", 1, 600, ClientKey::Address));
    let clients = 0..10_000_u32;
    clients.clone().for_each(|it| assert!(rates.admit(&quiet, v4(it), 1_000).is_ok()));
    // Its buckets are further from full than those of the other, and would stay if that alone decided.
    for client in 0..2 * PLACES as u32 {
        let admitted = (0..3).filter(|_| rates.admit(&flooded, v4((1 << 30) + client), 1_000).is_ok());
        assert_eq!(admitted.count(), 3);
    }
    let forgotten = clients.filter(|it| rates.admit(&quiet, v4(*it), 1_000).is_ok()).count();
    assert!(forgotten < 100, "{forgotten} of 10000");
}

#[test]
fn buckets_take_the_room_that_is_written_down() {
    assert!(
        SETS * size_of::<Mutex<BucketSet>>() <= (4 << 20) + (1 << 18),
        "{}",
        size_of::<Mutex<BucketSet>>()
    );
    assert!(ClientRates::new().sets.get().is_none(), "nothing is held where there is no limit");
}
