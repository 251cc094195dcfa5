//! Members that are asked by HTTP/2.

use super::*;

/// Answers checks by gRPC for `shop` as it is told: a status of gRPC, and the health in the message.
fn grpc_member(answer: Arc<Mutex<(u32, u8)>>) -> (SocketAddr, tokio::runtime::Runtime) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let at = listener.local_addr().unwrap();
    runtime.spawn(async move {
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        while let Ok((stream, _)) = listener.accept().await {
            let answer = answer.clone();
            tokio::spawn(async move {
                let Ok(mut connection) = h2::server::handshake(stream).await else { return };
                while let Some(Ok((request, respond))) = connection.accept().await {
                    tokio::spawn(healthy(request, respond, answer.clone()));
                }
            });
        }
    });
    (at, runtime)
}

async fn healthy(
    request: http::Request<h2::RecvStream>,
    mut respond: h2::server::SendResponse<bytes::Bytes>,
    answer: Arc<Mutex<(u32, u8)>>,
) {
    let (head, mut body) = request.into_parts();
    if head.method == http::Method::GET {
        let status = if head.uri.path() == "/" { 200 } else { 404 };
        respond.send_response(http::Response::builder().status(status).body(()).unwrap(), true).unwrap();
        return;
    }
    let asked = body.data().await.unwrap().unwrap();
    let right = head.uri.path() == "/grpc.health.v1.Health/Check" && &asked[5..] == b"\x0a\x04shop";
    let (status, health) = if right { *answer.lock().unwrap() } else { (3, 0) };
    let head = http::Response::builder().header("content-type", "application/grpc");
    if status > 0 {
        respond.send_response(head.header("grpc-status", status).body(()).unwrap(), true).unwrap();
        return;
    }
    let mut to = respond.send_response(head.body(()).unwrap(), false).unwrap();
    to.send_data(bytes::Bytes::copy_from_slice(&[0, 0, 0, 0, 2, 8, health]), false).unwrap();
    let mut trailers = http::HeaderMap::new();
    trailers.insert("grpc-status", "0".parse().unwrap());
    to.send_trailers(trailers).unwrap();
}

#[test]
fn a_member_is_asked_by_grpc_how_it_is() {
    let answer = Arc::new(Mutex::new((0, 1)));
    let (at, _runtime) = grpc_member(answer.clone());
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent_at = silent.local_addr().unwrap();
    let other = Backend::tcp(FAMILIES[0], b"HTTP/1.1 200 OK\r\n\r\n", mpsc::channel().0);
    let kind = CheckKind::Grpc { service: "shop".into() };
    let check_registry = CheckRegistry::new(kind, &[at, silent_at, other.at], |pool| {
        pool.health.as_mut().unwrap().timeout = Duration::from_millis(500);
    });
    check_registry.becomes(silent_at, Health::Down);
    check_registry.becomes(other.at, Health::Down);
    assert_ne!(check_registry.health(at), Health::Down);
    for wrong in [(0, 2), (0, 3), (12, 0), (14, 0)] {
        *answer.lock().unwrap() = wrong;
        check_registry.becomes(at, Health::Down);
        *answer.lock().unwrap() = (0, 1);
        check_registry.becomes(at, Health::Up);
    }
}

#[test]
fn a_member_that_sends_frames_without_end_is_ill_and_keeps_nobody() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let flood = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let ping = [0, 0, 8, 6, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8].repeat(1_000);
        stream.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).unwrap();
        while stream.write_all(&ping).is_ok() {}
    });
    let check_registry = CheckRegistry::new(CheckKind::Grpc { service: "shop".into() }, &[at], |pool| {
        // It is not for being late.
        pool.health.as_mut().unwrap().timeout = Duration::from_secs(600);
        pool.health.as_mut().unwrap().fall = 1;
    });
    check_registry.becomes(at, Health::Down);
    flood.join().unwrap();
}

#[test]
fn a_member_that_speaks_http_2_alone_is_asked_by_it() {
    let (at, _runtime) = grpc_member(Arc::new(Mutex::new((0, 1))));
    let http_1 = Backend::tcp(FAMILIES[0], b"HTTP/1.1 200 OK\r\n\r\n", mpsc::channel().0);
    for (path, expect, expected) in
        [("/", None, Health::Up), ("/", Some("ready"), Health::Down), ("/no", None, Health::Down)]
    {
        let (path, expect) = (path.into(), expect.map(Into::into));
        let kind = CheckKind::Http { path, host: None, status: (200, 299), expect };
        let h2 = |pool: &mut Pool| pool.protocol = seaway_model::load_balancer::BackendProtocol::Http2;
        let check_registry = CheckRegistry::new(kind, &[at, http_1.at], h2);
        check_registry.becomes(at, expected);
        check_registry.becomes(http_1.at, Health::Down);
    }
}
