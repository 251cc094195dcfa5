use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use super::streams::close;

/// Answers every HTTP request with its name and a status, 200 until told otherwise. Dropping it ends it.
#[derive(Debug)]
pub struct Web {
    pub at: SocketAddr,
    listener: Arc<TcpListener>,
    ended: Arc<AtomicBool>,
    status: Arc<AtomicUsize>,
    asked: Arc<Mutex<String>>,
    count: Arc<AtomicUsize>,
}

impl Web {
    pub fn start(name: &str) -> Web {
        Web::start_at(name, "127.0.0.1:0")
    }

    pub fn start_at(name: &str, at: impl ToSocketAddrs) -> Web {
        let listener = Arc::new(TcpListener::bind(at).expect("a port"));
        let web = Web {
            at: listener.local_addr().expect("it is bound"),
            listener: listener.clone(),
            ended: Arc::default(),
            status: Arc::new(AtomicUsize::new(200)),
            asked: Arc::default(),
            count: Arc::default(),
        };
        let name = format!("{name}\n");
        let (ended, status, asked, count) =
            (web.ended.clone(), web.status.clone(), web.asked.clone(), web.count.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(mut stream) = stream else { continue };
                let request = request_on(&mut stream);
                if request.is_empty() {
                    // A health check that only connects.
                    continue;
                }
                count.fetch_add(1, Ordering::Relaxed);
                *asked.lock().unwrap_or_else(PoisonError::into_inner) = request;
                let status = status.load(Ordering::Relaxed);
                let body = if status == 204 { "" } else { &name };
                let _ = write!(
                    stream,
                    "HTTP/1.1 {status} So\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
                    body.len()
                );
            }
        });
        web
    }

    pub fn answer(&self, status: usize) {
        self.status.store(status, Ordering::Relaxed);
    }

    /// The head of the last request.
    pub fn last_request(&self) -> String {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many requests there were.
    pub fn count(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        close(&self.listener);
    }
}

/// All until the empty line, or until nothing comes any more.
fn request_on(stream: &mut TcpStream) -> String {
    let mut request = Vec::new();
    let mut buffer = [0; 1_024];
    let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(count @ 1..) => request.extend_from_slice(&buffer[..count]),
            _ => break,
        }
    }
    String::from_utf8_lossy(&request).into_owned()
}
