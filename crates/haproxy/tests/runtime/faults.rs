//! What goes wrong: files of others, files that HAProxy refuses, processes that are killed, settings that others changed.

use std::{
    fs, io,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    os::unix::net::UnixStream,
    sync::Arc,
    time::Instant,
};

use seaway_haproxy::{
    difference::ReloadReason,
    document::{Pem, SlotMember},
    process::{Haproxy, ProcessError},
};
use seaway_testkit::{
    topology::{PATIENCE, until},
    traffic::{Clients, Kind, Target},
};

use crate::{
    changes::is_as_wanted,
    place::{BACKENDS, label, place, slots},
};

#[test]
fn a_bad_file_never_replaces_a_good_one() {
    let Some(place) = place() else { return };
    let good = place.document();
    let haproxy = place.start(&good);
    let clients = Clients::here();
    let load = clients.load(vec![Target::new("short", Kind::Http, place.http).times(100)]);
    let file = fs::read(place.config()).expect("its file");
    let pem = place.run().join("certificates/shop.pem");
    let key = fs::read(&pem).expect("a certificate");
    let mut bad = good.clone();
    bad.certificates.insert(label("shop.pem"), Pem::new("no certificate", "no key"));
    // By a command, and where another backend needs a reload.
    for with_reload in [false, true] {
        if with_reload {
            place.add_backend(&mut bad, BACKENDS);
        }
        let refused = place.serve(&haproxy, &bad).expect_err("refused");
        assert!(refused.contains("HAProxy refuses"), "{refused}");
        assert!(!refused.contains("no key"), "{refused}");
        assert_eq!(fs::read(place.config()).expect("its file"), file);
        assert_eq!(fs::read(&pem).expect("a certificate"), key);
    }
    is_as_wanted(&place, &good);
    assert_eq!(haproxy.report().borrow().reloads_done, 0);
    // One that is bad does not keep others from being served.
    let mut half = good.clone();
    half.certificates.insert(label("shop.pem"), Pem::new("no certificate", "no key"));
    slots(&mut half, "b3")[2].member = Some(place.member(1));
    place.serve(&haproxy, &half).expect_err("refused");
    is_as_wanted(&place, &half);
    let mut better = good.clone();
    place.add_backend(&mut better, BACKENDS);
    place.serve(&haproxy, &better).expect("served");
    is_as_wanted(&place, &better);
    assert!(haproxy.report().borrow().reloads.contains_key(&ReloadReason::NewBackend));
    load.goes_on(5);
    load.end().was_always_answered();
    place.runtime.block_on(haproxy.stop());
}

#[test]
fn a_file_or_a_folder_of_others_is_never_written_over() {
    let Some(place) = place() else { return };
    let start = || place.runtime.block_on(Haproxy::start(place.options(), Arc::new(place.document())));
    fs::write(place.config(), "# mine\nglobal\n").expect("written");
    assert!(matches!(start(), Err(ProcessError::Foreign { .. })));
    assert_eq!(fs::read_to_string(place.config()).expect("it is there"), "# mine\nglobal\n");
    fs::remove_file(place.config()).expect("removed");
    fs::create_dir(place.run()).expect("made");
    fs::write(place.run().join("mine"), "").expect("written");
    assert!(matches!(start(), Err(ProcessError::Foreign { .. })));
    assert!(!place.config().exists());
    // And one that came while it runs.
    fs::remove_file(place.run().join("mine")).expect("removed");
    let haproxy = start().expect("it starts");
    fs::write(place.config(), "# mine\nglobal\n").expect("written");
    let mut document = place.document();
    place.add_backend(&mut document, BACKENDS);
    let refused = place.serve(&haproxy, &document).expect_err("refused");
    assert!(refused.contains("was not written by Seaway"), "{refused}");
    assert_eq!(fs::read_to_string(place.config()).expect("it is there"), "# mine\nglobal\n");
}

