use std::{
    io::{Read, Write},
    net::{Ipv6Addr, Shutdown},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use socket2::SockRef;

use crate::stage::*;

#[test]
fn bytes_go_both_ways_over_both_families() {
    for ip in [HERE, Ipv6Addr::LOCALHOST.into()] {
        let (stage, backend) = (Stage::new(), Backend::echo(ip));
        stage.put(pool(&[backend.at]));
        let (at, _) = stage.open(ip, |_| {});
        let mut client = connect(at);
        for _ in 0..100 {
            echoes(&mut client);
        }
    }
}

#[test]
fn a_server_may_speak_first() {
    let (stage, backend) = (Stage::new(), Backend::named(b'x'));
    let at = stage.serve(&[backend.at]);
    assert_eq!(greeted(at).0, b'x');
}

#[test]
fn a_client_that_has_finished_still_gets_its_answer() {
    let backend = Backend::new(HERE, |mut stream| {
        let mut request = Vec::new();
        stream.read_to_end(&mut request).unwrap();
        stream.write_all(&request.iter().rev().copied().collect::<Vec<_>>()).unwrap();
    });
    let stage = Stage::new();
    let at = stage.serve(&[backend.at]);
    let mut client = connect(at);
    client.write_all(b"abc").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"cba");
}

#[test]
fn a_member_that_has_finished_still_gets_what_the_client_sends() {
    let (tell, told) = mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let backend = Backend::new(HERE, move |mut stream| {
        stream.write_all(b"bye").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).unwrap();
        tell.lock().unwrap().send(rest).unwrap();
    });
    let stage = Stage::new();
    let at = stage.serve(&[backend.at]);
    let mut client = connect(at);
    let mut greeting = Vec::new();
    client.read_to_end(&mut greeting).unwrap();
    assert_eq!(greeting, b"bye");
    client.write_all(b"still here").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), b"still here");
    eventually("the connection is over", || stage.proxy.statistics().connections == 0);
}

