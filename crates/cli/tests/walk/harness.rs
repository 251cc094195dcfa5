//! A running `seaway` in a folder of its own, on loopback addresses of its own.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

pub(crate) use seaway_testkit::topology::{PATIENCE, until};
use serde_json::Value;

/// An address of 127.0.0.0/8 that no other test uses, so that any port is free on it.
pub(crate) fn own_address() -> Ipv4Addr {
    let [address] = own_addresses();
    address
}

/// One after the other, with nobody else's between them.
pub(crate) fn own_addresses<const COUNT: usize>() -> [Ipv4Addr; COUNT] {
    static NEXT: AtomicU32 = AtomicU32::new(1);
    let first = NEXT.fetch_add(COUNT as u32, Ordering::Relaxed);
    assert!(first + (COUNT as u32) < 1024, "as many as a process has");
    // 127.64.0.0/10: 4096 processes, and 1024 of each.
    let process = u32::from(Ipv4Addr::new(127, 64, 0, 0)) | (std::process::id() & 4095) << 10;
    std::array::from_fn(|index| (process + first + index as u32).into())
}

pub(crate) fn seaway() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_seaway"));
    command.stdin(Stdio::null()).env_remove("NOTIFY_SOCKET");
    command
}

/// Runs a command to its end.
pub(crate) fn run(arguments: &[&str]) -> Output {
    seaway().args(arguments).output().expect("seaway starts")
}

pub(crate) fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A folder of manifests and state, gone at the end.
pub(crate) struct Folder(pub(crate) tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Folder {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(folder.path().join("manifests")).expect("a folder");
        Folder(folder)
    }

    pub(crate) fn manifests(&self) -> PathBuf {
        self.0.path().join("manifests")
    }

    pub(crate) fn state(&self) -> PathBuf {
        self.0.path().join("state")
    }

    /// Writes as careful programs do: a temporary file, renamed.
    pub(crate) fn write(&self, name: &str, text: &str) {
        let temporary = self.manifests().join(format!(".{name}.new"));
        std::fs::write(&temporary, text).expect("written");
        std::fs::rename(temporary, self.manifests().join(name)).expect("renamed");
    }

    pub(crate) fn remove(&self, name: &str) {
        std::fs::remove_file(self.manifests().join(name)).expect("removed");
    }

    pub(crate) fn config(&self, text: &str) -> PathBuf {
        let path = self.0.path().join("seaway.yaml");
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&path)
            .expect("a file");
        file.write_all(text.as_bytes()).expect("written");
        path
    }
}

/// What a test asks of its `seaway run`.
pub(crate) struct Setup {
    pub(crate) folder: Arc<Folder>,
    pub(crate) ip: Ipv4Addr,
    /// The host's own addresses, beside `ip`; `None`: whatever is found.
    pub(crate) more: Option<Vec<IpAddr>>,
    pub(crate) config: String,
    pub(crate) host: &'static str,
    pub(crate) arguments: Vec<String>,
    /// What starts it: `setpriv --bounding-set -net_admin`.
    pub(crate) by: Vec<String>,
}

impl Setup {
    pub(crate) fn new() -> Setup {
        Setup::again(Arc::new(Folder::new()), own_address())
    }

    /// As a process of before had it.
    pub(crate) fn again(folder: Arc<Folder>, ip: Ipv4Addr) -> Setup {
        Setup {
            folder,
            ip,
            more: Some(Vec::new()),
            config: String::new(),
            host: "edge-1",
            arguments: Vec::new(),
            by: Vec::new(),
        }
    }

    /// One more address of the host.
    pub(crate) fn address(mut self, ip: IpAddr) -> Setup {
        self.more.get_or_insert_default().push(ip);
        self
    }

    pub(crate) fn named(mut self, host: &'static str) -> Setup {
        self.host = host;
        self
    }

