use std::{
    net::{Shutdown, SocketAddr, ToSocketAddrs, UdpSocket},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use socket2::SockRef;

use super::PATIENCE;

/// Answers each datagram with its name and the datagram. Dropping it ends it.
#[derive(Debug)]
pub struct Datagrams {
    pub at: SocketAddr,
    socket: Arc<UdpSocket>,
    ended: Arc<AtomicBool>,
}

impl Datagrams {
    pub fn start(name: &str) -> Datagrams {
        Datagrams::start_at(name, "127.0.0.1:0")
    }

    pub fn start_at(name: &str, at: impl ToSocketAddrs) -> Datagrams {
        let name = name.to_owned();
        Datagrams::answering_at(at, move |question| [name.as_bytes(), b" ", question].concat())
    }

    pub fn answering(answer: impl FnMut(&[u8]) -> Vec<u8> + Send + 'static) -> Datagrams {
        Datagrams::answering_at("127.0.0.1:0", answer)
    }

    pub fn answering_at(
        at: impl ToSocketAddrs,
        mut answer: impl FnMut(&[u8]) -> Vec<u8> + Send + 'static,
    ) -> Datagrams {
        let socket = Arc::new(UdpSocket::bind(at).expect("a port"));
        let at = socket.local_addr().expect("it is bound");
        let ended = Arc::new(AtomicBool::new(false));
        let (ours, end) = (socket.clone(), ended.clone());
        thread::spawn(move || {
            let mut buffer = [0; 65_536];
            while !end.load(Ordering::Relaxed) {
                if let Ok((count, from)) = ours.recv_from(&mut buffer) {
                    let _ = ours.send_to(&answer(&buffer[..count]), from);
                }
            }
        });
        Datagrams { at, socket, ended }
    }
}

impl Drop for Datagrams {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // It says that nothing was connected, and wakes whoever waits all the same.
        let _ = SockRef::from(&*self.socket).shutdown(Shutdown::Both);
    }
}

/// Sends, and tells the answer.
pub fn ask(socket: &UdpSocket, at: SocketAddr, question: &[u8]) -> std::io::Result<Vec<u8>> {
    socket.connect(at)?;
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.send(question)?;
    let mut answer = vec![0; 65_536];
    let count = socket.recv(&mut answer)?;
    answer.truncate(count);
    Ok(answer)
}
