use std::{collections::BTreeMap, time::Instant};

use seaway_model::{Kind, ObjectRef, load_balancer::Users};

use super::{recent::RecentFingerprints, *};

fn bytes<const N: usize>(hex: &str) -> [u8; N] {
    let digit = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16).unwrap();
    let all: Vec<u8> = (0..hex.len()).step_by(2).map(digit).collect();
    all.try_into().unwrap()
}

/// What crypt(3) of libxcrypt makes of them.
#[test]
fn hashes_are_those_of_crypt() {
    let long = "x".repeat(72);
    for (cost, salt, password, hash) in [
        (4, "71d79f8218a39259a7a29aabb2dbafc3", "", "774108e756b720a64ed33864c680049c590aa49d73964b"),
        (4, "71d79f8218a39259a7a29aabb2dbafc3", "U*U*U", "38b23a511cc8aee2b846ba245da2e2f450230bd11f4b44"),
        (4, "71d79f8218a39259a7a29aabb2dbafc3", "pässword", "a37f7a80782a565d85268bf0c201dc53961f83a47dc892"),
        (4, "71d79f8218a39259a7a29aabb2dbafc3", &long, "77571f8c8bd4e35187022c36d1fdaaad1f1e5f57408369"),
        (
            4,
            "71d79f8218a39259a7a29aabb2dbafc3",
            &(long.clone() + "y"),
            "77571f8c8bd4e35187022c36d1fdaaad1f1e5f57408369",
        ),
        (5, "10410410410410410410410410410410", "U*U*U", "0f2e43a9d7c8bb7507b8cb9334acffb44e95012f45bc6a"),
    ] {
        let hash = PasswordHash::Bcrypt { cost, salt: bytes(salt), hash: bytes(hash) };
        assert!(matches(&hash, password.as_bytes()), "{cost} {salt} {password:?}");
        assert!(!matches(&hash, b"another"));
    }
    let much = "y".repeat(128);
    for (rounds, salt, password, hash) in [
        (5_000, "0123456789abcdef", "", "20e3791b69604e1fa3b35cbc5d1e50b004d3b705e58e681c36c04775bace491f"),
        (
            5_000,
            "0123456789abcdef",
            "pässword",
            "a45c4a18c2b1b400d0bf3e35d256e9d180bf0f603fe9d8dc19d3546bdf3729bb",
        ),
        (
            5_000,
            "0123456789abcdef",
            &much,
            "21b8fb7600a7494bb7004aa572145ff20422e81d9be9293a4e382235c08218a0",
        ),
        (10_000, "x", "Hello world!", "feb3ba60ca5b58a8633f5679632de40f3bcb395d135b0bfddfe6fbc14d0afd9b"),
    ] {
        let hash = PasswordHash::Sha256Crypt { rounds, salt: salt.as_bytes().into(), hash: bytes(hash) };
        assert!(matches(&hash, password.as_bytes()), "{rounds} {salt} {password:?}");
        assert!(!matches(&hash, b"another"));
    }
    for (rounds, salt, password, hash) in [
        (
            5_000,
            "saltstring",
            "Hello world!",
            "2b209d0f3abe5abc1b24521555baa2b94d0943dae13e85666e7946e24de2323733cc538877a227437ac5f8ede5986c71a987079aa165ef8a1bda94a5916aceff",
        ),
        (
            1_000,
            "x",
            "",
            "4e906c707fc401fc5ea1ec81b97d8beecb3c877673c87e8108dd30960512d40aa619e6967349c15a764915b775c4b0365439b56d7dbd213fa268e6c061e9ef03",
        ),
        (
            1_000,
            "x",
            &much,
            "29e3e842adefebec78a6be9ecbda5041bd52febfe0c45f59527695c87e55954518c3c0f434045a23c27953b754462fb2714f3674c49f442ce0c1a81482f38543",
        ),
    ] {
        let hash = PasswordHash::Sha512Crypt { rounds, salt: salt.as_bytes().into(), hash: bytes(hash) };
        assert!(matches(&hash, password.as_bytes()), "{rounds} {salt} {password:?}");
        assert!(!matches(&hash, b"another"));
    }
}

/// `U*U*U`, by the cost 4.
fn hash() -> PasswordHash {
    let hash = bytes("38b23a511cc8aee2b846ba245da2e2f450230bd11f4b44");
    PasswordHash::Bcrypt { cost: 4, salt: bytes("71d79f8218a39259a7a29aabb2dbafc3"), hash }
}

fn auth(service: &str, hash: PasswordHash) -> BasicAuth {
    auth_of("default", service, hash)
}

