//! Small servers to balance, and how clients speak with them.

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use crate::harness::PATIENCE;

/// Says its name to whoever connects, then echoes. Dropping it ends it, connections too.
pub(crate) struct Backend {
    pub(crate) name: String,
    pub(crate) at: SocketAddr,
    pub(crate) accepted: Arc<AtomicUsize>,
    ended: Arc<AtomicBool>,
    open: Arc<Mutex<Vec<TcpStream>>>,
}

impl Backend {
    pub(crate) fn start(name: &str) -> Backend {
        Backend::start_at(name, "127.0.0.1:0")
    }

    pub(crate) fn start_at(name: &str, at: &str) -> Backend {
        let listener = TcpListener::bind(at).expect("a port");
        let backend = Backend {
            name: name.to_owned(),
            at: listener.local_addr().expect("it is bound"),
            accepted: Arc::default(),
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
    pub(crate) fn kill(&self) {
        if self.ended.swap(true, Ordering::Relaxed) {
            return;
        }
        // Wakes the listener, which then goes away.
        let _ = TcpStream::connect(self.at);
        for stream in self.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO));
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    }
}

impl Backend {
    /// Where it was, and nobody is any more.
    pub(crate) fn kill_and_tell(self) -> SocketAddr {
        self.kill();
        let at = self.at;
        crate::harness::until("it is gone", || TcpStream::connect(at).is_err());
        at
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.kill();
    }
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
    let _ = stream.shutdown(std::net::Shutdown::Both);
}

/// Answers each datagram with its name and the datagram.
pub(crate) struct Datagrams {
    pub(crate) at: SocketAddr,
    ended: Arc<AtomicBool>,
}

impl Datagrams {
    pub(crate) fn start(name: &str) -> Datagrams {
        Datagrams::start_at(name, "127.0.0.1:0")
    }

    pub(crate) fn start_at(name: &str, at: &str) -> Datagrams {
        let name = name.to_owned();
        let answer = move |question: &[u8]| [name.as_bytes(), b" ", question].concat();
        Datagrams::answering_at(at, answer)
    }

    pub(crate) fn answering(answer: impl FnMut(&[u8]) -> Vec<u8> + Send + 'static) -> Datagrams {
        Datagrams::answering_at("127.0.0.1:0", answer)
    }

    fn answering_at(at: &str, mut answer: impl FnMut(&[u8]) -> Vec<u8> + Send + 'static) -> Datagrams {
        let socket = UdpSocket::bind(at).expect("a port");
        socket.set_read_timeout(Some(Duration::from_millis(100))).expect("a timeout");
        let at = socket.local_addr().expect("it is bound");
        let ended = Arc::new(AtomicBool::new(false));
        let end = ended.clone();
        thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while !end.load(Ordering::Relaxed) {
                if let Ok((count, from)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(&answer(&buffer[..count]), from);
                }
            }
        });
        Datagrams { at, ended }
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
    }
}

/// A connection that knows who answers it.
pub(crate) struct Talk {
    pub(crate) stream: TcpStream,
    pub(crate) with: String,
}

impl Talk {
    pub(crate) fn open(at: SocketAddr) -> std::io::Result<Talk> {
        Talk::on(TcpStream::connect_timeout(&at, PATIENCE)?)
    }

    /// As another client: all of 127.0.0.0/8 is local.
    pub(crate) fn open_from(client: IpAddr, at: SocketAddr) -> std::io::Result<Talk> {
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
    pub(crate) fn echo(&mut self, text: &[u8]) -> std::io::Result<()> {
        self.stream.write_all(text)?;
        let mut back = vec![0; text.len()];
        self.stream.read_exact(&mut back)?;
        assert!(back == text, "other bytes came back");
        Ok(())
    }
}

pub(crate) fn connect_from(client: IpAddr, at: SocketAddr) -> std::io::Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(at), socket2::Type::STREAM, None)?;
    socket.bind(&SocketAddr::new(client, 0).into())?;
    socket.connect_timeout(&at.into(), PATIENCE)?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Sends, and tells the answer.
pub(crate) fn ask(socket: &UdpSocket, at: SocketAddr, question: &[u8]) -> std::io::Result<Vec<u8>> {
    socket.connect(at)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send(question)?;
    let mut answer = vec![0; 65_536];
    let count = socket.recv(&mut answer)?;
    answer.truncate(count);
    Ok(answer)
}

/// Answers every HTTP request with a status.
pub(crate) struct Web {
    pub(crate) at: SocketAddr,
    status: Arc<AtomicUsize>,
    asked: Arc<Mutex<String>>,
}

impl Web {
    pub(crate) fn start(status: usize) -> Web {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let at = listener.local_addr().expect("it is bound");
        let web = Web { at, status: Arc::new(AtomicUsize::new(status)), asked: Arc::default() };
        let (status, asked) = (web.status.clone(), web.asked.clone());
        // It ends with the tests.
        thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let mut request = Vec::new();
                let mut buffer = [0; 1_024];
                let _ = stream.set_read_timeout(Some(Duration::from_secs(2)));
                while !request.ends_with(b"\r\n\r\n") {
                    match stream.read(&mut buffer) {
                        Ok(count @ 1..) => request.extend_from_slice(&buffer[..count]),
                        _ => break,
                    }
                }
                *asked.lock().unwrap_or_else(PoisonError::into_inner) =
                    String::from_utf8_lossy(&request).into_owned();
                let status = status.load(Ordering::Relaxed);
                let _ =
                    write!(stream, "HTTP/1.1 {status} So\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            }
        });
        web
    }

    pub(crate) fn answer(&self, status: usize) {
        self.status.store(status, Ordering::Relaxed);
    }

    /// The last request.
    pub(crate) fn asked(&self) -> String {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// A Service of type LoadBalancer and a slice for each backend (each has a port of its own).
pub(crate) fn manifest(
    name: &str,
    port: u16,
    annotations: &[(&str, &str)],
    backends: &[SocketAddr],
) -> String {
    let mut text = format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  annotations:\n    a.example/b: c\n"
    );
    for (key, value) in annotations {
        text.push_str(&format!("    {key}: {value:?}\n"));
    }
    text.push_str(&format!(
        "spec:\n  type: LoadBalancer\n  ports:\n  - {{name: main, port: {port}, protocol: TCP}}\n"
    ));
    text.push_str(&slices(name, "TCP", backends));
    text
}

pub(crate) fn slices(name: &str, protocol: &str, backends: &[SocketAddr]) -> String {
    let mut text = String::new();
    for (index, at) in backends.iter().enumerate() {
        let family = if matches!(at.ip(), IpAddr::V4(_)) { "IPv4" } else { "IPv6" };
        text.push_str(&format!(
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: {name}-{index}\n  labels: {{kubernetes.io/service-name: {name}}}\naddressType: {family}\nendpoints:\n- addresses: [\"{}\"]\nports:\n- {{name: main, protocol: {protocol}, port: {}}}\n",
            at.ip(),
            at.port(),
        ));
    }
    text
}
