use std::{
    io::{Read, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use socket2::SockRef;

use super::{PATIENCE, until};

/// Says its name to whoever connects, then echoes. Dropping it ends it, connections too.
#[derive(Debug)]
pub struct Backend {
    pub name: String,
    pub at: SocketAddr,
    /// Connections on which a client has spoken.
    pub accepted: Arc<AtomicUsize>,
    listener: Arc<TcpListener>,
    ended: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Backend {
    pub fn start(name: &str) -> Backend {
        Backend::start_at(name, "127.0.0.1:0")
    }

    pub fn start_at(name: &str, at: impl ToSocketAddrs) -> Backend {
        let listener = Arc::new(TcpListener::bind(at).expect("a port"));
        let backend = Backend {
            name: name.to_owned(),
            at: listener.local_addr().expect("it is bound"),
            accepted: Arc::default(),
            listener: listener.clone(),
            ended: Arc::default(),
            open: Arc::default(),
        };
        let (name, accepted) = (backend.name.clone(), backend.accepted.clone());
        let (ended, open) = (backend.ended.clone(), backend.open.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                if ended.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                if let Ok(copy) = stream.try_clone() {
                    open.lock().unwrap_or_else(PoisonError::into_inner).push(copy);
                }
                let (name, accepted) = (name.clone(), accepted.clone());
                thread::spawn(move || serve(stream, &name, &accepted));
            }
        });
        backend
    }

    /// As if the process were killed: the port is closed and connections are reset.
    pub fn kill(&self) {
        if self.ended.swap(true, Ordering::Relaxed) {
            return;
        }
        close(&self.listener);
        for stream in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            let _ = stream.shutdown(Shutdown::Both);
        }
    }

    /// Where it was, and nobody is any more.
    pub fn kill_and_tell(self) -> SocketAddr {
        self.kill();
        let at = self.at;
        until("it is gone", || TcpStream::connect(at).is_err());
        at
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Wakes whoever waits for a connection, with an error. Linux does that, in whatever namespace the socket is.
pub(super) fn close(listener: &TcpListener) {
    let _ = SockRef::from(listener).shutdown(Shutdown::Both);
}

fn serve(mut stream: TcpStream, name: &str, accepted: &AtomicUsize) {
    let _ = stream.set_nodelay(true);
    if stream.write_all(format!("{name}\n").as_bytes()).is_err() {
        return;
    }
    let mut buffer = [0; 16_384];
    let mut counted = false;
    while let Ok(count) = stream.read(&mut buffer) {
        if !std::mem::replace(&mut counted, true) && count > 0 {
            accepted.fetch_add(1, Ordering::Relaxed);
        }
        if count == 0 || stream.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    // A copy of it is kept for `kill`, so dropping this one would close nothing.
    let _ = stream.shutdown(Shutdown::Both);
}

/// A connection that knows who answers it.
#[derive(Debug)]
pub struct Talk {
    pub stream: TcpStream,
    pub with: String,
}

impl Talk {
    pub fn open(at: SocketAddr) -> std::io::Result<Talk> {
        Talk::on(TcpStream::connect_timeout(&at, PATIENCE)?)
    }

    /// As another client: all of 127.0.0.0/8 is local.
    pub fn open_from(client: IpAddr, at: SocketAddr) -> std::io::Result<Talk> {
        Talk::on(connect_from(client, at)?)
    }

    fn on(mut stream: TcpStream) -> std::io::Result<Talk> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let mut with = String::new();
        let mut byte = [0];
        loop {
            stream.read_exact(&mut byte)?;
            if byte[0] == b'\n' {
                return Ok(Talk { stream, with });
            }
            with.push(byte[0] as char);
        }
    }

    /// Sends, and gets the same back.
    pub fn echo(&mut self, text: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(text)?;
        let mut back = vec![0; text.len()];
        self.stream.read_exact(&mut back)?;
        assert!(back == text, "other bytes came back");
        Ok(())
    }
}

pub fn connect_from(client: IpAddr, at: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(at), socket2::Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(client, 0).into())?;
    socket.connect_timeout(&at.into(), PATIENCE)?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}
