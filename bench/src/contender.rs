//! Who is measured: how each is started, found ready and ended.

pub mod certificate;
mod peers;
mod proxies;
pub mod seaway;

use std::fmt;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use self::certificate::Certificate;
use crate::attacks::ports;
use crate::cores::{self, CONTENDER};
use crate::sys;

/// Where every contender listens; only one runs at a time.
pub const SMALL: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9101);
pub const BULK: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9102);
pub const DATAGRAMS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9103);
pub const WEB: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9111);
/// As `WEB`, where HAProxy has `option splice-auto`.
pub const SPLICED: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9112);
/// HTTP/2 without TLS, to members that speak HTTP/1.1.
pub const STREAMS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9113);
/// gRPC without TLS.
pub const CALLS: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9114);
/// HTTP/1.1 through TLS.
pub const SECURE: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9115);
/// Of Seaway, in the cases where much stands behind it.
pub const FRONT_DOOR: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9116);
pub const SECURE_DOOR: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9117);

#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize, clap::ValueEnum,
)]
#[serde(rename_all = "kebab-case")]
pub enum Contender {
    Seaway,
    Haproxy,
    Nginx,
    /// With `option splice-auto`, where bodies are large enough for it.
    HaproxySplice,
    /// With ten of what the case has thousands of.
    SeawayFew,
    /// An earlier binary, that of `--before`.
    SeawayBefore,
    /// With `metrics: {latency: false}`: what measuring costs.
    SeawayUnmeasured,
    /// With an access log in a file: what that costs.
    SeawayLogging,
    /// With a limit of requests for each client that nothing reaches.
    SeawayRates,
    /// With a user and a password, which each request has.
    SeawayPasswords,
    /// Each request is asked about: another Service answers a request, over a connection of its own.
    SeawayAsking,
    /// With compression, of responses that are not to be compressed.
    SeawayCompress,
    /// As of `rig/peers/install`, like all that follow.
    HaproxyNewer,
    Envoy,
    Pingora,
    Traefik,
    Caddy,
}

/// Those that only the case `proxies` has.
pub const PROXIES: [Contender; 5] =
    [Contender::HaproxyNewer, Contender::Envoy, Contender::Pingora, Contender::Traefik, Contender::Caddy];

/// Those that only the case `policies` has.
pub const POLICIES: [Contender; 5] = [
    Contender::SeawayUnmeasured,
    Contender::SeawayRates,
    Contender::SeawayPasswords,
    Contender::SeawayAsking,
    Contender::SeawayCompress,
];

/// What a contender is told to be: each kind of work has configurations of its own, so that none carries the others'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// TCP and UDP, byte by byte.
    Stream,
    Web,
    /// Services that hostile clients share with honest ones.
    Attacked,
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Seaway => "Seaway",
            Self::Haproxy => "HAProxy",
            Self::Nginx => "nginx",
            Self::HaproxySplice => "HAProxy with splice-auto",
            Self::SeawayFew => "Seaway with ten",
            Self::SeawayBefore => "Seaway before",
            Self::SeawayUnmeasured => "Seaway without latencies",
            Self::SeawayLogging => "Seaway with an access log",
            Self::SeawayRates => "Seaway with a rate limit",
            Self::SeawayPasswords => "Seaway with basic auth",
            Self::SeawayAsking => "Seaway with forward auth",
            Self::SeawayCompress => "Seaway with compression",
            Self::HaproxyNewer => "HAProxy, newer",
            Self::Envoy => "Envoy",
            Self::Pingora => "Pingora",
            Self::Traefik => "Traefik",
            Self::Caddy => "Caddy",
        })
    }
}

/// Where the programs and the configurations are.
#[derive(Clone)]
pub struct Programs {
    pub seaway: PathBuf,
    /// An earlier one that is measured beside it.
    pub before: Option<PathBuf>,
    pub peers: PathBuf,
    /// What `rig/peers/install` made.
    pub proxies: Option<PathBuf>,
    pub certificate: Certificate,
    /// `rig/kubernetes`.
    pub rig: PathBuf,
}

