//! `seaway init`: a first folder, with one manifest that passes `seaway check`. Nothing that is there is overwritten.

use std::{
    fs::{self, OpenOptions},
    io::{self, BufRead, ErrorKind, IsTerminal, Write},
    net::Ipv4Addr,
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    process::ExitCode,
};

use anyhow::{Context, Result, bail};
use seaway_model::Problem;
use serde_json::{Value, json};

use crate::{args::Init, look, output, schema, settings::Settings};

/// Hidden, so that it is not read as a manifest.
const SCHEMA: &str = ".seaway-schema.json";
/// Of seaway.yaml, beside the other.
const CONFIG_SCHEMA: &str = ".seaway-config-schema.json";
/// Of the front door, unless seaway.yaml says another.
const HTTP: u16 = 80;
/// Any user may open it.
const UNPRIVILEGED: u16 = 8080;

#[derive(Debug, PartialEq, Eq)]
struct InitAnswers {
    port: u16,
    backends: String,
    /// Without it, TCP.
    host: Option<String>,
}

pub(crate) fn run(arguments: &Init) -> Result<ExitCode> {
    let is_told =
        arguments.port.is_some() || arguments.backends.is_some() || arguments.host.is_some() || arguments.tcp;
    let answers = if !is_told && io::stdin().is_terminal() {
        ask(&mut io::stdin().lock(), &mut io::stderr().lock())?
    } else {
        told(arguments)?
    };
    let manifest = manifest(&name_of(&arguments.dir), &answers);
    let mistakes = mistakes(&manifest, &answers)?;
    if !mistakes.is_empty() {
        for mistake in mistakes {
            output::error(&format!("{}: {}", mistake.field, mistake.message));
            mistake.fix.lines().for_each(|line| output::error(&format!("    {line}")));
        }
        bail!("nothing is written, because `seaway check` would not accept it");
    }
    write(&arguments.dir, &manifest, &answers)?;
    Ok(ExitCode::SUCCESS)
}

/// As `seaway check` names them, for a process that serves at all addresses of this machine, and for one at loopback alone, as it is
/// tried out first.
fn mistakes(manifest: &str, answers: &InitAnswers) -> Result<Vec<Problem>> {
    let mut settings = Settings::default();
    if answers.host.is_some() {
        settings.config.front_door.port = answers.port;
        if answers.port == settings.config.front_door.tls.port {
            bail!("port {} is where the front door serves TLS: name another port", answers.port);
        }
    }
    let mut mistakes = look::mistakes_of(manifest, &settings)?;
    settings.addresses = vec![Ipv4Addr::LOCALHOST.into()];
    for mistake in look::mistakes_of(manifest, &settings)? {
        if !mistakes.contains(&mistake) {
            mistakes.push(mistake);
        }
    }
    Ok(mistakes)
}

fn told(arguments: &Init) -> Result<InitAnswers> {
    let Some(backends) = arguments.backends.clone() else {
        bail!("which backends? Name them: --backends 127.0.0.1:3000,127.0.0.1:3001");
    };
    let host = arguments.host.clone().filter(|it| !it.trim().is_empty());
    let port = arguments.port.unwrap_or_else(|| usual_port(host.is_some()));
    Ok(InitAnswers { port, backends, host })
}

fn usual_port(is_http: bool) -> u16 {
    if is_http && nix::unistd::geteuid().is_root() { HTTP } else { UNPRIVILEGED }
}

fn ask(from: &mut dyn BufRead, to: &mut dyn Write) -> Result<InitAnswers> {
    let mut question = |text: &str| -> Result<String> {
        write!(to, "{text} ")?;
        to.flush()?;
        let mut line = String::new();
        if from.read_line(&mut line)? == 0 {
            bail!("the input ended before all questions were answered; nothing is written");
        }
        Ok(line.trim().to_owned())
    };
    let backends = loop {
        let said = question("Backends, as ADDRESS:PORT, separated by commas:")?;
        if !said.is_empty() {
            break said;
        }
    };
    let host = question(
        "Host name to route HTTP by, such as shop.example or shop.example/api (empty: forward TCP):",
    )?;
    let host = Some(host).filter(|it| !it.is_empty());
    let usual = usual_port(host.is_some());
    let port = loop {
        let said = question(&format!("Port that clients connect to [{usual}]:"))?;
        match said.parse() {
            _ if said.is_empty() => break usual,
            Ok(port) if port > 0 => break port,
            _ => {}
        }
    };
    Ok(InitAnswers { port, backends, host })
}

