//! A browser without a window, started anew for each look.

use std::{
    env,
    fs::{self, File},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];
const PATIENCE: Duration = Duration::from_secs(90);

/// One browser at a time: each is heavier than all that it tests.
static TURN: Mutex<()> = Mutex::new(());

pub(crate) struct Chromium {
    program: PathBuf,
}

pub(crate) struct Look {
    pub(crate) dark: bool,
    pub(crate) size: (u32, u32),
}

impl Chromium {
    /// None, after saying why, where there is no browser and none is required.
    pub(crate) fn find() -> Option<Chromium> {
        let folders: Vec<PathBuf> =
            env::var_os("PATH").map(|p| env::split_paths(&p).collect()).unwrap_or_default();
        let found =
            NAMES.iter().flat_map(|name| folders.iter().map(move |f| f.join(name))).find(|p| p.is_file());
        if found.is_none() {
            let missing =
                format!("no browser here: install one of {} (apt install chromium)", NAMES.join(", "));
            seaway_testkit::skip(Some("SEAWAY_BROWSER_TESTS"), &missing);
        }
        found.map(|program| Chromium { program })
    }

    /// The document as it is after the page ran for this many milliseconds of its own time.
    pub(crate) fn dom(&self, url: &str, look: &Look, ms: u32) -> String {
        let folder = TempDir::new().unwrap();
        let out = self.run(&folder, url, look, &[format!("--virtual-time-budget={ms}"), "--dump-dom".into()]);
        assert!(out.contains("</html>"), "the browser gave no document: {out}\n{}", complaints(&folder));
        out
    }

    /// Width and height of a picture of the page, and its bytes.
    pub(crate) fn picture(&self, url: &str, look: &Look) -> (u32, u32, Vec<u8>) {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("page.png");
        self.run(
            &folder,
            url,
            look,
            &["--virtual-time-budget=2500".into(), format!("--screenshot={}", path.display())],
        );
        let png = fs::read(&path).unwrap_or_else(|e| panic!("no picture: {e}\n{}", complaints(&folder)));
        assert_eq!(&png[1..4], b"PNG");
        let number = |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap());
        (number(16), number(20), png)
    }

    fn run(&self, folder: &TempDir, url: &str, look: &Look, extra: &[String]) -> String {
        let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let out = folder.path().join("out");
        let create = |path: &Path| Stdio::from(File::create(path).unwrap());
        let child = Command::new(&self.program)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            // As on a phone, where they take no room.
            .arg("--hide-scrollbars")
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .arg(format!("--window-size={},{}", look.size.0, look.size.1))
            // 0 is dark, 1 light.
            .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!look.dark)))
            .args(extra)
            .arg(url)
            .stdin(Stdio::null())
            .stdout(create(&out))
            .stderr(create(&folder.path().join("complaints")))
            .spawn()
            .unwrap();
        Running(child).wait(folder);
        fs::read_to_string(out).unwrap()
    }
}

/// Ends with its owner, whatever a test does.
struct Running(Child);

impl Running {
    fn wait(mut self, folder: &TempDir) {
        let deadline = Instant::now() + PATIENCE;
        while self.0.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the browser does not end: {}", complaints(folder));
            thread::park_timeout(Duration::from_millis(20));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        _ = self.0.kill();
        _ = self.0.wait();
    }
}

fn complaints(folder: &TempDir) -> String {
    fs::read_to_string(folder.path().join("complaints")).unwrap_or_default()
}