impl Contender {
    /// One line that names the version, or why there is none.
    pub fn version(self, programs: &Programs) -> Result<String> {
        match self {
            Self::Seaway
            | Self::SeawayFew
            | Self::SeawayBefore
            | Self::SeawayUnmeasured
            | Self::SeawayLogging
            | Self::SeawayRates
            | Self::SeawayPasswords
            | Self::SeawayAsking
            | Self::SeawayCompress => seaway::version(self.seaway(programs)?),
            Self::Haproxy | Self::HaproxySplice => peers::haproxy_version(),
            Self::Nginx => peers::nginx_version(),
            Self::HaproxyNewer | Self::Envoy | Self::Pingora | Self::Traefik | Self::Caddy => {
                proxies::version(self, programs)
            }
        }
    }

    /// What its configuration has beside what all have.
    fn configured(self) -> &'static str {
        match self {
            Self::SeawayUnmeasured => "metrics: {latency: false}\n",
            Self::SeawayLogging => "accessLog: {format: json, to: access.log}\n",
            _ => "",
        }
    }

    /// Annotations of the Service that is asked by HTTP/1.1.
    fn annotations(self) -> &'static str {
        match self {
            Self::SeawayRates => "seaway.dev/requests-per-second-per-client: \"1000000\"",
            Self::SeawayPasswords => seaway::PASSWORDS,
            Self::SeawayAsking => seaway::ASKING,
            Self::SeawayCompress => "seaway.dev/compress: gzip",
            _ => "",
        }
    }

    /// The binary of this Seaway.
    pub fn seaway(self, programs: &Programs) -> Result<&Path> {
        let before = || programs.before.as_deref().context("--before names no earlier Seaway");
        if self == Self::SeawayBefore { before() } else { Ok(&programs.seaway) }
    }

    /// Starts the contender in front of the bench's backends and waits until it serves.
    pub fn start(self, programs: &Programs, role: Role) -> Result<Running> {
        self.start_with(programs, role, 1)
    }

    /// One worker has the contender's core for itself, more share all cores with the load.
    pub fn start_with(self, programs: &Programs, role: Role, workers: usize) -> Result<Running> {
        let core = (workers == 1).then_some(CONTENDER);
        let folder = tempfile::Builder::new().prefix("seaway-bench-").tempdir()?;
        let running = match self {
            Self::Seaway
            | Self::SeawayFew
            | Self::SeawayBefore
            | Self::SeawayUnmeasured
            | Self::SeawayLogging
            | Self::SeawayRates
            | Self::SeawayPasswords
            | Self::SeawayAsking
            | Self::SeawayCompress => {
                seaway::write_small_folder(folder.path(), role, &programs.certificate, self.annotations())?;
                seaway::configure_more(folder.path(), self.configured())?;
                seaway::configure_workers(folder.path(), workers)?;
                let command = seaway::command(self.seaway(programs)?, folder.path());
                let mut running = Running::launch_on(core, command, Some(folder))?;
                running.ready_after = Some(running.wait_until(Duration::from_secs(10), seaway::is_ready)?);
                running
            }
            Self::Haproxy | Self::HaproxySplice => Running::launch_on(
                core,
                peers::haproxy(programs, role, workers, folder.path())?,
                Some(folder),
            )?,
            Self::Nginx => {
                Running::launch_on(core, peers::nginx(programs, role, workers, folder.path())?, Some(folder))?
            }
            Self::HaproxyNewer | Self::Envoy | Self::Pingora | Self::Traefik | Self::Caddy => {
                Running::launch(proxies::command(self, programs, folder.path())?, Some(folder))?
            }
        };
        // Each opens one after the other.
        let doors: &[_] = match role {
            Role::Stream => &[SMALL, BULK],
            Role::Web if PROXIES.contains(&self) => &[WEB],
            Role::Web => &[WEB, STREAMS, CALLS, SECURE],
            Role::Attacked => &ATTACKED,
        };
        let is_open = |door: &SocketAddrV4| TcpStream::connect(*door).is_ok();
        running.wait_until(Duration::from_secs(10), || doors.iter().all(is_open))?;
        if self == Self::Traefik {
            running.wait_until(Duration::from_secs(10), proxies::knows_its_routes)?;
        }
        Ok(running)
    }
}

