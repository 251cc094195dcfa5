//! Members that are given no more connections than they may have, and clients that wait for them.

use std::{
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

use seaway_model::{
    Pool,
    load_balancer::{Affinity, MemberLimit},
};
use seaway_proxy::RefusalReason;

use crate::stage::*;

fn limited(members: &[SocketAddr], connections: u32, wait: Duration) -> Pool {
    Pool { member_limit: Some(MemberLimit { connections, wait }), ..pool(members) }
}

fn serve(pool: Pool, workers: usize) -> (Stage, SocketAddr) {
    let stage = Stage::with_workers(workers);
    stage.put(pool);
    let (at, _) = stage.open(HERE, |_| {});
    (stage, at)
}

fn wait_in_queue(stage: &Stage, at: SocketAddr, before: usize) -> TcpStream {
    let stream = connect(at);
    eventually("it waits", || stage.waiting() == before + 1);
    stream
}

#[test]
fn clients_wait_in_order_for_a_member_that_has_room() {
    let member = Backend::named(b'a');
    let (stage, at) = serve(limited(&[member.at], 1, PATIENCE), 2);
    let (_, first) = greeted(at);
    let mut second = wait_in_queue(&stage, at, 0);
    let mut third = wait_in_queue(&stage, at, 1);
    assert_eq!((member.accepted(), stage.member(member.at).traffic.current), (1, 1));

    drop(first);
    assert_eq!(name_of(&mut second), b'a');
    echoes(&mut second);
    assert_eq!((member.accepted(), stage.waiting()), (2, 1), "the third waits on");
    drop(second);
    assert_eq!(name_of(&mut third), b'a');
    echoes(&mut third);
    assert_eq!(stage.member(member.at).traffic.most, 1);
}

#[test]
fn a_client_that_waits_too_long_is_reset_and_one_that_leaves_holds_up_nobody() {
    let member = Backend::named(b'a');
    let (stage, at) = serve(limited(&[member.at], 1, Duration::from_millis(50)), 2);
    let (_, first) = greeted(at);
    assert!(is_refused(at));
    assert_eq!(stage.listener(at).refused(RefusalReason::Connections), 1);

    stage.put(limited(&[member.at], 1, PATIENCE));
    let leaver = wait_in_queue(&stage, at, 0);
    let mut last = wait_in_queue(&stage, at, 1);
    socket2::SockRef::from(&leaver).set_linger(Some(Duration::ZERO)).unwrap();
    drop(leaver);
    eventually("it has left", || stage.waiting() == 1);
    drop(first);
    assert_eq!(name_of(&mut last), b'a');
}

#[test]
fn without_a_time_to_wait_there_is_no_queue() {
    let member = Backend::named(b'a');
    let (stage, at) = serve(limited(&[member.at], 1, Duration::ZERO), 1);
    let (_, first) = greeted(at);
    assert!(is_refused(at));
    drop(first);
    eventually("there is room again", || stage.member(member.at).traffic.current == 0);
    greeted(at);
}

/// As an operator raises a limit, or a member comes.
#[test]
fn clients_that_wait_are_served_as_soon_as_the_pool_has_room() {
    let (one, two) = (Backend::named(b'a'), Backend::named(b'b'));
    let (stage, at) = serve(limited(&[one.at], 1, PATIENCE), 2);
    let _first = greeted(at);
    let mut second = wait_in_queue(&stage, at, 0);
    stage.put(limited(&[one.at, two.at], 1, PATIENCE));
    assert_eq!(name_of(&mut second), b'b');
    let mut third = wait_in_queue(&stage, at, 0);
    stage.put(pool(&[one.at, two.at]));
    assert!([b'a', b'b'].contains(&name_of(&mut third)), "without a limit nobody waits");
}

#[test]
fn a_backup_serves_where_the_others_fail_and_not_where_they_are_full() {
    let (member, backup) = (Backend::named(b'a'), Backend::named(b'z'));
    let mut plan = limited(&[member.at, backup.at], 1, PATIENCE);
    plan.members.iter_mut().filter(|it| it.at == backup.at).for_each(|it| it.backup = true);
    let (stage, at) = serve(plan, 2);
    let (_, first) = greeted(at);
    let mut second = wait_in_queue(&stage, at, 0);
    assert_eq!(backup.accepted(), 0);
    drop(member);
    drop(first);
    assert_eq!(name_of(&mut second), b'z', "nothing is left to wait for");
}

/// Many clients of several workers at once: nobody is forgotten, and no member ever has one more.
#[test]
fn no_member_has_more_than_it_may_have_and_no_client_is_forgotten() {
    const CLIENTS: usize = 16;
    let most = Arc::new(AtomicUsize::new(0));
    let backend = || {
        let (now, most) = (AtomicUsize::new(0), most.clone());
        Backend::new(HERE, move |mut stream| {
            most.fetch_max(now.fetch_add(1, SeqCst) + 1, SeqCst);
            let mut reader = stream.try_clone().unwrap();
            let mut byte = [0];
            let read = std::io::Read::read_exact(&mut reader, &mut byte);
            // Before the client knows that it was served, and so before another is led here.
            now.fetch_sub(1, SeqCst);
            if read.is_ok() {
                let _ = std::io::Write::write_all(&mut stream, &byte);
            }
        })
    };
    let (one, two) = (backend(), backend());
    let (stage, at) = serve(limited(&[one.at, two.at], 2, PATIENCE), 2);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|_| {
            thread::spawn(move || {
                for _ in 0..50 {
                    let mut stream = connect(at);
                    std::io::Write::write_all(&mut stream, b"x").unwrap();
                    assert_eq!(name_of(&mut stream), b'x');
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|it| it.join().unwrap());
    assert!(most.load(SeqCst) <= 2, "{most:?} at a time");
    assert_eq!(stage.member(one.at).traffic.most.max(stage.member(two.at).traffic.most), 2);
    eventually("all have gone", || stage.waiting() == 0 && stage.member(one.at).traffic.current == 0);
}

/// A client may keep one member, and open as many connections as it likes.
#[test]
fn a_line_full_of_clients_that_keep_another_member_refuses_nobody_whom_a_member_has_room_for() {
    let (one, two) = (Backend::named(b'a'), Backend::named(b'b'));
    let hour = Duration::from_secs(3600);
    let plan = Pool { affinity: Some(Affinity::ClientIp(hour)), ..limited(&[one.at, two.at], 1, PATIENCE) };
    let (stage, at) = serve(plan, 1);
    let (kept, _first) = greeted(at);
    let line: Vec<_> = (0..1024).map(|_| connect(at)).collect();
    eventually("the line is full", || stage.waiting() == 1024);
    let mut other = connect_from([127, 0, 0, 2], at);
    assert_ne!(name_of(&mut other), kept, "the other member has room");
    drop(line);
}
