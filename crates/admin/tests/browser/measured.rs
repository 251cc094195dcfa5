//! The page with a script added that measures it. The page's own policy forbids such a script, so this server stands
//! between and takes the policy off; everything else passes through. `/within/390` shows the page in a frame of that
//! width: a browser's window does not get as narrow as a phone.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::client;

/// What the browser is told to do with the page, and where it writes what it found: attributes of the root.
const SCRIPT: &str = include_str!("measure.js");

pub(crate) struct Measured {
    pub(crate) at: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Measured {
    /// With `lost`, the updates of the page are not answered.
    pub(crate) fn before(admin: SocketAddr, lost: bool) -> Measured {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                // A browser opens connections that it may never use; each gets a thread of its own.
                thread::spawn(move || pass(stream.unwrap(), admin, lost));
            }
        });
        Measured { at, stop, thread: Some(thread) }
    }
}

impl Drop for Measured {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        _ = TcpStream::connect(self.at);
        _ = self.thread.take().map(JoinHandle::join);
    }
}

fn pass(mut stream: TcpStream, admin: SocketAddr, lost: bool) {
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    let Some(Ok(first)) = lines.next() else { return };
    while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
    let path = first.split(' ').nth(1).unwrap();
    if lost && path.contains("part=live") {
        return;
    }
    let body = match path.strip_prefix("/within/") {
        Some(width) => format!(
            "<!doctype html><html><body><iframe src=\"/\" width=\"{width}\" height=\"844\" frameborder=\"0\"></iframe>"
        ),
        None => client::ask(admin, path).body,
    };
    let body = body.replace("</body>", &format!("<script>{SCRIPT}</script></body>"));
    _ = write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
}