fn auth_of(namespace: &str, service: &str, hash: PasswordHash) -> BasicAuth {
    let of = ObjectRef::new(Kind::Service, namespace, service);
    let users = Users(BTreeMap::from([(b"alice".as_slice().into(), hash)]));
    BasicAuth { of, realm: "a".into(), users: Some(Arc::new(users)), forwards: false }
}

struct Asker {
    passwords: Passwords,
    mailbox: Arc<Mailbox>,
}

impl Asker {
    fn new() -> Asker {
        Asker { passwords: Passwords::default(), mailbox: Arc::new(Mailbox::new().unwrap()) }
    }

    fn from(&self, client: &str, auth: &BasicAuth, name: &str, password: &str) -> Verdict {
        let attempt = PasswordAttempt {
            auth,
            name: name.as_bytes(),
            password: password.as_bytes(),
            client: client.parse().unwrap(),
        };
        self.passwords.verify(&attempt, || Waiter { mailbox: self.mailbox.clone(), task: 7 })
    }

    fn ask(&self, auth: &BasicAuth, name: &str, password: &str) -> Verdict {
        self.from("192.0.2.1", auth, name, password)
    }

    /// Whether it was let in, and whether that was known at once.
    fn answer(&self, auth: &BasicAuth, name: &str, password: &str) -> (bool, bool) {
        match self.ask(auth, name, password) {
            Verdict::Right => (true, true),
            Verdict::Wrong => (false, true),
            Verdict::Later(verification) => (result(&verification), false),
            Verdict::Busy => panic!("nobody else waits"),
        }
    }
}

fn result(verification: &Verification) -> bool {
    let begun = Instant::now();
    loop {
        if let Some(result) = verification.result() {
            return result;
        }
        assert!(begun.elapsed().as_secs() < 60, "it is never verified");
        std::thread::yield_now();
    }
}

#[test]
fn what_was_verified_is_known_until_its_line_changes() {
    let (asker, mut auth) = (Asker::new(), auth("shop", hash()));
    assert_eq!(asker.answer(&auth, "alice", "U*U*U"), (true, false));
    assert_eq!(asker.answer(&auth, "alice", "U*U*U"), (true, true));
    assert_eq!(asker.answer(&auth, "alice", "U*U*V"), (false, false));
    assert_eq!(asker.answer(&auth, "alice", "U*U*V"), (false, true));
    // Nobody of that name: as slow as anybody, and never let in by the password of another.
    assert_eq!(asker.answer(&auth, "bob", "U*U*U"), (false, false));
    assert_eq!(asker.answer(&auth, "bob", "U*U*U"), (false, true));
    assert_eq!(asker.answer(&auth, "aliceU", "*U*U"), (false, false), "parts are told apart");
    let users = Arc::make_mut(auth.users.as_mut().unwrap());
    users.0.insert(b"bob".as_slice().into(), hash());
    assert_eq!(asker.answer(&auth, "bob", "U*U*U"), (true, false), "it is somebody now");
    let users = Arc::make_mut(auth.users.as_mut().unwrap());
    let salt = bytes("10410410410410410410410410410410");
    let other = bytes("0f2e43a9d7c8bb7507b8cb9334acffb44e95012f45bc6a");
    users.0.insert(b"alice".as_slice().into(), PasswordHash::Bcrypt { cost: 5, salt, hash: other });
    assert_eq!(asker.answer(&auth, "alice", "U*U*U"), (true, false), "another line is another hash");
    Arc::make_mut(auth.users.as_mut().unwrap()).0.remove(b"alice".as_slice());
    assert!(!asker.answer(&auth, "alice", "U*U*U").0, "who is gone is not remembered");
}

#[test]
fn who_waits_is_woken() {
    let (asker, auth) = (Asker::new(), auth("shop", hash()));
    let Verdict::Later(verification) = asker.ask(&auth, "alice", "U*U*U") else {
        panic!("it is not known yet")
    };
    assert!(result(&verification));
    let begun = Instant::now();
    while !asker.mailbox.collect().iter().any(|it| matches!(it, WorkerCommand::WakeWaiter(WaiterId::Task(7))))
    {
        assert!(begun.elapsed().as_secs() < 60);
        std::thread::yield_now();
    }
}