/// That of the folder, as far as a Service may be called so.
fn name_of(dir: &Path) -> String {
    let whole = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let name = whole.file_name().map(|it| it.to_string_lossy().to_lowercase()).unwrap_or_default();
    let name = name.replace(|it: char| !it.is_ascii_alphanumeric(), "-");
    let name = name.trim_matches('-').chars().take(63).collect::<String>();
    if name.starts_with(|it: char| it.is_ascii_alphabetic()) { name } else { "web".to_owned() }
}

fn manifest(name: &str, answers: &InitAnswers) -> String {
    let (head, spec) = match &answers.host {
        None => (
            String::new(),
            format!(
                "  # Seaway listens on this port at the addresses of this machine, and forwards TCP \
                 unchanged.\n  type: LoadBalancer\n  \
                 ports:\n  - port: {}\n",
                answers.port
            ),
        ),
        Some(host) => (
            format!(
                "    # Clients request this host; with a path after it, only what begins with the path is served.\n    \
                 seaway.dev/host: {}\n",
                json!(host)
            ),
            format!(
                "  # HTTP for all Services arrives at the front door, at port {} of this machine{}.\n  ports:\n  - port: \
                 80\n",
                answers.port,
                if answers.port == HTTP { "" } else { ", as seaway.yaml says" }
            ),
        ),
    };
    format!(
        "# yaml-language-server: $schema={SCHEMA}\n# A Service as Kubernetes writes it. docs/manifests.md has all fields, \
         docs/annotations.md all annotations.\napiVersion: v1\nkind: Service\nmetadata:\n  name: {name}\n  annotations:\n    \
         # The backends: ADDRESS:PORT, separated by commas. Each may be followed by weight=N, name=WORD or \
         backup.\n    \
         seaway.dev/backends: {}\n{head}    # The health check of backends. Without a path, Seaway opens a \
         connection every 2 seconds.\n    \
         #seaway.dev/health-check-path: /healthz\n    # How a backend is chosen for a new client: \
         round-robin, least-connections, random-two, \
         source-hash or first.\n    #seaway.dev/balance: least-connections\nspec:\n{spec}",
        json!(answers.backends)
    )
}

fn write(dir: &Path, manifest: &str, answers: &InitAnswers) -> Result<()> {
    let file = dir.join(format!("{}.yaml", name_of(dir)));
    let needs_config = answers.host.is_some() && answers.port != HTTP;
    let config = dir.parent().unwrap_or(Path::new("")).join("seaway.yaml");
    let taken = std::iter::once(&file).chain(needs_config.then_some(&config)).find(|it| it.exists());
    if let Some(taken) = taken {
        let what = match *taken == config {
            true => {
                format!("write `frontDoor: {{port: {}}}` into it, and use --port {HTTP} here", answers.port)
            }
            false => "name another folder".to_owned(),
        };
        bail!("{} exists already and is not overwritten: {what}", taken.display());
    }
    fs::create_dir_all(dir).with_context(|| format!("the folder {} cannot be made", dir.display()))?;
    create(&file, manifest)?;
    output::line(&format!("wrote {}", file.display()));
    create_schema(&dir.join(SCHEMA), &schema::manifests::schema())?;
    let folder = dir.display();
    let mut run = format!("seaway run {folder} --address 127.0.0.1");
    if needs_config {
        create_schema(&dir.join(CONFIG_SCHEMA), &schema::config::schema())?;
        let within = dir.file_name().map(Path::new).unwrap_or(dir).join(CONFIG_SCHEMA);
        let text = format!(
            "# yaml-language-server: $schema={}\n# All keys: seaway config --example\nfrontDoor: {{port: {}}}\n",
            within.display(),
            answers.port
        );
        create(&config, &text)?;
        output::line(&format!("wrote {}", config.display()));
        run.push_str(&format!(" --config {}", config.display()));
    }
    let curl = match &answers.host {
        None => format!("curl http://127.0.0.1:{}/", answers.port),
        Some(host) => {
            let first = host.split(',').next().unwrap_or_default().trim();
            let (name, path) = first.split_once('/').unwrap_or((first, ""));
            let name = name.replacen('*', "www", 1);
            format!("curl -H 'Host: {name}' http://127.0.0.1:{}/{path}", answers.port)
        }
    };
    output::line(&format!(
        "\nServe it on this machine alone; without --address, at all of the machine's addresses:\n    {run}\nThen, in \
         another terminal:\n    {curl}"
    ));
    Ok(())
}

