//! Real name servers that take dynamic updates: BIND and Knot, each with the zone `shop.example`.

use std::{
    fs,
    io::Write,
    net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Of the key `seaway`, by hmac-sha256.
pub const TSIG_SECRET: &str = "c2Vhd2F5IHRlc3RzIHRoZSBzaWduYXR1cmVzIG9mIEROUw==";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameServerKind {
    Bind,
    Knot,
}

/// It ends with this value.
pub struct NameServer {
    kind: NameServerKind,
    program: PathBuf,
    port: u16,
    folder: PathBuf,
    process: Option<Child>,
}

impl NameServer {
    /// With these records beside those that a zone has; nothing, and a skipped test, where it is not installed.
    #[track_caller]
    pub fn start(kind: NameServerKind, records: &str) -> Option<NameServer> {
        let (name, package) = match kind {
            NameServerKind::Bind => ("named", "bind9"),
            NameServerKind::Knot => ("knotd", "knot"),
        };
        let places = ["/usr/sbin", "/usr/bin"].map(|it| PathBuf::from(it).join(name));
        let Some(program) = places.into_iter().find(|it| it.exists()) else {
            crate::skip(
                None,
                &format!("{name} is not installed: sudo apt-get install {package} bind9-dnsutils"),
            );
            return None;
        };
        let port = free_port();
        let folder = std::env::temp_dir().join(format!("seaway-{name}-{}-{port}", std::process::id()));
        fs::create_dir_all(folder.join("db")).expect("a folder");
        let zone = format!(
            "$TTL 60\n$ORIGIN shop.example.\n@ SOA ns root 1 60 60 60 1\n@ NS ns\nns A 127.0.0.1\n{records}\n"
        );
        fs::write(folder.join("shop.zone"), zone).expect("written");
        fs::write(folder.join("hints"), ". 60 NS ns.invalid.\nns.invalid. 60 A 127.0.0.1\n")
            .expect("written");
        let here = folder.display();
        let config = match kind {
            NameServerKind::Bind => format!(
                "options {{ directory \"{here}\"; listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }};\n\
                 pid-file none; session-keyfile none; lock-file none; recursion no; notify no; dnssec-validation no; }};\n\
                 controls {{ }};\n\
                 key \"seaway\" {{ algorithm hmac-sha256; secret \"{TSIG_SECRET}\"; }};\n\
                 zone \".\" {{ type hint; file \"hints\"; }};\n\
                 zone \"shop.example\" {{ type primary; file \"shop.zone\";\n\
                 update-policy {{ grant seaway zonesub A AAAA TXT; }}; }};\n"
            ),
            NameServerKind::Knot => format!(
                "server:\n  rundir: \"{here}\"\n  listen: 127.0.0.1@{port}\n  udp-workers: 1\n  tcp-workers: 1\n  background-workers: 1\n\
                 log:\n- target: stderr\n  any: info\n\
                 database:\n  storage: \"{here}/db\"\n  journal-db-max-size: 32M\n  kasp-db-max-size: 5M\n  timer-db-max-size: 5M\n\
                 key:\n- id: seaway\n  algorithm: hmac-sha256\n  secret: {TSIG_SECRET}\n\
                 acl:\n- id: update\n  key: seaway\n  action: update\n\
                 zone:\n- domain: shop.example\n  storage: \"{here}\"\n  file: shop.zone\n  acl: update\n"
            ),
        };
        fs::write(folder.join("config"), config).expect("written");
        let mut server = NameServer { kind, program, port, folder, process: None };
        server.resume();
        Some(server)
    }

    pub fn at(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// A file with a secret that its owner alone reads.
    pub fn key_file(&self, name: &str, secret: &str) -> PathBuf {
        let path = self.folder.join(name);
        fs::write(&path, secret).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
        path
    }

    /// It is killed: what it said it did, it has on disk.
    pub fn end(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Again, with its zone as it was.
    pub fn resume(&mut self) {
        let log =
            fs::OpenOptions::new().create(true).append(true).open(self.folder.join("log")).expect("a log");
        let mut command = Command::new(&self.program);
        match self.kind {
            NameServerKind::Bind => command.args(["-g", "-n", "1", "-c"]),
            NameServerKind::Knot => command.arg("-c"),
        };
        command.arg(self.folder.join("config"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        self.process = Some(command.spawn().expect("the name server starts"));
        let deadline = Instant::now() + Duration::from_secs(30);
        while self.all("ns.shop.example", "A") != ["127.0.0.1"] {
            assert!(Instant::now() < deadline, "the name server answers\n{}", self.log());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// What it answers, sorted.
    pub fn all(&self, name: &str, kind: &str) -> Vec<String> {
        let asked = Command::new("dig")
            .args(["@127.0.0.1", "-p", &self.port.to_string()])
            .args(["+short", "+norecurse", "+time=1", "+tries=1", kind, name])
            .output()
            .expect("dig runs (bind9-dnsutils)");
        let text = String::from_utf8_lossy(&asked.stdout);
        let mut all: Vec<String> = text.lines().filter(|it| !it.starts_with(';')).map(Into::into).collect();
        all.sort();
        all
    }

    /// As somebody with the key does, by lines of nsupdate.
    pub fn update(&self, lines: &str) {
        let script = self.folder.join("nsupdate");
        let text = format!("server 127.0.0.1 {}\nzone shop.example\n{lines}\nsend\n", self.port);
        fs::write(&script, text).expect("written");
        let key = format!("hmac-sha256:seaway:{TSIG_SECRET}");
        let done = Command::new("nsupdate").args(["-y", &key]).arg(&script).output().expect("nsupdate runs");
        assert!(done.status.success(), "{lines}: {}", String::from_utf8_lossy(&done.stderr));
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.join("log")).unwrap_or_default()
    }
}

impl Drop for NameServer {
    fn drop(&mut self) {
        self.end();
        if thread::panicking() {
            // With what the test printed.
            let _ = writeln!(std::io::stderr(), "--- log of the name server ---\n{}", self.log());
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// Outside of the range in which the kernel chooses ports for others.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let mut all = std::iter::repeat_with(|| NEXT.fetch_add(1, Ordering::Relaxed));
    let port = |count: u32| 8_000 + ((std::process::id() * 16 + count) % 12_000) as u16;
    let is_free = |port: &u16| {
        let at = (Ipv4Addr::LOCALHOST, *port);
        UdpSocket::bind(at).is_ok() && TcpListener::bind(at).is_ok()
    };
    all.by_ref().take(1_000).map(port).find(is_free).expect("a port is free")
}