#[test]
fn one_client_and_one_service_have_their_share_of_the_queue_and_no_more() {
    let asker = Asker::new();
    asker.passwords.queue.rest();
    let (shop, mail) = (auth("shop", hash()), auth("mail", hash()));
    let mut waiting = Vec::new();
    for number in 0..fair_queue::MOST_OF_CLIENT {
        waiting.push(asker.ask(&shop, "alice", &number.to_string()));
    }
    assert!(waiting.iter().all(|it| matches!(it, Verdict::Later(_))));
    assert!(matches!(asker.ask(&shop, "alice", "more"), Verdict::Busy));
    assert!(matches!(asker.ask(&shop, "alice", "0"), Verdict::Later(_)), "the same waits with the same");
    // A client of IPv6 is its /64.
    for number in 0..fair_queue::MOST_OF_CLIENT {
        waiting.push(asker.from(&format!("2001:db8::{number}"), &shop, "alice", &format!("six {number}")));
    }
    assert!(matches!(asker.from("2001:db8::ffff", &shop, "alice", "more"), Verdict::Busy));
    // Others have their own share, until the Service has none left.
    let mut last = 2;
    let refused = loop {
        match asker.from(&format!("192.0.2.{last}"), &shop, "alice", &format!("of {last}")) {
            Verdict::Busy => break last,
            it => waiting.push(it),
        }
        last += 1;
    };
    assert_eq!(refused as usize, 2 + fair_queue::MOST_OF_SERVICE - 2 * fair_queue::MOST_OF_CLIENT);
    let other = asker.from("192.0.3.1", &mail, "alice", "of mail");
    assert!(matches!(other, Verdict::Later(_)), "another Service has its own");
}

#[test]
fn a_namespace_with_many_services_delays_another_by_one_turn_and_never_has_it_refused() {
    let asker = Asker::new();
    asker.passwords.queue.rest();
    let next = || asker.passwords.queue.next().unwrap();
    let (mut waiting, mut refused) = (Vec::new(), 0);
    for number in 0..1_024 {
        let service = auth_of("greedy", &format!("shop-{}", number % 256), hash());
        let client = format!("10.0.{}.{}", number / 256, number % 256);
        match asker.from(&client, &service, "alice", &number.to_string()) {
            Verdict::Busy => refused += 1,
            it => waiting.push(it),
        }
    }
    assert_eq!(
        (waiting.len(), refused),
        (fair_queue::MOST_OF_NAMESPACE, 1_024 - fair_queue::MOST_OF_NAMESPACE)
    );
    let modest = auth_of("modest", "mail", hash());
    for number in 0..3 {
        let Verdict::Later(login) = asker.from("192.0.2.9", &modest, "alice", &number.to_string()) else {
            panic!("it is not refused for what others have")
        };
        let turn = (1..).find(|_| Arc::ptr_eq(&next(), &login)).unwrap();
        assert!(turn <= 2, "its turn was the {turn}th");
    }
    // However many namespaces have all that they may.
    for number in 0..4_096 {
        let service = auth_of(&format!("greedy-{}", number % 16), &format!("shop-{}", number / 16), hash());
        let client = format!("10.1.{}.{}", number / 256, number % 256);
        waiting.push(asker.from(&client, &service, "alice", &number.to_string()));
    }
    let all = waiting.iter().filter(|it| matches!(it, Verdict::Later(_))).count();
    assert!(all < 1_024, "{all} wait");
    assert!(matches!(asker.from("192.0.2.9", &modest, "alice", "last"), Verdict::Later(_)));
}

#[test]
fn attempts_at_some_services_do_not_have_others_of_their_namespace_refused() {
    let asker = Asker::new();
    asker.passwords.queue.rest();
    let mut waiting = Vec::new();
    for number in 0..512 {
        let service = auth(["shop", "mail"][number % 2], hash());
        let client = format!("10.0.{}.{}", number / 256, number % 256);
        waiting.push(asker.from(&client, &service, "alice", &number.to_string()));
    }
    assert!(matches!(waiting[511], Verdict::Busy));
    assert!(matches!(asker.ask(&auth("wiki", hash()), "alice", "of wiki"), Verdict::Later(_)));
}

#[test]
fn a_client_has_four_wherever_it_asks() {
    let asker = Asker::new();
    asker.passwords.queue.rest();
    let ask = |namespace: &str, number: u32| {
        let service = auth_of(namespace, &format!("shop-{number}"), hash());
        asker.ask(&service, "alice", &number.to_string())
    };
    let waiting: Vec<_> = (0..32).map(|number| ask("default", number)).collect();
    let admitted = waiting.iter().filter(|it| matches!(it, Verdict::Later(_))).count();
    assert_eq!(admitted, fair_queue::MOST_OF_CLIENT);
    // What one namespace believes of a client does not keep it out of another.
    let first = ask("other", 0);
    assert!(matches!(first, Verdict::Later(_)));
    assert!(matches!(ask("other", 1), Verdict::Busy));
    // Those that left are not counted once their turn has come.
    drop((waiting, first));
    let Verdict::Later(last) = asker.from("192.0.2.9", &auth("shop", hash()), "alice", "x") else { panic!() };
    assert!(Arc::ptr_eq(&asker.passwords.queue.next().unwrap(), &last));
    assert!(matches!(ask("default", 40), Verdict::Later(_)));
}

