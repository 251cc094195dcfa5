//! A real HAProxy: what it says of a configuration, and one that runs.

use std::{
    fs,
    net::{SocketAddr, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use seaway_haproxy::{Document, document::NO_STATE, files};
use secrecy::ExposeSecret as _;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(30);

/// `None`, said, where it is not installed.
pub(crate) fn program() -> Option<&'static str> {
    let found =
        ["/usr/sbin/haproxy", "/usr/local/sbin/haproxy"].into_iter().find(|it| Path::new(it).exists());
    if found.is_none() {
        seaway_testkit::skip(None, "HAProxy is not installed: sudo apt-get install haproxy");
    }
    found
}

/// A folder with a path of characters that a `Folder` has.
pub(crate) fn folder() -> TempDir {
    tempfile::Builder::new().prefix("seaway-haproxy-").tempdir().expect("a folder")
}

/// Writes all files; the path of the configuration.
pub(crate) fn write(document: &Document, folder: &Path) -> std::path::PathBuf {
    let files = files(document);
    for (path, (_, text)) in &files.others {
        assert!(Path::new(path).starts_with(folder), "{path}");
        fs::create_dir_all(Path::new(path).parent().expect("a folder")).expect("made");
        fs::write(path, text.expose_secret()).expect("written");
    }
    fs::write(document.global.state(), NO_STATE).expect("written");
    let path = folder.join("haproxy.cfg");
    fs::write(&path, files.configuration).expect("written");
    path
}

/// What `haproxy -c` complains of; nothing if it takes the configuration without a warning.
pub(crate) fn complaints(program: &str, configuration: &Path) -> String {
    let done = Command::new(program).args(["-c", "-f"]).arg(configuration).output().expect("started");
    let said = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    match done.status.success() && said.trim() == "Configuration file is valid" {
        true => String::new(),
        false => format!("{}\n{said}", done.status),
    }
}

#[derive(Debug)]
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(program: &str, configuration: &Path, at: SocketAddr) -> Running {
        let mut child = Command::new(program)
            .args(["-db", "-q", "-f"])
            .arg(configuration)
            .stdin(Stdio::null())
            .spawn()
            .expect("started");
        let begun = Instant::now();
        while TcpStream::connect(at).is_err() {
            assert!(child.try_wait().expect("asked").is_none(), "HAProxy ended");
            assert!(begun.elapsed() < PATIENCE, "HAProxy does not listen at {at}");
            std::thread::yield_now();
        }
        Running(child)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
