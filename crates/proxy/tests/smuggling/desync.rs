//! Desynchronisation: an attacker and a member make the proxy and the member disagree where a message on their connection
//! ends. Other clients must get their own answers all the same.
//!
//! `SEAWAY_TRIES` is the number of tries of each class.

use std::{
    io::{BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
};

use seaway_model::{Listener, Pool, load_balancer::Protocol};

use crate::{
    stage::*,
    worst::{Fault, member, read_head},
};

/// Enough to find each class in a data plane that has it: there, nearly every try succeeds.
const TRIES: usize = 60;

pub(crate) fn tries() -> usize {
    std::env::var("SEAWAY_TRIES").ok().and_then(|it| it.parse().ok()).unwrap_or(TRIES)
}

/// One data plane with one worker, so that all clients share its connections to the member.
pub(crate) struct Scene {
    _stage: Stage,
    pub(crate) at: SocketAddr,
    victim: Client,
    class: String,
    tried: usize,
    wrong: Vec<String>,
}

impl Scene {
    pub(crate) fn new(class: &str, member: SocketAddr) -> Scene {
        Scene::with(class, pool(&[member]), |_| {})
    }

    pub(crate) fn with(class: &str, pool: Pool, tune: impl Fn(&mut Listener)) -> Scene {
        let stage = Stage::with_workers(1);
        stage.put(pool);
        let (at, _) = stage.open(HERE, |listener| {
            listener.protocol = Protocol::Http;
            tune(listener);
        });
        let victim = Client::new(at);
        Scene { _stage: stage, at, victim, class: class.to_owned(), tried: 0, wrong: Vec::new() }
    }

    /// Another client asks, and is to get its own answer.
    pub(crate) fn try_victim(&mut self) {
        let target = format!("/victim-{}", self.tried);
        self.try_target(&target);
    }

    /// The same, for something that every request gets alike.
    pub(crate) fn try_target(&mut self, target: &str) {
        if self.tried.is_multiple_of(8) {
            self.victim = Client::new(self.at);
        }
        if !self.is_answered(target, None) {
            self.victim = Client::new(self.at);
        }
    }

    /// By that client's own connection.
    pub(crate) fn try_client(&mut self, client: &mut Client) {
        let target = format!("/victim-{}", self.tried);
        if !self.is_answered(&target, Some(client)) {
            *client = Client::new(self.at);
        }
    }

    fn is_answered(&mut self, target: &str, client: Option<&mut Client>) -> bool {
        self.tried += 1;
        let client = client.unwrap_or(&mut self.victim);
        let answer = client.ask(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        let is_own = answer == (200, target.to_owned());
        if !is_own {
            self.wrong.push(format!("{target} was answered by {answer:?}"));
        }
        is_own
    }

    /// What the attacker was answered does not matter.
    pub(crate) fn judge(self) -> Option<String> {
        let Scene { class, tried, wrong, .. } = self;
        eprintln!("{class}: {tried} tries, {} answers to the wrong client", wrong.len());
        let first = wrong.first()?;
        Some(format!("{class}: {} of {tried} were harmed, the first so: {first}", wrong.len()))
    }
}

/// Asks one thing after another, by HTTP/1.1.
pub(crate) struct Client(BufReader<TcpStream>);

impl Client {
    pub(crate) fn new(at: SocketAddr) -> Client {
        let stream = connect(at);
        stream.set_nodelay(true).unwrap();
        Client(BufReader::new(stream))
    }

    /// The connection may be over.
    pub(crate) fn say(&mut self, bytes: &[u8]) {
        let _ = self.0.get_mut().write_all(bytes);
    }

    pub(crate) fn ask(&mut self, request: &str) -> (u16, String) {
        self.say(request.as_bytes());
        self.answer(request.starts_with("HEAD"))
    }

    /// Status and body of the next answer; 0 where none comes. Interim answers are passed over.
    pub(crate) fn answer(&mut self, head_only: bool) -> (u16, String) {
        loop {
            let Some(head) = read_head(&mut self.0) else { return (0, String::new()) };
            let status = head.get(9..12).and_then(|it| it.parse().ok()).unwrap_or(0);
            if (100..200).contains(&status) {
                continue;
            }
            let mut lines = head.lines().filter_map(|line| line.split_once(": "));
            let length = lines.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
            let length = length.and_then(|(_, value)| value.parse().ok()).unwrap_or(0);
            let mut body = vec![0; if head_only || matches!(status, 204 | 304) { 0 } else { length }];
            return match self.0.read_exact(&mut body) {
                Ok(()) => (status, String::from_utf8_lossy(&body).into_owned()),
                Err(_) => (0, head),
            };
        }
    }
}

/// Half a request, which takes the next one's first line for a field.
pub(crate) const HALF: &str = "GET /poison HTTP/1.1\r\nX-Rest: ";
/// A whole one, whose answer waits for the next request.
pub(crate) const WHOLE: &str = "GET /poison HTTP/1.1\r\nHost: a\r\n\r\n";

/// An unsolicited answer.
const POISON: &str = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n/poison";

/// Methods whose content has no meaning (RFC 9110, section 9.3), and unknown ones.
pub(crate) const BODILESS: &[&str] = &["GET", "HEAD", "DELETE", "OPTIONS", "TRACE", "FROB", "PROPFIND"];
pub(crate) const WITH_BODIES: &[&str] = &["POST", "PUT", "PATCH"];

/// A request with that body and its length.
pub(crate) fn sized(method: &str, body: &str) -> String {
    format!("{method} /attack HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// The same in one chunk.
fn chunked(method: &str, body: &str) -> String {
    let head = format!("{method} /attack HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    match body.len() {
        0 => format!("{head}0\r\n\r\n"),
        length => format!("{head}{length:x}\r\n{body}\r\n0\r\n\r\n"),
    }
}

/// Each of these in turn, before one victim each.
fn attacked(class: &str, fault: Fault, attacks: &[String]) -> Option<String> {
    let member = member(fault);
    let mut scene = Scene::new(class, member.at);
    for attack in attacks.iter().cycle().take(tries()) {
        Client::new(scene.at).ask(attack);
        scene.try_victim();
    }
    scene.judge()
}

/// The same, and behind each the attacker asks for something itself, by the same connection of its own.
fn attacked_and_asked(class: &str, fault: Fault, attacks: &[String]) -> Option<String> {
    let member = member(fault);
    let mut scene = Scene::new(class, member.at);
    for attack in attacks.iter().cycle().take(tries()) {
        let mut attacker = Client::new(scene.at);
        attacker.ask(attack);
        attacker.ask("GET /attacker HTTP/1.1\r\nHost: a\r\n\r\n");
        scene.try_victim();
    }
    scene.judge()
}

fn of_all(methods: &[&str], request: impl Fn(&str) -> String) -> Vec<String> {
    methods.iter().map(|it| request(it)).collect()
}

/// Fails with the classes that harmed somebody.
pub(crate) fn no_harm(harmed: impl IntoIterator<Item = Option<String>>) {
    let harmed: Vec<String> = harmed.into_iter().flatten().collect();
    assert!(harmed.is_empty(), "{harmed:#?}");
}

#[test]
fn a_body_that_a_member_does_not_read_is_no_other_client_s_request() {
    let all = [BODILESS, WITH_BODIES].concat();
    let half = Fault::ReadsNoBody;
    // What it answers at once is seen to be too much.
    let waits = Fault::ReadsNoBodyAndWaits;
    let more = [WHOLE, WHOLE, HALF].concat();
    no_harm([
        attacked("CL.0, half a request, bodiless methods", half, &of_all(BODILESS, |it| sized(it, HALF))),
        attacked("CL.0, half a request, POST and its like", half, &of_all(WITH_BODIES, |it| sized(it, HALF))),
        attacked("CL.0, a whole request", half, &of_all(&all, |it| sized(it, WHOLE))),
        attacked("CL.0, a whole request whose answer waits", waits, &of_all(&all, |it| sized(it, WHOLE))),
        attacked("CL.0, two requests and a half", waits, &of_all(&all, |it| sized(it, &more))),
        attacked("TE.0, half a request", waits, &of_all(&all, |it| chunked(it, HALF))),
        attacked("TE.0, a whole request", waits, &of_all(&all, |it| chunked(it, WHOLE))),
        attacked("TE.0, nothing but the end", waits, &of_all(&all, |it| chunked(it, ""))),
    ]);
}

#[test]
fn a_body_that_comes_after_the_answer_is_no_other_client_s_request() {
    let mut harmed = Vec::new();
    for (class, at_once) in [("paused before the body", 0), ("paused within the body", 20)] {
        let member = member(Fault::ReadsNoBody);
        let mut scene = Scene::new(class, member.at);
        for method in [BODILESS, WITH_BODIES].concat().iter().cycle().take(tries()) {
            let request = sized(method, HALF);
            let (first, rest) = request.split_at(request.len() - HALF.len() + at_once);
            let mut attacker = Client::new(scene.at);
            attacker.ask(first);
            attacker.say(rest.as_bytes());
            // It hears the end when the proxy has done with it.
            attacker.answer(false);
            scene.try_victim();
        }
        harmed.push(scene.judge());
    }
    no_harm(harmed);
}

#[test]
fn a_body_that_was_announced_by_an_expectation_and_not_read_is_no_other_client_s_request() {
    let with = |expect: &str, method: &str| {
        sized(method, HALF).replace("Content-Length", &format!("Expect: {expect}\r\nContent-Length"))
    };
    let all = [BODILESS, WITH_BODIES].concat();
    let expected = of_all(&all, |it| with("100-continue", it));
    let strange =
        ["y 100-continue", "y100-continue", "100-Continue", "100-continue, 100-continue", "\t100-continue"];
    let strange = of_all(&strange, |it| with(it, "POST"));
    no_harm([
        attacked("Expect, answered at once", Fault::ReadsNoBody, &expected),
        attacked("Expect, invited and not read", Fault::InvitesAndReadsNoBody, &expected),
        attacked("Expect, otherwise spelled", Fault::ReadsNoBody, &strange),
        attacked(
            "Expect without a body",
            Fault::InvitesAndReadsNoBody,
            &of_all(&all, |it| format!("{it} /attack HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n\r\n")),
        ),
    ]);
}

#[test]
fn what_a_member_says_behind_an_answer_is_no_other_client_s_answer() {
    let get = [sized("POST", "x"), "GET /attack HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()];
    let head = ["HEAD /attack HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()];
    let mut harmed = Vec::new();
    for (class, said, attack) in [
        ("answered twice", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", &get[..]),
        ("more than nothing", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", &get),
        ("more than the last chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", &get),
        ("204 with a body", "HTTP/1.1 204 No Content\r\nContent-Length: 45\r\n\r\n", &get),
        ("304 with a body", "HTTP/1.1 304 Not Modified\r\nContent-Length: 45\r\n\r\n", &get),
        ("HEAD with a body", "HTTP/1.1 200 OK\r\nContent-Length: 45\r\n\r\n", &head),
        ("HEAD with chunks", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", &head),
        ("100 with a body", "HTTP/1.1 100 Continue\r\nContent-Length: 45\r\n\r\n", &get),
    ] {
        let at_once: &'static str = format!("{said}{POISON}").leak();
        harmed.push(attacked(class, Fault::Says(Box::leak(Box::new([at_once]))), attack));
    }
    // It comes only when the next request does.
    for (class, said, attack) in [
        ("204 with a body later", "HTTP/1.1 204 No Content\r\nContent-Length: 45\r\n\r\n", &get[1..]),
        ("304 with a body later", "HTTP/1.1 304 Not Modified\r\nContent-Length: 45\r\n\r\n", &get[1..]),
        ("HEAD with a body later", "HTTP/1.1 200 OK\r\nContent-Length: 45\r\n\r\n", &head),
        ("HEAD with a body of no length later", "HTTP/1.1 200 OK\r\n\r\n", &head),
    ] {
        harmed.push(attacked(class, Fault::Says(Box::leak(Box::new([said, POISON]))), attack));
    }
    no_harm(harmed);
}

#[test]
fn an_answer_that_is_not_what_it_says_spoils_no_other_client_s_answer() {
    let get = ["GET /attack HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()];
    let mut harmed = Vec::new();
    for (class, said) in [
        ("two lengths", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nContent-Length: 45\r\n\r\n"),
        ("a list of lengths", "HTTP/1.1 200 OK\r\nContent-Length: 0, 45\r\n\r\n"),
        (
            "a length and chunks",
            "HTTP/1.1 200 OK\r\nContent-Length: 45\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        ("a folded length", "HTTP/1.1 200 OK\r\nContent-Length:\r\n 0\r\n\r\n"),
        ("101 to who has not asked", "HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"),
        ("100 and then no answer", "HTTP/1.1 100 Continue\r\n\r\nnonsense\r\n\r\n"),
    ] {
        let said: &'static str = format!("{said}{POISON}").leak();
        harmed.push(attacked(class, Fault::Says(Box::leak(Box::new([said]))), &get));
    }
    for (class, said) in [
        ("shorter than its length", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n/po"),
        ("ended before the last chunk", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n/po\r\n"),
        ("ended within its head", "HTTP/1.1 200 OK\r\nContent-Le"),
    ] {
        harmed.push(attacked(class, Fault::SaysAndCloses(said), &get));
    }
    no_harm(harmed);
}

#[test]
fn a_length_that_only_a_member_sees_takes_no_other_client_s_request() {
    let attacks = [
        "Content_Length: 40",
        "Content-Length : 40",
        "Content-Length\t: 40",
        " Content-Length: 40",
        "X: y\rContent-Length: 40",
        "X: y\nContent-Length: 40",
        "X: y\r\n Content-Length: 40",
        "Content-Length:\x0b40",
        "Content-Length: +40",
        "Content-Length: 0\r\nContent-Length: 40",
        "Content-Length: 0, 40",
        "\0Content-Length: 40",
        "Content-Length\0: 40",
        "Content-\r\n Length: 40",
        "Connection: Content-Length\r\nContent-Length: 0\r\nContent_Length: 40",
    ];
    let heads = attacks.map(|it| format!("GET /attack HTTP/1.1\r\nHost: a\r\n{it}\r\n\r\n"));
    no_harm([attacked("0.CL", Fault::SeesLengths, &heads)]);
}

/// What one client has left on a connection stays its own, whatever it asks by it next.
#[test]
fn what_a_client_leaves_on_a_connection_stays_its_own() {
    let all = [BODILESS, WITH_BODIES].concat();
    let waits = Fault::ReadsNoBodyAndWaits;
    let whole = of_all(&all, |it| sized(it, WHOLE));
    let head = ["HEAD /attack HTTP/1.1\r\nHost: a\r\n\r\n".to_owned()];
    let late = Fault::Says(&["HTTP/1.1 200 OK\r\nContent-Length: 45\r\n\r\n", POISON]);
    no_harm([
        attacked_and_asked("CL.0, a whole request, and a request behind it", waits, &whole),
        attacked_and_asked("HEAD with a body later, and a request behind it", late, &head),
        attacked_and_asked(
            "CL.0, half a request, and one behind it",
            waits,
            &of_all(&all, |it| sized(it, HALF)),
        ),
    ]);
}
