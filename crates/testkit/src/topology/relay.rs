use std::{
    io,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
};

use super::{Namespace, streams::close};

/// A way from the loopback of whoever makes it into a namespace. Dropping it ends it, with all that goes through it.
#[derive(Debug)]
pub struct Relay {
    pub at: SocketAddr,
    listener: Arc<TcpListener>,
    ended: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    /// To where `to` is in that namespace, for as long as that exists.
    pub fn into(namespace: &Arc<Namespace>, to: SocketAddr) -> Relay {
        // Sockets stay in the namespace in which they were made: this one in that of the caller.
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").expect("a port"));
        let mut relay = Relay {
            at: listener.local_addr().expect("it is bound"),
            listener: listener.clone(),
            ended: Arc::default(),
            open: Arc::default(),
            thread: None,
        };
        let (namespace, ended, open) = (namespace.clone(), relay.ended.clone(), relay.open.clone());
        let accepting = move || namespace.run(|| accept(&listener, to, &ended, &open));
        relay.thread = Some(thread::spawn(accepting));
        relay
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        close(&self.listener);
        for stream in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
        // The namespace ends with its last user, which must not be a thread that nobody waits for.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, to: SocketAddr, ended: &AtomicBool, open: &Arc<Mutex<Vec<TcpStream>>>) {
    for near in listener.incoming() {
        if ended.load(Ordering::Relaxed) {
            return;
        }
        // Where nobody answers, the client is told by an end.
        let Ok(near) = near else { continue };
        let Ok(far) = TcpStream::connect(to) else { continue };
        let open = open.clone();
        thread::spawn(move || {
            let mut kept = Vec::new();
            for stream in [&near, &far] {
                let _ = stream.set_nodelay(true);
                kept.extend(stream.try_clone());
            }
            let ports: Vec<_> = kept.iter().map(TcpStream::local_addr).filter_map(Result::ok).collect();
            open.lock().unwrap_or_else(PoisonError::into_inner).extend(kept);
            thread::scope(|scope| {
                scope.spawn(|| pass(&near, &far));
                pass(&far, &near);
            });
            let is_ours = |it: &TcpStream| it.local_addr().is_ok_and(|at| ports.contains(&at));
            open.lock().unwrap_or_else(PoisonError::into_inner).retain(|it| !is_ours(it));
        });
    }
}

fn pass(mut from: &TcpStream, mut to: &TcpStream) {
    let _ = io::copy(&mut from, &mut to);
    let _ = to.shutdown(Shutdown::Write);
    let _ = from.shutdown(Shutdown::Read);
}
