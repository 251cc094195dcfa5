//! Desynchronisation: an attacker and a member disagree with the contender where a message ends, and another client
//! asks next. Each class is one of those in `crates/proxy/tests/smuggling`.

mod client;
mod member;
mod python;

use std::fmt;
use std::time::{Duration, Instant};

use anyhow::Result;

use self::client::Client;
use self::member::{Fault, Faulty};
use self::python::Python;
use super::ports;
use crate::contender::{Contender, Programs, Role};

/// What other clients got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Outcome {
    pub tries: usize,
    /// An answer that belongs to another request.
    pub wrong: usize,
    /// None at all, or an error.
    pub failed: usize,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tries, {} answers to the wrong client, {} failed", self.tries, self.wrong, self.failed)
    }
}

/// How long one class may take, where each try waits for an answer that never comes.
const MOST: Duration = Duration::from_secs(6);

/// Half a request, which takes the next one's first line for a field.
const HALF: &str = "GET /poison HTTP/1.1\r\nX-Rest: ";
/// A whole one, whose answer waits for the next request.
const WHOLE: &str = "GET /poison HTTP/1.1\r\nHost: a\r\n\r\n";
const UNSOLICITED: &str = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n/poison";
/// Methods whose content has no meaning, and others.
const BODILESS: &[&str] = &["GET", "HEAD", "DELETE", "OPTIONS"];
const WITH_BODIES: &[&str] = &["POST", "PUT", "PATCH"];

struct Class {
    name: &'static str,
    /// `None`: Python's `http.server`.
    fault: Option<Fault>,
    attacks: Vec<Attack>,
}

/// What the attacker says at once, and after the first answer.
struct Attack {
    first: String,
    rest: String,
}

fn at_once(first: String) -> Attack {
    Attack { first, rest: String::new() }
}

fn sized(method: &str, body: &str) -> String {
    format!("{method} /attack HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn of_all(methods: &[&str], request: impl Fn(&str) -> String) -> Vec<Attack> {
    methods.iter().map(|it| at_once(request(it))).collect()
}

fn classes() -> Vec<Class> {
    let all = [BODILESS, WITH_BODIES].concat();
    let paused = |method: &&str| {
        let mut first = sized(method, HALF);
        let rest = first.split_off(first.len() - HALF.len());
        Attack { first, rest }
    };
    let chunked = |method: &str| {
        let (length, head) = (HALF.len(), "/attack HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked");
        format!("{method} {head}\r\n\r\n{length:x}\r\n{HALF}\r\n0\r\n\r\n")
    };
    let get = || vec![at_once("GET /attack HTTP/1.1\r\nHost: a\r\n\r\n".to_owned())];
    let head = || vec![at_once("HEAD /attack HTTP/1.1\r\nHost: a\r\n\r\n".to_owned())];
    let expects = |method: &str| {
        sized(method, HALF).replace("Content-Length", "Expect: 100-continue\r\nContent-Length")
    };
    let lengths =
        ["Content_Length: 40", "Content-Length : 40", " Content-Length: 40", "X: y\nContent-Length: 40"];
    let seen = lengths.map(|it| at_once(format!("GET /attack HTTP/1.1\r\nHost: a\r\n{it}\r\n\r\n")));
    let class = |name, fault, attacks| Class { name, fault, attacks };
    let reads_none = Some(Fault::ReadsNoBody { waits: false });
    let waits = Some(Fault::ReadsNoBody { waits: true });
    let twice = &["HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", UNSOLICITED];
    let no_content = &["HTTP/1.1 204 No Content\r\nContent-Length: 45\r\n\r\n", UNSOLICITED];
    let of_head = &["HTTP/1.1 200 OK\r\nContent-Length: 45\r\n\r\n", UNSOLICITED];
    vec![
        class("CL.0 at python3 -m http.server", None, of_all(&["GET", "HEAD"], |it| sized(it, HALF))),
        class("CL.0, half a request, bodiless methods", reads_none, of_all(BODILESS, |it| sized(it, HALF))),
        class(
            "CL.0, half a request, POST and its like",
            reads_none,
            of_all(WITH_BODIES, |it| sized(it, HALF)),
        ),
        class("CL.0, a whole request whose answer waits", waits, of_all(&all, |it| sized(it, WHOLE))),
        class("TE.0, half a request", waits, of_all(&all, chunked)),
        class("a body after the answer", reads_none, all.iter().map(paused).collect()),
        class("Expect, invited and not read", Some(Fault::Invites), of_all(&all, expects)),
        class("answered twice at once", Some(Fault::Says { pieces: twice, at_once: true }), get()),
        class("204 with a body later", Some(Fault::Says { pieces: no_content, at_once: false }), get()),
        class("HEAD with a body later", Some(Fault::Says { pieces: of_head, at_once: false }), head()),
        class("0.CL, lengths that only a member sees", Some(Fault::SeesLengths), seen.into()),
    ]
}

pub fn measure(
    programs: &Programs,
    contender: Contender,
    tries: usize,
) -> Result<Vec<(&'static str, Outcome)>> {
    let classes = classes();
    let python = Python::start(ports::desync_member(0))?;
    let mut members = Vec::new();
    for (index, class) in classes.iter().enumerate() {
        members.extend(class.fault.map(|it| Faulty::start(ports::desync_member(index), it)).transpose()?);
    }
    let _running = contender.start(programs, Role::Attacked)?;
    let mut outcomes = Vec::new();
    for (class, port) in classes.iter().zip(ports::desync()) {
        if class.fault.is_none() && python.is_none() {
            println!("{}: no python3 whose http.server knows --protocol is here", class.name);
            continue;
        }
        outcomes.push((class.name, attacked(class, port, tries)));
    }
    Ok(outcomes)
}

fn attacked(class: &Class, port: u16, tries: usize) -> Outcome {
    let to = ports::listener(port);
    let until = Instant::now() + MOST;
    let mut outcome = Outcome::default();
    let mut victim = Client::new(to);
    for (number, attack) in class.attacks.iter().cycle().take(tries).enumerate() {
        if Instant::now() > until {
            break;
        }
        let mut attacker = Client::new(to);
        attacker.ask(&attack.first, Duration::from_millis(100));
        if !attack.rest.is_empty() {
            attacker.say(&attack.rest);
            // It hears the end when the contender has done with it.
            attacker.answer(false, Duration::from_millis(20));
        }
        if number.is_multiple_of(8) {
            victim = Client::new(to);
        }
        // Python has this file, and no other.
        let target = if class.fault.is_some() { format!("/victim-{number}") } else { "/victim".to_owned() };
        let request = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        outcome.tries += 1;
        match victim.ask(&request, Duration::from_secs(1)) {
            Some((200, body)) if body == target => continue,
            // What a proxy says by itself is no other client's answer.
            Some((status, _)) if status >= 500 => outcome.failed += 1,
            Some(_) => outcome.wrong += 1,
            None => outcome.failed += 1,
        }
        victim = Client::new(to);
    }
    outcome
}
