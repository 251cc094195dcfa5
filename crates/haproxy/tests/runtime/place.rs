//! A folder, ports and members of a test's own, and documents about them.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use rcgen::{CertifiedKey, generate_simple_self_signed};
use seaway_haproxy::{
    Document, Version,
    document::*,
    process::{Haproxy, Options},
    runtime::RuntimeApiConnection,
    words::{Folder, Key, Label, Text},
};
use seaway_testkit::traffic::Member;
use tempfile::TempDir;
use tokio::runtime::Runtime;

pub(crate) const PROGRAM: &str = "/usr/sbin/haproxy";
pub(crate) const BACKENDS: usize = 10;
const SLOTS: usize = 6;
const MINUTE: Duration = Duration::from_secs(60);

/// `None`, and the test is skipped, without HAProxy.
pub(crate) fn place() -> Option<Place> {
    if !Path::new(PROGRAM).exists() {
        seaway_testkit::skip(None, "HAProxy is not installed: sudo apt-get install haproxy");
        return None;
    }
    Some(Place::new())
}

pub(crate) struct Place {
    pub(crate) runtime: Runtime,
    pub(crate) members: Vec<Member>,
    pub(crate) http: SocketAddr,
    pub(crate) tls: SocketAddr,
    pub(crate) folder: TempDir,
}

impl Place {
    fn new() -> Place {
        static PLACES: AtomicU8 = AtomicU8::new(0);
        // An address of this place's own, where no connection of another test takes a port.
        let process = std::process::id();
        let place = 80 + PLACES.fetch_add(1, Ordering::Relaxed);
        let ip = Ipv4Addr::new(127, place, (process >> 8) as u8, process as u8);
        Place {
            runtime: tokio::runtime::Builder::new_multi_thread()
                .worker_threads(1)
                .enable_all()
                .build()
                .expect("a runtime"),
            members: ["a", "b", "c"].map(Member::start).into(),
            http: (ip, 20_280).into(),
            tls: (ip, 20_243).into(),
            folder: tempfile::Builder::new().prefix("hap").tempdir_in("/tmp").expect("a folder"),
        }
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("haproxy.cfg")
    }

    pub(crate) fn run(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    pub(crate) fn options(&self) -> Options {
        let mut options = Options::new(self.config());
        options.between_reloads = Duration::from_millis(300);
        options
    }

    pub(crate) fn start(&self, document: &Document) -> Haproxy {
        let started = self.runtime.block_on(Haproxy::start(self.options(), Arc::new(document.clone())));
        started.expect("HAProxy starts")
    }

    pub(crate) fn serve(&self, haproxy: &Haproxy, document: &Document) -> Result<(), String> {
        let served = self.runtime.block_on(haproxy.serve(Arc::new(document.clone())));
        served.map_err(|it| it.to_string())
    }

    pub(crate) fn socket(&self) -> RuntimeApiConnection {
        self.runtime
            .block_on(RuntimeApiConnection::connect(&self.run().join("worker.sock")))
            .expect("it answers")
    }

    /// One HTTP and one HTTPS frontend, and so many backends, the first of which serves `shop.example`.
    pub(crate) fn document(&self) -> Document {
        let folder = self.run();
        let mut document = Document {
            version: Version::V2_6,
            global: Global {
                folder: Folder::new(folder.to_str().expect("text")).expect("short"),
                hard_stop: Duration::from_secs(20),
                ..Global::default()
            },
            frontends: BTreeMap::new(),
            backends: BTreeMap::new(),
            maps: BTreeMap::new(),
            crt_lists: BTreeMap::new(),
            certificates: BTreeMap::new(),
            authorities: BTreeMap::new(),
            pages: BTreeMap::new(),
            origins: Origins::default(),
        };
        for number in 0..BACKENDS {
            self.add_backend(&mut document, number);
        }
        let map = |find, entries: &[(&str, &str)]| Map {
            find,
            entries: entries.iter().map(|(k, v)| (key(k), key(v))).collect(),
        };
        document.maps.insert(
            label("prefix.map"),
            map(MapMatch::Prefix, &[("shop.example/", "b0"), ("other.example/", "b1")]),
        );
        document.maps.insert(label("exact.map"), map(MapMatch::Exact, &[]));
        document.maps.insert(label("suffix.map"), map(MapMatch::Suffix, &[(".wild.example", "b2")]));
        document.certificates.insert(label("shop.pem"), certificate("shop.example"));
        let entry = CrtEntry {
            certificate: label("shop.pem"),
            tls: TlsOptions::default(),
            names: vec![key("shop.example")],
        };
        document.crt_lists.insert(label("https.list"), CrtList { entries: vec![entry] });
        document.frontends.insert(label("http"), frontend(self.http, None));
        let tls = BindTls {
            crt_list: label("https.list"),
            strict: true,
            terms: TlsOptions::default(),
            http2: true,
        };
        document.frontends.insert(label("https"), frontend(self.tls, Some(tls)));
        document
    }

    pub(crate) fn add_backend(&self, document: &mut Document, number: usize) {
        let slot = |place: usize| Slot { name: label(&format!("s{}", place + 1)), member: None };
        let mut slots: Vec<Slot> = (0..SLOTS).map(slot).collect();
        slots[0].member = Some(self.member(number));
        let backend = Backend {
            serves: format!("b{number}").as_str().into(),
            about: Text::new("").expect("of the alphabet"),
            settings: Settings {
                is_http: true,
                timeouts: ServerTimeouts {
                    connect: MINUTE,
                    answer: MINUTE,
                    half_closed: MINUTE,
                    idle: MINUTE,
                    queue: None,
                },
                ..Settings::default()
            },
            slots,
        };
        document.backends.insert(label(&format!("b{number}")), backend);
    }

    pub(crate) fn member(&self, number: usize) -> SlotMember {
        let at = self.members[number % self.members.len()].at;
        SlotMember { at, weight: 1, state: SlotState::Ready, backup: false, tls_name: None }
    }
}

pub(crate) fn slots<'a>(document: &'a mut Document, backend: &str) -> &'a mut Vec<Slot> {
    &mut document.backends.get_mut(&label(backend)).expect("a backend").slots
}

pub(crate) fn label(text: &str) -> Label {
    Label::new(text).expect("of the alphabet")
}

pub(crate) fn key(text: &str) -> Key {
    Key::new(text).expect("of the alphabet")
}

pub(crate) fn certificate(name: &str) -> Pem {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed([name.to_owned()]).expect("a certificate");
    Pem::new(&cert.pem(), &signing_key.serialize_pem())
}

fn frontend(at: SocketAddr, tls: Option<BindTls>) -> Frontend {
    Frontend {
        about: Text::new("").expect("of the alphabet"),
        binds: vec![at],
        floating: BTreeSet::new(),
        tls,
        sources: Vec::new(),
        denied: Vec::new(),
        proxy_from: Vec::new(),
        connections: None,
        new_per_second: None,
        timeouts: ClientTimeouts { request: MINUTE, keep_alive: MINUTE, idle: MINUTE, half_closed: MINUTE },
        routing: Routing::Http(HttpFrontendOptions {
            exact: label("exact.map"),
            prefix: label("prefix.map"),
            suffix: label("suffix.map"),
            respelled: None,
            choices: Vec::new(),
            trusted: Vec::new(),
            request_id: false,
            via: None,
            forwarded: false,
            hsts: None,
            pages: Vec::new(),
        }),
    }
}