    /// Finds the host's addresses by itself, as a user's does who says nothing.
    pub(crate) fn finding_addresses(mut self) -> Setup {
        self.more = None;
        self
    }

    /// Another program starts it, and becomes it.
    pub(crate) fn by(mut self, program: &[&str]) -> Setup {
        self.by = program.iter().map(|it| (*it).to_owned()).collect();
        self
    }

    /// More lines of `seaway.yaml`.
    pub(crate) fn config(mut self, text: &str) -> Setup {
        self.config.push_str(text);
        self
    }

    pub(crate) fn argument(mut self, text: &str) -> Setup {
        self.arguments.push(text.to_owned());
        self
    }

    pub(crate) fn write(self, name: &str, text: &str) -> Setup {
        self.folder.write(name, text);
        self
    }

    /// Starts, and waits until it is ready.
    pub(crate) fn start(self) -> Seaway {
        let seaway = self.launch(|_| {});
        until("it is ready", || seaway.get("/ready").is_ok_and(|(status, _)| status == 200));
        seaway
    }

    /// Starts as the caller adds, and waits for the status page only.
    pub(crate) fn launch(self, add: impl FnOnce(&mut Command)) -> Seaway {
        let own = self.more.as_ref().map(|more| {
            let all: Vec<String> = std::iter::once(IpAddr::V4(self.ip))
                .chain(more.iter().copied())
                .map(|ip| format!("\"{ip}\""))
                .collect();
            format!("\n  addresses: [{}]", all.join(", "))
        });
        // Many run at once, and port 80 of all addresses is not theirs: who wants a front door says where.
        let door = if self.config.contains("frontDoor:") { "" } else { "frontDoor: {enabled: false}\n" };
        let text = format!(
            "host:\n  name: {}{}\nadmin:\n  listen: [\"127.0.0.1:0\"]\n{door}{}",
            self.host,
            own.unwrap_or_default(),
            self.config
        );
        let config = self.folder.config(&text);
        let mut command = match self.by.split_first() {
            Some((program, arguments)) => {
                let mut command = Command::new(program);
                command.args(arguments).arg(env!("CARGO_BIN_EXE_seaway"));
                command.stdin(Stdio::null()).env_remove("NOTIFY_SOCKET");
                command
            }
            None => seaway(),
        };
        command.arg("run").arg("--config").arg(config);
        command.arg("--manifests").arg(self.folder.manifests()).arg("--state-dir").arg(self.folder.state());
        command.args(&self.arguments).stderr(Stdio::piped());
        add(&mut command);
        let mut child = command.spawn().expect("seaway starts");
        let log = Arc::new(Mutex::new(String::new()));
        let pipe = child.stderr.take().expect("it is piped");
        let kept = log.clone();
        thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                let mut log = kept.lock().unwrap_or_else(PoisonError::into_inner);
                log.push_str(&line);
                log.push('\n');
            }
        });
        let mut seaway = Seaway { child, log, admin: None, ip: self.ip, folder: self.folder };
        until("the status page is told", || {
            let found = seaway.log().lines().find_map(|line| {
                let (_, rest) = line.split_once("http://127.0.0.1:")?;
                rest.split(|c: char| !c.is_ascii_digit()).next()?.parse::<u16>().ok()
            });
            seaway.admin = found.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
            if seaway.admin.is_none() && !matches!(seaway.child.try_wait(), Ok(None)) {
                panic!("it ended: {}", seaway.log());
            }
            seaway.admin.is_some()
        });
        seaway
    }
}

pub(crate) struct Seaway {
    pub(crate) child: Child,
    log: Arc<Mutex<String>>,
    admin: Option<SocketAddr>,
    pub(crate) ip: Ipv4Addr,
    pub(crate) folder: Arc<Folder>,
}