#[test]
fn large_transfers_arrive_whole_both_ways_at_once() {
    let (stage, backend) = (Stage::new(), Backend::echo(HERE));
    let at = stage.serve(&[backend.at]);
    let clients: Vec<_> = (0..4)
        .map(|number| {
            thread::spawn(move || {
                let sent = noise(24 << 20, number + 1);
                let mut client = connect(at);
                let mut writer = client.try_clone().unwrap();
                let to_send = sent.clone();
                let writing = thread::spawn(move || {
                    writer.write_all(&to_send).unwrap();
                    writer.shutdown(Shutdown::Write).unwrap();
                });
                let mut received = Vec::new();
                client.read_to_end(&mut received).unwrap();
                writing.join().unwrap();
                assert!(received == sent, "{} bytes of {}", received.len(), sent.len());
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    let traffic = stage.listener(at).traffic;
    assert_eq!((traffic.bytes_in, traffic.bytes_out, traffic.total), (96 << 20, 96 << 20, 4));
    assert_eq!(stage.member(backend.at).traffic.bytes_in, 96 << 20);
}

/// Bulk, then small, then bulk: the way through a pipe is entered and left again.
#[test]
fn large_and_small_answers_alternate_on_one_connection() {
    let (stage, backend) = (Stage::new(), Backend::echo(HERE));
    let at = stage.serve(&[backend.at]);
    let mut client = connect(at);
    for round in 0..10 {
        for length in [1, 3_000_000, 17, 70_000, 262_144] {
            let sent = noise(length, round);
            let mut writer = client.try_clone().unwrap();
            let to_send = sent.clone();
            let writing = thread::spawn(move || writer.write_all(&to_send).unwrap());
            let mut received = vec![0; length];
            client.read_exact(&mut received).unwrap();
            writing.join().unwrap();
            assert!(received == sent);
        }
    }
}

/// Pipes are used again: what is in one when its connection breaks must not come out in another.
#[test]
fn nothing_of_a_broken_transfer_comes_out_elsewhere() {
    let (stage, backend) = (Stage::new(), Backend::echo(HERE));
    let at = stage.serve(&[backend.at]);
    let stuck: Vec<_> = (0..8)
        .map(|_| {
            let client = connect(at);
            client.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
            // Everything on the way is full in the end, as nothing is read.
            while (&client).write(&[0; 1 << 20]).is_ok() {}
            SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
            client
        })
        .collect();
    drop(stuck);
    eventually("they are gone", || stage.proxy.statistics().connections == 0);
    for seed in 1..9 {
        let sent = noise(4 << 20, seed);
        let mut client = connect(at);
        let (mut writer, to_send) = (client.try_clone().unwrap(), sent.clone());
        let writing = thread::spawn(move || writer.write_all(&to_send).unwrap());
        let mut received = vec![0; sent.len()];
        client.read_exact(&mut received).unwrap();
        writing.join().unwrap();
        assert!(received == sent);
    }
}

#[test]
fn a_reader_that_does_not_read_stops_the_member() {
    let written = Arc::new(AtomicUsize::new(0));
    let count = written.clone();
    const ALL: usize = 256 << 20;
    let backend = Backend::new(HERE, move |mut stream| {
        let chunk = vec![7; 1 << 20];
        while count.load(SeqCst) < ALL {
            let written = stream.write(&chunk).unwrap();
            count.fetch_add(written, SeqCst);
        }
    });
    let stage = Stage::new();
    let at = stage.serve(&[backend.at]);
    let mut client = connect(at);

    // Nothing moves any more for a while: all buffers are full.
    let (mut last, mut since) = (0, Instant::now());
    eventually("the member is stopped", || {
        let now = written.load(SeqCst);
        if now != last {
            (last, since) = (now, Instant::now());
        }
        last > 0 && since.elapsed() > Duration::from_millis(300)
    });
    // Buffers of the kernel hold some megabytes on each of four ends.
    assert!(last < 64 << 20, "{last} bytes are held between member and client");

    let mut received = 0;
    let mut buffer = vec![0; 1 << 20];
    while received < ALL {
        received += client.read(&mut buffer).unwrap();
    }
    assert_eq!(ending(&mut client), Ending::End);
}

#[test]
fn a_reset_of_the_client_reaches_the_member() {
    let (tell, told) = mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let backend = Backend::new(HERE, move |mut stream| {
        stream.write_all(b"x").unwrap();
        let outcome = stream.read(&mut [0; 1]).map_err(|error| error.kind());
        tell.lock().unwrap().send(outcome).unwrap();
    });
    let stage = Stage::new();
    let at = stage.serve(&[backend.at]);
    let (_, client) = greeted(at);
    SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    assert_eq!(told.recv_timeout(PATIENCE).unwrap(), Err(std::io::ErrorKind::ConnectionReset));
}

#[test]
fn a_reset_of_the_member_reaches_the_client() {
    let backend = Backend::new(HERE, |mut stream| {
        stream.read_exact(&mut [0; 4]).unwrap();
        SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    });
    let stage = Stage::new();
    let at = stage.serve(&[backend.at]);
    let mut client = connect(at);
    client.write_all(b"die, and more that is not read").unwrap();
    assert_eq!(ending(&mut client), Ending::Reset);
    eventually("it is counted", || stage.member(backend.at).resets == 1);
}

#[test]
fn a_connection_without_a_byte_ends_after_its_time() {
    let (stage, backend) = (Stage::new(), Backend::echo(HERE));
    stage.put(pool(&[backend.at]));
    let (at, _) = stage.open(HERE, |listener| listener.timeouts.idle = Duration::from_secs(3));
    let mut client = connect(at);
    let begin = Instant::now();
    let mut quiet = begin;
    while begin.elapsed() < Duration::from_secs(4) {
        quiet = Instant::now();
        echoes(&mut client);
    }
    assert_eq!(ending(&mut client), Ending::End);
    assert!(quiet.elapsed() >= Duration::from_millis(2_900), "{:?}", quiet.elapsed());
    eventually("it is gone", || stage.listener(at).traffic.current == 0);
}

#[test]
fn a_half_closed_connection_ends_after_its_time() {
    let backend = Backend::new(HERE, |mut stream| {
        let _ = stream.read_to_end(&mut Vec::new());
        // Goes on without an end of its own.
        let _ = stream.read(&mut [0; 1]);
        thread::park_timeout(PATIENCE);
    });
    let stage = Stage::new();
    stage.put(pool(&[backend.at]));
    let (at, _) = stage.open(HERE, |listener| listener.timeouts.half_closed = Duration::from_millis(100));
    let mut client = connect(at);
    client.write_all(b"x").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(ending(&mut client), Ending::End);
    eventually("it is gone", || stage.listener(at).traffic.current == 0);
}