#[test]
fn fewer_fit_where_each_takes_long() {
    let asker = Asker::new();
    asker.passwords.queue.rest();
    let PasswordHash::Bcrypt { salt, hash, .. } = hash() else { unreachable!() };
    let auth = auth("shop", PasswordHash::Bcrypt { cost: 12, salt, hash });
    let ask = |number: u32| asker.from(&format!("10.0.0.{number}"), &auth, "alice", &number.to_string());
    let waiting: Vec<_> = (0..64).map(ask).collect();
    let admitted = waiting.iter().filter(|it| matches!(it, Verdict::Later(_))).count();
    assert_eq!(admitted, fair_queue::MOST_OF_SERVICE / 4, "0.2 seconds each");
}

#[test]
fn a_thread_that_panicked_is_replaced() {
    let (asker, auth) = (Asker::new(), auth("shop", hash()));
    asker.passwords.queue.panics(fair_queue::MOST_OF_CLIENT);
    let passwords = ["U*U*U", "1", "2", "3"];
    let waiting = passwords.map(|it| match asker.ask(&auth, "alice", it) {
        Verdict::Later(verification) => verification,
        _ => panic!("it waits"),
    });
    let begun = Instant::now();
    while !asker.passwords.queue.has_panicked() {
        assert!(begun.elapsed().as_secs() < 60);
        std::thread::yield_now();
    }
    // Its client has no room until the next thread has begun.
    while matches!(asker.ask(&auth, "alice", "another"), Verdict::Busy) {
        assert!(begun.elapsed().as_secs() < 60);
        std::thread::yield_now();
    }
    assert!(!waiting[1..].iter().any(|it| result(it)));
    assert_eq!(waiting[0].result(), None, "it is lost");
    assert_eq!(asker.answer(&auth, "alice", "U*U*U"), (true, false), "nothing waits for the lost one");
}

#[test]
fn what_is_needed_is_not_forgotten() {
    let (mut known, shop) = (RecentFingerprints::default(), Name::from("shop"));
    known.add(&shop, 7);
    for number in 100..100 + 10 * RecentFingerprints::MOST as u128 {
        assert!(known.has(&shop, 7), "it is needed all the time");
        known.add(&shop, number);
    }
    assert_eq!(known.len(), RecentFingerprints::MOST);
    for number in 10_000_000..10_000_000 + 2 * RecentFingerprints::MOST as u128 {
        known.add(&shop, number);
    }
    assert!(!known.has(&shop, 7), "nobody has needed it for long");
    known.add(&shop, 10_000_000 + 2 * RecentFingerprints::MOST as u128 - 1);
    assert_eq!(known.len(), RecentFingerprints::MOST, "one that is there is there once");
}

#[test]
fn a_namespace_has_nothing_of_another_forgotten() {
    let [shop, mail, greedy] = ["shop", "mail", "greedy"].map(Name::from);
    let mut known = RecentFingerprints::default();
    let few = || 0..1_000;
    for number in few() {
        known.add(&shop, number);
    }
    for number in 0..4 * RecentFingerprints::MOST as u128 {
        known.add(&greedy, number);
        if number % 100 == 0 {
            known.add(&mail, number);
        }
    }
    assert!(few().all(|number| known.has(&shop, number)), "it had few");
    assert!((0..4 * RecentFingerprints::MOST as u128).step_by(100).all(|number| known.has(&mail, number)));
    assert!(!known.has(&mail, 1) && !known.has(&greedy, 1_001));
    assert_eq!(known.len(), RecentFingerprints::MOST);
}

#[test]
fn nothing_is_hashed_for_who_has_left() {
    let (asker, auth) = (Asker::new(), auth("shop", hash()));
    asker.passwords.queue.rest();
    drop(asker.ask(&auth, "alice", "left"));
    let Verdict::Later(stays) = asker.ask(&auth, "alice", "stays") else { panic!("it waits") };
    let next = asker.passwords.queue.next().unwrap();
    assert!(Arc::ptr_eq(&next, &stays), "the first has left");
}