/// One that is there already serves as well.
fn create_schema(path: &Path, schema: &Value) -> Result<()> {
    match create(path, &serde_json::to_string(schema)?) {
        Ok(()) => output::line(&format!("wrote {}, for editors", path.display())),
        Err(_) if path.exists() => {}
        Err(error) => return Err(error),
    }
    Ok(())
}

/// A file that is not there yet, whoever else writes at the same time.
pub(crate) fn create(path: &Path, text: &str) -> Result<()> {
    create_with(path, text, 0o666)
}

/// As `create`, for what only its owner may read, from the first byte.
pub(crate) fn create_secret(path: &Path, text: &str) -> Result<()> {
    create_with(path, text, 0o600)
}

fn create_with(path: &Path, text: &str, mode: u32) -> Result<()> {
    let opened = OpenOptions::new().write(true).create_new(true).mode(mode).open(path);
    let mut file = opened.map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => {
            anyhow::anyhow!("{} exists already and is not overwritten", path.display())
        }
        _ => anyhow::anyhow!("{} cannot be written: {error}", path.display()),
    })?;
    file.write_all(text.as_bytes()).with_context(|| format!("{} cannot be written", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_questions_are_asked_until_they_are_answered() {
        let asked = |said: &str| {
            let mut to = Vec::new();
            let answers = ask(&mut said.as_bytes(), &mut to);
            (answers.map_err(|it| it.to_string()), String::from_utf8(to).expect("is text"))
        };
        let (answers, text) = asked("\n127.0.0.1:3000\nshop.example/api\n0\nmany\n8081\n");
        let expected = InitAnswers {
            port: 8081,
            backends: "127.0.0.1:3000".into(),
            host: Some("shop.example/api".into()),
        };
        assert_eq!(answers, Ok(expected));
        assert_eq!(text.matches("Backends").count(), 2, "{text}");
        assert_eq!(text.matches("Port").count(), 3, "{text}");
        let (answers, _) = asked("127.0.0.1:3000\n\n\n");
        assert_eq!(answers, Ok(InitAnswers { port: 8080, backends: "127.0.0.1:3000".into(), host: None }));
        assert!(asked("127.0.0.1:3000\n").0.is_err_and(|it| it.contains("nothing is written")));
    }

    #[test]
    fn a_backend_that_is_its_own_listener_is_a_mistake() {
        let answers = |port, backends: &str, host: Option<&str>| InitAnswers {
            port,
            backends: backends.into(),
            host: host.map(str::to_owned),
        };
        for (answers, is_loop) in [
            (answers(8099, "127.0.0.1", None), true),
            (answers(8099, "127.0.0.1:8099", None), true),
            (answers(8099, "127.0.0.1:3000", None), false),
            (answers(8099, "192.0.2.7", None), false),
            (answers(8099, "127.0.0.1:8099", Some("shop.example")), true),
            (answers(8099, "127.0.0.1:3000", Some("shop.example")), false),
        ] {
            let found = mistakes(&manifest("web", &answers), &answers).expect("it is planned");
            assert_eq!(found.len(), usize::from(is_loop), "{answers:?}: {found:?}");
            assert!(found.iter().all(|it| it.fix.contains("with the port where they listen")), "{found:?}");
        }
        let at_tls = answers(443, "127.0.0.1:3000", Some("shop.example"));
        assert!(mistakes(&manifest("web", &at_tls), &at_tls).is_err());
    }

    #[test]
    fn a_folder_s_name_becomes_one_that_a_service_may_have() {
        for (dir, name) in [("web", "web"), ("/srv/My Shop_2/", "my-shop-2"), ("/", "web"), ("9lives", "web")]
        {
            assert_eq!(name_of(Path::new(dir)), name, "{dir}");
        }
    }
}
