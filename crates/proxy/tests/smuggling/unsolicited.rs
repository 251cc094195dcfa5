//! Bytes that a member sends without a request, and requests that the proxy answers itself.

use std::{
    io::{BufReader, Write},
    sync::{Arc, Mutex, mpsc},
};

use seaway_model::load_balancer::{Action, Match, PathMatch, Rule};
use seaway_testkit::balancing::pool_id;

use crate::{
    desync::{BODILESS, Client, HALF, Scene, WHOLE, WITH_BODIES, no_harm, sized, tries},
    stage::*,
    worst::{Fault, answer, member, read_head, target_of},
};

#[test]
fn an_unsolicited_answer_is_no_other_client_s_answer() {
    let (go, gone) = mpsc::channel::<()>();
    let (done, said) = mpsc::channel();
    let gone = Arc::new(Mutex::new(gone));
    let member = Backend::new(HERE, move |stream| {
        // What waits in the member's kernel until the next request is nothing that a proxy could know of.
        stream.set_nodelay(true).unwrap();
        let (mut reader, mut writer) = (BufReader::new(&stream), &stream);
        while let Some(head) = read_head(&mut reader) {
            let target = target_of(&head);
            if writer.write_all(answer(&target, false).as_bytes()).is_err() {
                return;
            }
            if target == "/attack" {
                let _ = gone.lock().unwrap().recv();
                let _ = writer.write_all(answer("/poison", false).as_bytes());
                let _ = done.send(());
            }
        }
    });
    let mut scene = Scene::new("an unsolicited answer", member.at);
    for _ in 0..tries() {
        Client::new(scene.at).ask("GET /attack HTTP/1.1\r\nHost: a\r\n\r\n");
        go.send(()).unwrap();
        said.recv_timeout(PATIENCE).unwrap();
        scene.try_victim();
    }
    no_harm([scene.judge()]);
}

/// The second is there when the first is read: nobody has to wait for it.
#[test]
fn a_second_answer_that_comes_with_the_first_ends_the_connection() {
    let connections = Arc::new(Mutex::new(0));
    let count = connections.clone();
    let member = Backend::new(HERE, move |stream| {
        *count.lock().unwrap() += 1;
        stream.set_nodelay(true).unwrap();
        let (mut reader, mut writer) = (BufReader::new(&stream), &stream);
        while let Some(head) = read_head(&mut reader) {
            let target = target_of(&head);
            let second = if target == "/attack" { answer("/poison", false) } else { String::new() };
            if writer.write_all((answer(&target, false) + &second).as_bytes()).is_err() {
                return;
            }
        }
    });
    let mut scene = Scene::new("two answers in one segment", member.at);
    for _ in 0..tries() {
        let (status, body) = Client::new(scene.at).ask("GET /attack HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(status == 200 && !body.contains("poison"), "{status} {body}");
        scene.try_victim();
    }
    no_harm([scene.judge()]);
    assert!(*connections.lock().unwrap() > tries(), "each of those connections has ended");
}

/// The proxy does not read the body of what it answers itself: that is no request either.
#[test]
fn a_body_of_what_no_member_is_asked_for_is_no_request() {
    let member = member(Fault::ReadsNoBody);
    let own = Match { path: Some(PathMatch::Exact("/own".into())), ..Match::default() };
    let own = Rule {
        matches: vec![own],
        action: Action::Respond { code: 200, body: "own".into() },
        ..Rule::forward_all(owner(), pool_id())
    };
    let mut scene = Scene::with("0.CL at our own answers", pool(&[member.at]), |listener| {
        listener.rules.insert(0, own.clone().into());
    });
    for method in [BODILESS, WITH_BODIES].concat().iter().cycle().take(tries()) {
        for body in [WHOLE, HALF] {
            let mut attacker = Client::new(scene.at);
            attacker.ask(&sized(method, body).replace("/attack", "/own"));
            assert_eq!(attacker.answer(false).0, 0, "{method}: the body was answered, too");
        }
        scene.try_victim();
    }
    no_harm([scene.judge()]);
}
