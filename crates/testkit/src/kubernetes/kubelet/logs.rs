use std::{
    fs::File,
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use rustls::{ServerConfig, ServerConnection, StreamOwned, pki_types::PrivatePkcs8KeyDer};
use socket2::SockRef;

use crate::kubernetes::node::NodeContext;

/// Serves `GET /containerLogs/NAMESPACE/POD/CONTAINER` over TLS, as the API server asks a kubelet.
#[derive(Debug)]
pub(super) struct Logs {
    pub(super) port: u16,
    listener: Arc<TcpListener>,
    ended: Arc<AtomicBool>,
}

/// For more of a log that is followed.
const PAUSE: Duration = Duration::from_millis(100);

impl Logs {
    pub(super) fn serve(place: &NodeContext) -> Logs {
        let listener = Arc::new(TcpListener::bind("[::]:10250").expect("no kubelet is on this node"));
        let ended: Arc<AtomicBool> = Arc::default();
        let (config, folder) = (certificate(), place.folder.clone());
        let (accepting, end) = (listener.clone(), ended.clone());
        thread::spawn(move || {
            for stream in accepting.incoming() {
                if end.load(Ordering::Relaxed) {
                    return;
                }
                let (Ok(stream), config, folder, end) = (stream, config.clone(), folder.clone(), end.clone())
                else {
                    continue;
                };
                thread::spawn(move || answer(stream, config, folder, &end));
            }
        });
        Logs { port: 10250, listener, ended }
    }
}

impl Drop for Logs {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = SockRef::from(&*self.listener).shutdown(Shutdown::Both);
    }
}

/// The API server does not ask who signed it.
fn certificate() -> Arc<ServerConfig> {
    let made = rcgen::generate_simple_self_signed(["node".to_owned()]).expect("a plain certificate");
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config.expect("the provider has them").with_no_client_auth();
    Arc::new(config.with_single_cert(vec![made.cert.der().clone()], key.into()).expect("made for each other"))
}

fn answer(stream: TcpStream, config: Arc<ServerConfig>, folder: PathBuf, ended: &AtomicBool) {
    let Ok(session) = ServerConnection::new(config) else { return };
    let mut stream = StreamOwned::new(session, stream);
    let mut head = Vec::new();
    let mut buffer = [0; 4_096];
    while !head.windows(4).any(|it| it == b"\r\n\r\n") {
        match stream.read(&mut buffer) {
            Ok(count @ 1..) => head.extend_from_slice(&buffer[..count]),
            _ => return,
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let target = head.split(' ').nth(1).unwrap_or_default();
    let _ = send(&mut stream, target, &folder, ended);
    stream.conn.send_close_notify();
    let _ = stream.flush();
}

fn send(
    stream: &mut impl Write,
    target: &str,
    folder: &std::path::Path,
    ended: &AtomicBool,
) -> std::io::Result<()> {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parts: Vec<&str> = path.trim_start_matches('/').split('/').collect();
    let file = match parts[..] {
        ["containerLogs", namespace, pod, container] => {
            File::open(folder.join(format!("{namespace}_{pod}_{container}.log"))).ok()
        }
        _ => None,
    };
    let Some(mut file) = file else {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    };
    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n")?;
    let of = |name: &str| query.split('&').filter_map(|it| it.split_once('=')).find(|it| it.0 == name);
    let mut words = Vec::new();
    file.read_to_end(&mut words)?;
    let tail = of("tailLines").and_then(|it| it.1.parse::<usize>().ok());
    stream.write_all(last(&words, tail.unwrap_or(usize::MAX)))?;
    stream.flush()?;
    while of("follow").is_some_and(|it| it.1 == "true") && !ended.load(Ordering::Relaxed) {
        thread::park_timeout(PAUSE);
        words.clear();
        if file.read_to_end(&mut words)? > 0 {
            stream.write_all(&words)?;
            stream.flush()?;
        }
    }
    Ok(())
}

/// The last lines of a text.
fn last(words: &[u8], lines: usize) -> &[u8] {
    let ends = words.iter().enumerate().filter(|(_, it)| **it == b'\n').map(|(at, _)| at + 1);
    let starts: Vec<usize> = std::iter::once(0).chain(ends).filter(|at| *at < words.len()).collect();
    let from = starts.len().saturating_sub(lines);
    starts.get(from).map_or(&[], |at| &words[*at..])
}