#[test]
fn a_killed_worker_or_master_is_started_again_with_what_was_wanted_last() {
    let Some(place) = place() else { return };
    let mut document = place.document();
    let haproxy = place.start(&document);
    // No file has it yet.
    slots(&mut document, "b0")[3].member = Some(place.member(2));
    place.serve(&haproxy, &document).expect("served");
    let clients = Clients::here();
    let target = Target::new("shop", Kind::Http, place.http);
    for (round, kills_master) in [false, true].into_iter().enumerate() {
        let report = haproxy.report().borrow().clone();
        let process = if kills_master { report.master } else { report.worker };
        let process = i32::try_from(process.expect("it runs")).expect("a number");
        let killed = Instant::now();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(process), nix::sys::signal::Signal::SIGKILL)
            .expect("killed");
        until("it was started again", || haproxy.report().borrow().restarts as usize > round);
        until("it serves", || clients.ask(&target).is_ok());
        seaway_testkit::rig("haproxy", &format!("serves again {:?} after a kill", killed.elapsed()));
        is_as_wanted(&place, &document);
    }
    place.runtime.block_on(haproxy.stop());
}

#[test]
fn what_others_changed_is_put_right_by_the_next_reload() {
    let Some(place) = place() else { return };
    let mut document = place.document();
    let haproxy = place.start(&document);
    let mut other = UnixStream::connect(place.run().join("worker.sock")).expect("it answers");
    let commands = b"set server b0/s1 weight 7;set server b1/s1 state drain;set server b2/s1 state maint\n";
    other.write_all(commands).expect("sent");
    std::io::copy(&mut other, &mut std::io::sink()).expect("done");
    place.add_backend(&mut document, BACKENDS);
    place.serve(&haproxy, &document).expect("served");
    is_as_wanted(&place, &document);
    place.runtime.block_on(haproxy.stop());
}

#[test]
fn connections_that_last_outlive_a_reload_until_there_are_too_many_old_workers() {
    let Some(place) = place() else { return };
    let mut document = place.document();
    let mut options = place.options();
    options.old_workers = 2;
    let haproxy =
        place.runtime.block_on(Haproxy::start(options, Arc::new(document.clone()))).expect("it starts");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        listener.incoming().flatten().for_each(|it| drop(std::thread::spawn(|| echo(it))))
    });
    slots(&mut document, "b0")[0].member = Some(SlotMember { at, ..place.member(0) });
    place.serve(&haproxy, &document).expect("served");
    let mut tunnels = Vec::new();
    for round in 0..4 {
        tunnels.push(tunnel(place.http).expect("it is open"));
        place.add_backend(&mut document, BACKENDS + round);
        place.serve(&haproxy, &document).expect("served");
    }
    let open: Vec<bool> = tunnels.iter_mut().map(|it| asked(it).is_ok()).collect();
    assert_eq!(open, [false, false, true, true], "the newest two are left");
    drop(tunnels);
    place.runtime.block_on(haproxy.stop());
}

/// Agrees to whatever is asked of it, and sends back what comes then.
fn echo(mut stream: TcpStream) -> io::Result<()> {
    until_empty_line(&mut stream)?;
    stream.write_all(b"HTTP/1.1 101 Go\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")?;
    let mut back = stream.try_clone()?;
    io::copy(&mut stream, &mut back).map(drop)
}

/// A connection that HAProxy no longer looks into.
fn tunnel(at: SocketAddr) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(at)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: shop.example\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")?;
    until_empty_line(&mut stream)?;
    asked(&mut stream)?;
    Ok(stream)
}

fn asked(stream: &mut TcpStream) -> io::Result<()> {
    stream.write_all(b"hello")?;
    stream.read_exact(&mut [0; 5])
}

fn until_empty_line(stream: &mut TcpStream) -> io::Result<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte)?;
        head.push(byte[0]);
    }
    Ok(())
}