/// Of those that are attacked: none leads to itself.
const ATTACKED: [SocketAddrV4; 5] = [
    ports::listener(ports::HTTP),
    ports::listener(ports::TO_H2),
    ports::listener(ports::TLS),
    ports::listener(ports::TCP),
    ports::listener(ports::OTHER),
];

/// A contender that runs. Dropping it ends the whole process group, whatever happened to us.
pub struct Running {
    child: Child,
    launched: Instant,
    /// From its start until it said that it serves, if it says so.
    pub ready_after: Option<Duration>,
    pub folder: Option<tempfile::TempDir>,
}

impl Running {
    /// Starts the command on the contender's core. What it prints goes to a file in its folder, shown if it fails.
    pub fn launch(command: Command, folder: Option<tempfile::TempDir>) -> Result<Self> {
        Self::launch_on(Some(CONTENDER), command, folder)
    }

    /// As above, on a core of choice or on all.
    pub fn launch_on(
        core: Option<usize>,
        mut command: Command,
        folder: Option<tempfile::TempDir>,
    ) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let output = match &folder {
            Some(folder) => std::fs::File::create(folder.path().join(OUTPUT))?.into(),
            None => Stdio::null(),
        };
        command.stderr(output);
        sys::confine_child(&mut command, core);
        let launched = Instant::now();
        let name = command.get_program().to_string_lossy().into_owned();
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { child, launched, ready_after: None, folder })
    }

    /// The process that was started.
    pub fn leader(&self) -> u32 {
        self.child.id()
    }

    pub fn processes(&self) -> Vec<u32> {
        cores::group(self.child.id())
    }

    /// Looks every millisecond whether `ready` holds, and gives up when the process ends or time is over.
    pub fn wait_until(&self, patience: Duration, mut ready: impl FnMut() -> bool) -> Result<Duration> {
        let begin = Instant::now();
        loop {
            if ready() {
                return Ok(self.launched.elapsed());
            }
            ensure!(!sys::interrupted(), "interrupted");
            if cores::has_ended(self.child.id()) {
                bail!("the contender ended before it served:\n{}", self.last_words());
            }
            ensure!(begin.elapsed() < patience, "not serving after {patience:?}:\n{}", self.last_words());
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// What the contender complained about.
    pub fn last_words(&self) -> String {
        let Some(folder) = &self.folder else { return String::new() };
        let text = std::fs::read(folder.path().join(OUTPUT)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }
}

const OUTPUT: &str = "stderr.log";

impl Drop for Running {
    fn drop(&mut self) {
        let leader = self.child.id();
        sys::signal_group(leader, libc::SIGTERM);
        let patience = Instant::now() + Duration::from_secs(1);
        while Instant::now() < patience {
            if !matches!(self.child.try_wait(), Ok(None)) {
                break;
            }
            thread::sleep(Duration::from_millis(2));
        }
        // Whoever is left (a worker of a dead master too) gets no choice.
        sys::signal_group(leader, libc::SIGKILL);
        let _reaped = self.child.wait().map(|status| status.signal());
    }
}

/// Runs a program to its end and returns the first line of what it printed on either output.
fn first_line(program: &Path, arguments: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .with_context(|| format!("cannot run {}", program.display()))?;
    let text = if output.stdout.is_empty() { output.stderr } else { output.stdout };
    let text = String::from_utf8_lossy(&text);
    text.lines()
        .next()
        .map(str::to_owned)
        .with_context(|| format!("{} printed no version", program.display()))
}
