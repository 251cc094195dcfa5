//! `seaway demo`: the whole thing on one screen, as an ordinary user, on loopback.
//!
//! Starts three small web servers and a `seaway run` before them, each a process of its own; asks through the load
//! balancer, by connections and by requests of HTTP; kills one server and shows that it is noticed; starts it again and
//! shows that it comes back.

mod backend;
mod client;

use std::{
    net::SocketAddr,
    os::unix::process::CommandExt,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

pub(crate) use backend::serve as serve_backend;

use crate::args::Demo;

const NAMES: [&str; 3] = ["alice", "bob", "carol"];
/// For anything that must happen on this machine.
const PATIENCE: Duration = Duration::from_secs(15);

/// Children end with us, however we end.
struct Processes(Vec<(String, Child)>);

impl Drop for Processes {
    fn drop(&mut self) {
        for (_, child) in &mut self.0 {
            // A child that is gone already is what we want.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

pub(crate) fn run(demo: &Demo) -> Result<()> {
    let folder = Folder::new()?;
    let [service, door, status] =
        [demo.port, demo.http_port, demo.status_port].map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
    for at in [service, door, status] {
        if let Err(error) = std::net::TcpListener::bind(at) {
            bail!("{at} is not free ({error}); choose others with --port, --http-port and --status-port");
        }
    }
    let mut processes = Processes(Vec::new());

    let mut backends = Vec::new();
    for name in NAMES {
        let (child, at) = backend::start(name, 0)?;
        processes.0.push((name.to_owned(), child));
        backends.push((name, at));
    }
    folder.write(demo, &backends)?;
    let started: Vec<_> = backends.iter().map(|(name, at)| format!("{name} {at}")).collect();
    say(&format!("Three backends:    {}", started.join(", ")));
    say(&format!("A load balancer:   seaway run {}{}", folder.path().display(), optimised()));
    processes.0.push(("seaway".to_owned(), start_seaway(&folder)?));
    wait("the load balancer is ready", || client::get(status, "/ready").is_ok_and(|it| it.status == 200))?;
    say(&format!("  curl http://{service}/         TCP: each connection goes to the next backend"));
    say(&format!("  curl http://{door}/hello    HTTP: each request goes to the next backend"));
    say(&format!(
        "  http://{status}/              status page: open it in a browser; /metrics for Prometheus"
    ));
    show(service, door);

    say("");
    let killed = Instant::now();
    end(&mut processes, "bob")?;
    wait("bob is noticed", || state_of(status, backends[1].1).is_some_and(|it| it != "up"))?;
    say(&format!("bob was killed (kill -9); noticed after {:.1} s:", killed.elapsed().as_secs_f64()));
    show(service, door);

    say("");
    let (child, _) = backend::start("bob", backends[1].1.port())?;
    let back = Instant::now();
    processes.0.push(("bob".to_owned(), child));
    wait("bob is used again", || state_of(status, backends[1].1).is_some_and(|it| it == "up"))?;
    say(&format!("bob was started again; used after {:.1} s:", back.elapsed().as_secs_f64()));
    show(service, door);

    say("");
    if !demo.once {
        say("The load balancer serves until you press Ctrl-C.");
    }
    say("Next, serve your own backends: docs/getting-started.md. Begin with");
    say(&format!("  {} check examples/web", command()?));
    if demo.once {
        return Ok(());
    }
    wait_for_interrupt(&mut processes)
}

/// What a figure of this build is worth.
fn optimised() -> &'static str {
    match env!("SEAWAY_OPT_LEVEL") {
        "0" => " (an unoptimised build; a fast one: cargo build --release)",
        _ => "",
    }
}

/// This program, as one would type it here.
fn command() -> Result<String> {
    let path = own_binary()?;
    let here = std::env::current_dir().ok();
    let within = here.and_then(|here| path.strip_prefix(here).ok().map(Path::to_path_buf));
    Ok(within.unwrap_or(path).display().to_string())
}

/// A folder of its own, removed at the end.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new() -> Result<Folder> {
        let path = std::env::temp_dir().join(format!("seaway-demo-{}", std::process::id()));
        std::fs::create_dir_all(path.join("manifests"))
            .with_context(|| format!("{} cannot be made", path.display()))?;
        Ok(Folder(path))
    }

    fn path(&self) -> std::path::PathBuf {
        self.0.join("manifests")
    }

    fn write(&self, demo: &Demo, backends: &[(&str, SocketAddr)]) -> Result<()> {
        for (file, text) in files(demo, backends) {
            let path = self.0.join(file);
            std::fs::write(&path, text).with_context(|| format!("{} cannot be written", path.display()))?;
        }
        Ok(())
    }

    fn join(&self, name: &str) -> std::path::PathBuf {
        self.0.join(name)
    }
}

/// What is served: a Service with its endpoints, and the configuration; each with its name in the folder.
fn files(demo: &Demo, backends: &[(&str, SocketAddr)]) -> [(&'static str, String); 2] {
    let mut slice = String::new();
    // A slice has one port for all its endpoints, and these have different ones: one slice each.
    for (name, at) in backends {
        slice.push_str(&format!(
            "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: hello-{name}\n  labels: {{kubernetes.io/service-name: hello}}\naddressType: IPv4\nendpoints:\n- addresses: [{}]\nports:\n- {{name: http, port: {}}}\n",
            at.ip(),
            at.port(),
        ));
    }
    let service = format!(
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: hello\n  annotations:\n    seaway.dev/health-check: http\n    seaway.dev/health-check-interval: 500ms\n    seaway.dev/health-check-fall: \"2\"\n    seaway.dev/front-door: \"true\"\nspec:\n  type: LoadBalancer\n  ports:\n  - {{name: http, port: {}}}\n",
        demo.port,
    );
    let config = format!(
        "host:\n  name: demo\n  addresses: [127.0.0.1]\nadmin:\n  listen: [\"127.0.0.1:{}\"]\ndataPlane:\n  workers: 1\nfrontDoor:\n  addresses: [127.0.0.1]\n  port: {}\n",
        demo.status_port, demo.http_port,
    );
    [("manifests/hello.yaml", service + &slice), ("seaway.yaml", config)]
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A temporary folder that stays behind is no reason to fail.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn start_seaway(folder: &Folder) -> Result<Child> {
    let arguments: [&Path; 7] = [
        Path::new("run"),
        Path::new("--config"),
        &folder.join("seaway.yaml"),
        Path::new("--manifests"),
        &folder.path(),
        Path::new("--state-dir"),
        &folder.join("state"),
    ];
    Command::new(own_binary()?)
        .args(arguments)
        .stdin(Stdio::null())
        // Ctrl-C at a terminal reaches the whole group, and this one is told to stop by us: twice would mean at once.
        .process_group(0)
        .spawn()
        .context("seaway run cannot be started")
}

pub(super) fn own_binary() -> Result<std::path::PathBuf> {
    std::env::current_exe().context("this program does not know its own path")
}

fn end(processes: &mut Processes, name: &str) -> Result<()> {
    let at =
        processes.0.iter().position(|(it, _)| it == name).with_context(|| format!("{name} does not run"))?;
    let (_, mut child) = processes.0.remove(at);
    child.kill()?;
    child.wait()?;
    Ok(())
}

fn show(service: SocketAddr, door: SocketAddr) {
    let connections = (0..9).map(|_| client::get(service, "/"));
    say(&format!("  nine connections:                {}", who_answered(connections)));
    let requests = client::repeated_answers(door, "/hello", 9);
    say(&format!("  nine requests of one connection: {}", who_answered(requests)));
}

/// And how often: `alice 3, bob 3, carol 3`.
fn who_answered(answers: impl IntoIterator<Item = Result<client::HttpResponse>>) -> String {
    let mut counts: std::collections::BTreeMap<String, usize> = std::collections::BTreeMap::new();
    for answer in answers {
        let who = match answer {
            Ok(answer) => answer.body.split_whitespace().last().unwrap_or("nobody").to_owned(),
            Err(error) => format!("failed ({error})"),
        };
        *counts.entry(who).or_default() += 1;
    }
    counts.iter().map(|(who, count)| format!("{who} {count}")).collect::<Vec<_>>().join(", ")
}

/// What the status page says of a member: `up`, `down`, `ejected`.
fn state_of(status: SocketAddr, member: SocketAddr) -> Option<String> {
    let state: serde_json::Value = serde_json::from_str(&client::get(status, "/state").ok()?.body).ok()?;
    let services = state.get("services")?.as_array()?;
    let pools = services.iter().filter_map(|it| it.get("pools")?.as_array()).flatten();
    let mut members = pools.filter_map(|it| it.get("members")?.as_array()).flatten();
    let found =
        members.find(|it| it.get("address").and_then(|it| it.as_str()) == Some(&member.to_string()))?;
    Some(found.get("state")?.as_str()?.to_owned())
}

fn wait(what: &str, mut met: impl FnMut() -> bool) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while !met() {
        if Instant::now() > deadline {
            bail!("timed out after {} s waiting until {what}", PATIENCE.as_secs());
        }
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The demo ends when the load balancer has drained and stopped.
fn wait_for_interrupt(processes: &mut Processes) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut signals = seaway_admin::Signals::listen()?;
        signals.next().await;
        anyhow::Ok(())
    })?;
    if let Some((_, seaway)) = processes.0.iter_mut().find(|(name, _)| name == "seaway") {
        nix::sys::signal::kill(
            nix::unistd::Pid::from_raw(seaway.id() as i32),
            nix::sys::signal::Signal::SIGTERM,
        )
        .ok();
        let deadline = Instant::now() + Duration::from_secs(3);
        while seaway.try_wait()?.is_none() && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(20));
        }
    }
    Ok(())
}

fn say(line: &str) {
    crate::output::line(line);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_demo_serves_stays_what_it_is() {
        let demo = Demo { port: 8080, http_port: 8081, status_port: 1936, once: false, backend: None };
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let [manifests, config] = files(&demo, &[("alice", at(40_001)), ("bob", at(40_002))]);
        assert_eq!(manifests, ("manifests/hello.yaml", include_str!("demo/hello.yaml").to_owned()));
        assert_eq!(config, ("seaway.yaml", include_str!("demo/seaway.yaml").to_owned()));
    }
}
