//! DNS names of members outside, asked of a name server in this process.

use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use seaway_drivers::names::MemberNames;
use seaway_engine::{Attempt, Driver, Failure, Gate, work_once};
use seaway_model::{Desired, Fact, Unit};
use seaway_testkit::conformance::passes;

const NAME: &str = "member.example";

/// What a question for A records is answered with. There are no AAAA records.
#[derive(Clone)]
enum Says {
    Addresses(Vec<Ipv4Addr>, u32),
    NoSuchName,
    Nothing,
}

/// Says of each name the same.
struct NameServer {
    at: SocketAddr,
    says: Arc<Mutex<Says>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl NameServer {
    fn start(says: Says) -> NameServer {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        socket.set_read_timeout(Some(Duration::from_millis(20))).expect("is set");
        let at = socket.local_addr().expect("is bound");
        let (says, ends) = (Arc::new(Mutex::new(says)), Arc::new(AtomicBool::new(false)));
        let (script, end) = (says.clone(), ends.clone());
        let thread = thread::spawn(move || {
            let mut bytes = [0; 512];
            while !end.load(Ordering::Relaxed) {
                let Ok((length, from)) = socket.recv_from(&mut bytes) else { continue };
                let says = script.lock().expect("whole").clone();
                if let Some(answer) = answer(&bytes[..length], &says) {
                    socket.send_to(&answer, from).expect("is sent");
                }
            }
        });
        NameServer { at, says, ends, thread: Some(thread) }
    }

    fn says(&self, says: Says) {
        *self.says.lock().expect("whole") = says;
    }

    fn driver(&self) -> MemberNames {
        MemberNames::new(&[self.at]).expect("a resolver")
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.take().into_iter().for_each(|it| _ = it.join());
    }
}

/// RFC 1035, section 4: the header, the question as it came, and records whose name points at it.
fn answer(question: &[u8], says: &Says) -> Option<Vec<u8>> {
    const A: [u8; 2] = [0, 1];
    let mut end = 12;
    while *question.get(end)? != 0 {
        end += usize::from(question[end]) + 1;
    }
    let (kind, end) = (question.get(end + 1..end + 3)?, end + 5);
    let (code, records, ttl) = match says {
        Says::Nothing => return None,
        Says::NoSuchName => (3, &[][..], 0),
        Says::Addresses(all, ttl) => (0, if kind == A { &all[..] } else { &[] }, *ttl),
    };
    let count = u8::try_from(records.len()).expect("few");
    let mut bytes = vec![question[0], question[1], 0x81, 0x80 | code, 0, 1, 0, count, 0, 0, 0, 0];
    bytes.extend(&question[12..end]);
    for ip in records {
        bytes.extend([0xc0, 12, 0, 1, 0, 1]);
        bytes.extend(ttl.to_be_bytes());
        bytes.extend([0, 4]);
        bytes.extend(ip.octets());
    }
    Some(bytes)
}

fn wanted() -> Desired {
    Desired::Name(NAME.into())
}

fn unit() -> Unit {
    Unit::Name(NAME.into())
}

async fn asked(driver: &MemberNames) -> Result<Attempt<MemberNames>, Failure> {
    work_once(driver, &unit(), &wanted(), &Gate::default()).await.map(|it| it.expect("it is not left alone"))
}

fn addresses(attempt: &Attempt<MemberNames>) -> Vec<String> {
    let of = |fact: &Fact| match fact {
        Fact::Name(it) => it.addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
        other => panic!("{other:?}"),
    };
    attempt.report.facts.iter().flat_map(of).collect()
}

fn two(ttl: u32) -> Says {
    Says::Addresses(vec![Ipv4Addr::new(192, 0, 2, 2), Ipv4Addr::new(192, 0, 2, 1)], ttl)
}

#[tokio::test]
async fn names_pass_the_suite_of_all_drivers() {
    let server = NameServer::start(two(60));
    passes(&server.driver(), &unit(), &[wanted()]).await;
}

#[tokio::test]
async fn another_answer_is_another_fact_and_it_is_asked_again_when_the_answer_ends() {
    let server = NameServer::start(two(60));
    let driver = server.driver();
    let first = asked(&driver).await.expect("an answer");
    assert_eq!(addresses(&first), ["192.0.2.1", "192.0.2.2"], "in an order of ours");
    let about = |attempt: &Attempt<MemberNames>, seconds: u64| {
        let again = attempt.report.again.expect("it is asked again");
        assert!(
            again <= Duration::from_secs(seconds)
                && again + Duration::from_secs(5) > Duration::from_secs(seconds),
            "{again:?}"
        );
    };
    about(&first, 60);
    server.says(Says::Addresses(vec![Ipv4Addr::new(192, 0, 2, 9)], 20));
    let other = asked(&driver).await.expect("an answer");
    assert_eq!(addresses(&other), ["192.0.2.9"]);
    about(&other, 20);
    // However short or long it says: neither a storm nor a day.
    server.says(two(0));
    about(&asked(&driver).await.expect("an answer"), 1);
    server.says(two(86_400));
    about(&asked(&driver).await.expect("an answer"), 300);
}

/// What it was before stays, for an attempt that fails reports nothing.
#[tokio::test]
async fn a_name_server_that_says_nothing_or_knows_no_such_name_is_asked_again_and_nothing_is_reported() {
    let server = NameServer::start(Says::NoSuchName);
    let driver = server.driver();
    for says in [Says::NoSuchName, Says::Nothing] {
        server.says(says);
        let failed = asked(&driver).await.err();
        let Some(Failure::Retry { why, problems, after: None }) = failed else { panic!("{failed:?}") };
        assert!(why.contains(NAME) && problems.is_empty(), "{why}: {problems:?}");
    }
    server.says(two(60));
    assert_eq!(addresses(&asked(&driver).await.expect("it is back")).len(), 2);
    // Nothing is asked of a name that is not wanted any more.
    server.says(Says::Nothing);
    let done = work_once(&driver, &unit(), &Desired::Absent, &Gate::default()).await.expect("no failure");
    let report = done.expect("it is not left alone").report;
    assert_eq!((report.facts, report.again), (vec![], None));
    assert!(driver.serves(&unit()));
}
