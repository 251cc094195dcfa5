//! Metrics by TLS: for those who may, and for nobody else.

use std::{
    io::{Read, Write},
    net::{IpAddr, SocketAddr, TcpStream},
    sync::{Arc, Mutex},
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto::aws_lc_rs, pki_types::ServerName,
};
use seaway_admin::{
    Admin, Authorization, Authorizer, Binding, BoundSockets, MetricsGuard, logging::LogHandle,
};
use secrecy::{ExposeSecret, SecretString};
use tokio::runtime::Runtime;

use crate::view;

struct Scene {
    runtime: Runtime,
    admin: Option<Admin>,
    page: SocketAddr,
    guarded: SocketAddr,
    tls: Arc<ClientConfig>,
    /// Who asked with which token.
    judged: Arc<Mutex<Vec<(String, IpAddr)>>>,
}

impl Scene {
    fn up() -> Scene {
        let folder = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(vec!["seaway".to_owned()]).unwrap();
        let [certificate, key] = ["tls.crt", "tls.key"].map(|it| folder.path().join(it));
        std::fs::write(&certificate, made.cert.pem()).unwrap();
        std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
        let judged = Arc::new(Mutex::new(Vec::new()));
        let noted = judged.clone();
        let judge: Authorizer = Arc::new(move |token: SecretString, from| {
            let token = token.expose_secret().to_owned();
            noted.lock().unwrap().push((token.clone(), from));
            let verdict = match token.as_str() {
                "good" => Authorization::Allowed,
                "other" => Authorization::Denied,
                "many" => Authorization::Busy,
                "silent" => Authorization::Unanswered,
                _ => Authorization::Unauthenticated,
            };
            Box::pin(async move { verdict })
        });
        let guard = MetricsGuard::from_files(&certificate, &key, judge).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let any = vec!["127.0.0.1:0".parse().unwrap()];
        let (admin, page, guarded) = runtime.block_on(async {
            let bound = BoundSockets::bind(&Binding::Exactly(any.clone())).unwrap();
            let bound = bound.with_metrics_listeners(&any, guard).unwrap();
            let at = bound.metrics_addresses();
            assert_eq!((bound.addresses().len(), at.len()), (1, 1), "it is no status page");
            let source = seaway_admin::immediate_source(|| Arc::new(view::at(1000)));
            let admin = bound.serve(source, LogHandle::detached());
            let page = admin.addresses()[0];
            (admin, page, at[0])
        });
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap();
        let tls = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
        Scene { runtime, admin: Some(admin), page, guarded, tls, judged }
    }

    /// The whole answer.
    fn ask(&self, request: &str) -> String {
        let name = ServerName::try_from("seaway").unwrap();
        let client = ClientConnection::new(self.tls.clone(), name).unwrap();
        let mut stream = StreamOwned::new(client, TcpStream::connect(self.guarded).unwrap());
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        // Some ends come without a farewell.
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    fn get(&self, path: &str, token: Option<&str>) -> String {
        let token = token.map(|it| format!("Authorization: Bearer {it}\r\n")).unwrap_or_default();
        self.ask(&format!("GET {path} HTTP/1.1\r\nHost: seaway\r\nConnection: close\r\n{token}\r\n"))
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.runtime.block_on(self.admin.take().unwrap().stop());
    }
}

#[test]
fn who_may_reads_metrics_and_nobody_else_anything() {
    let scene = Scene::up();
    for (token, status) in [
        (None, "401"),
        (Some("bad"), "401"),
        (Some("other"), "403"),
        (Some("many"), "429"),
        (Some("silent"), "503"),
    ] {
        let answer = scene.get("/metrics", token);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{token:?}: {answer}");
        assert!(!answer.contains("seaway_"), "{answer}");
    }
    assert!(scene.get("/metrics", None).to_lowercase().contains("www-authenticate: bearer"));
    let answer = scene.get("/metrics", Some("good"));
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("# TYPE seaway_"), "{answer}");
    for path in ["/", "/state", "/;csv", "/log", "/live", "/ready", "/metrics/"] {
        let answer = scene.get(path, Some("good"));
        assert!(answer.starts_with("HTTP/1.1 404 "), "{path}: {answer}");
    }
    let set = "PUT /metrics HTTP/1.1\r\nHost: seaway\r\nConnection: close\r\nAuthorization: Bearer good\r\n\
               Content-Length: 0\r\n\r\n";
    assert!(scene.ask(set).starts_with("HTTP/1.1 405 "));
    let here: IpAddr = "127.0.0.1".parse().unwrap();
    let judged = scene.judged.lock().unwrap();
    assert_eq!(judged[0], ("bad".to_owned(), here), "who shows no token is judged by nobody");
    assert!(judged.iter().all(|(_, from)| *from == here));
}

#[test]
fn nothing_is_told_in_the_clear_and_who_does_not_shake_hands_keeps_nobody_out() {
    let scene = Scene::up();
    let mut plain = TcpStream::connect(scene.guarded).unwrap();
    plain.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer good\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(!answer.starts_with(b"HTTP"), "{answer:?}");
    assert!(scene.judged.lock().unwrap().is_empty());
    // More than there are places.
    let silent: Vec<TcpStream> = (0..200).map(|_| TcpStream::connect(scene.guarded).unwrap()).collect();
    assert!(scene.get("/metrics", Some("good")).starts_with("HTTP/1.1 200 "));
    let mut page = TcpStream::connect(scene.page).unwrap();
    page.write_all(b"GET /live HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    page.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    drop(silent);
}