impl Seaway {
    pub(crate) fn at(&self, port: u16) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(self.ip), port)
    }

    pub(crate) fn admin(&self) -> SocketAddr {
        self.admin.expect("it was found at the start")
    }

    pub(crate) fn log(&self) -> String {
        self.log.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Status and body of a page of the admin port.
    pub(crate) fn get(&self, path: &str) -> std::io::Result<(u16, String)> {
        get(self.admin(), path)
    }

    pub(crate) fn state(&self) -> Value {
        let (_, body) = self.get("/state").expect("the status page answers");
        serde_json::from_str(&body).expect("it is JSON")
    }

    /// A member of any pool, as the status page knows it.
    pub(crate) fn member(&self, at: SocketAddr) -> Value {
        let state = self.state();
        let services = state["services"].as_array().cloned().unwrap_or_default();
        let members = services
            .iter()
            .flat_map(|service| service["pools"].as_array().cloned().unwrap_or_default())
            .flat_map(|pool| pool["members"].as_array().cloned().unwrap_or_default());
        members.into_iter().find(|it| it["address"] == at.to_string()).unwrap_or_default()
    }

    /// The listener of a port, as the status page knows it.
    pub(crate) fn listener(&self, port: u16) -> Value {
        let state = self.state();
        let services = state["services"].as_array().cloned().unwrap_or_default();
        let listeners =
            services.iter().flat_map(|it| it["listeners"].as_array().cloned().unwrap_or_default());
        listeners.into_iter().find(|it| it["port"] == port).unwrap_or_default()
    }

    pub(crate) fn resident(&self) -> u64 {
        self.state()["process"]["residentBytes"].as_u64().expect("it is told")
    }

    pub(crate) fn has_problem(&self, reason: &str) -> bool {
        self.problems().iter().any(|it| it.0 == reason)
    }

    /// `(reason, message, place)` of every Problem that is told.
    pub(crate) fn problems(&self) -> Vec<(String, String, String)> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let place = |it: &Value| match it.get("place") {
            Some(place) => format!("{}:{}:{}", text(&place["file"]), place["line"], place["column"]),
            None => String::new(),
        };
        let state = self.state();
        let problems = state["problems"].as_array().cloned().unwrap_or_default();
        problems.iter().map(|it| (text(&it["reason"]), text(&it["message"]), place(it))).collect()
    }

    /// `status.json` in the state folder.
    pub(crate) fn status(&self) -> Value {
        let text = std::fs::read_to_string(self.folder.state().join("status.json")).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or(Value::Null)
    }

    pub(crate) fn signal(&self, signal: nix::sys::signal::Signal) {
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(self.child.id() as i32), signal).expect("it runs");
    }

    /// Asks it to stop, and waits until it did.
    pub(crate) fn stop(mut self) -> ExitStatus {
        self.signal(nix::sys::signal::Signal::SIGTERM);
        self.wait()
    }

    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut ended = None;
        until("it ends", || {
            ended = self.child.try_wait().expect("it is ours");
            ended.is_some()
        });
        ended.expect("it ended")
    }
}

impl Drop for Seaway {
    fn drop(&mut self) {
        let last = thread::panicking().then(|| match self.admin.map(|at| get(at, "/state")) {
            Some(Ok((_, state))) => state,
            other => format!("{other:?}; {:?}", self.child.try_wait()),
        });
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if let Some(state) = last {
            eprintln!("--- log of seaway ---\n{}---\n{state}\n---", self.log());
        }
    }
}

pub(crate) fn get(at: SocketAddr, path: &str) -> std::io::Result<(u16, String)> {
    request(at, "GET", path, "")
}

pub(crate) fn request(
    at: SocketAddr,
    method: &str,
    path: &str,
    body: &str,
) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect_timeout(&at, Duration::from_secs(5))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head.split_whitespace().nth(1).and_then(|it| it.parse().ok()).unwrap_or(0);
    Ok((status, body.to_owned()))
}

pub(crate) fn path(path: &Path) -> &str {
    path.to_str().expect("temporary folders have plain names")
}
