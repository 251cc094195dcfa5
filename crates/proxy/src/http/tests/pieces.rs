//! How much of a large body goes on at once.

use socket2::{Domain, Socket, Type};

use super::*;

const LARGE: usize = 4 << 20;

/// Of a member that answers whoever asks with a large body.
fn large() -> SocketAddr {
    let member = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let at = member.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in member.incoming().flatten() {
            let _asked = stream.read(&mut [0; 1024]).unwrap();
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n");
            // Whoever is gone need not hear it.
            let _ = stream.write_all(&[head.as_bytes(), &vec![7; LARGE]].concat());
        }
    });
    at
}

/// Takes more than a piece.
fn client_with_room(at: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4 << 20).unwrap();
    socket.connect(&at.into()).unwrap();
    socket.set_nonblocking(true).unwrap();
    socket.into()
}

/// The most that came in one turn of many, beside so many others who ask all the time; and all that came.
fn most_at_once(others: usize) -> (usize, usize) {
    let mut worker = ManualWorker::before(large());
    let mut greedy = client_with_room(worker.at);
    worker.turn();
    worker.at = worker.open_another();
    let mut others: Vec<TcpStream> = (0..others).map(|_| worker.client()).collect();
    greedy.write_all(ASKED).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let (mut most, mut all) = (0, 0);
    while all < LARGE {
        assert!(Instant::now() < deadline, "{all} came");
        for client in &mut others {
            while has_answer(client) {}
            client.write_all(ASKED).unwrap();
        }
        worker.turn();
        let came = heard(&mut greedy).len();
        (most, all) = (most.max(came), all + came);
    }
    (most, all)
}

#[test]
fn beside_others_a_large_body_goes_on_a_little_at_a_time() {
    let (most, all) = most_at_once(0);
    assert!(most > 256 << 10, "alone more of it goes on at once: {most} of {all}");
    let (most, all) = most_at_once(16);
    // One piece, and what came with the head.
    assert!(most <= 144 << 10, "{most} of {all} at once");
}
