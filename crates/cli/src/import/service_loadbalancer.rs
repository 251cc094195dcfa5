//! `seaway import service-loadbalancer`: the flags and the loadbalancer.json of the old HAProxy bank as a seaway.yaml.
//!
//! What has no counterpart here becomes a comment that says what to do instead. Nothing is read but that one file, and
//! nothing is written: the result is printed.

use std::{fmt::Write, path::Path, process::ExitCode};

use anyhow::{Context, Result, bail};
use serde_json::{Map, Value};

use crate::{args::ImportServiceLoadbalancer, output};

pub(super) fn run(arguments: &ImportServiceLoadbalancer) -> Result<ExitCode> {
    let mut bank = ServiceLoadbalancerFlags::default();
    let named = bank.flags(&arguments.flags)?;
    if let Some(file) = arguments.config.as_deref().or(named.as_deref().map(Path::new)) {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        bank.json(&text).with_context(|| file.display().to_string())?;
    }
    output::line(bank.yaml().trim_end());
    Ok(ExitCode::SUCCESS)
}

/// What the old bank was told.
#[derive(Debug, Default)]
struct ServiceLoadbalancerFlags {
    tcp_services: Vec<String>,
    namespace: Option<String>,
    target_service: Option<String>,
    http_port: Option<u16>,
    stats_port: Option<u16>,
    algorithm: Option<&'static str>,
    error_page: Option<String>,
    return_code: Option<u16>,
    certificate: Option<String>,
    /// What has no counterpart, and what to do instead.
    notes: Vec<(String, &'static str)>,
}

const CLUSTER: &str = "Seaway connects to no cluster here: it reads Services from a folder, seaway run DIR";
const LOGGING: &str = "logs go to standard error; see `log` for their level and format";

/// Flags that take no value of their own unless it is joined by `=`.
const SWITCHES: &[(&str, &str)] = &[
    ("dry", "use seaway plan or seaway check, which serve nothing"),
    ("use-kubernetes-cluster-service", CLUSTER),
    ("forward-services", "not needed: Seaway sends traffic to endpoints directly, never to a ClusterIP"),
    ("syslog", LOGGING),
    ("logtostderr", LOGGING),
    ("alsologtostderr", LOGGING),
    ("insecure-skip-tls-verify", CLUSTER),
    ("match-server-version", CLUSTER),
];

/// Flags with a value that says nothing here.
const VALUES: &[(&str, &str)] = &[
    (
        "ssl-ca-cert",
        "service-loadbalancer did not require client certificates; to require them, set \
                     frontDoor: {tls: {clients: …}}",
    ),
    ("v", LOGGING),
    ("vmodule", LOGGING),
    ("log-dir", LOGGING),
    ("log-backtrace-at", LOGGING),
    ("log-flush-frequency", LOGGING),
    ("stderrthreshold", LOGGING),
    ("api-version", CLUSTER),
    ("certificate-authority", CLUSTER),
    ("client-certificate", CLUSTER),
    ("client-key", CLUSTER),
    ("cluster", CLUSTER),
    ("context", CLUSTER),
    ("kubeconfig", CLUSTER),
    ("password", CLUSTER),
    ("server", CLUSTER),
    ("token", CLUSTER),
    ("user", CLUSTER),
    ("username", CLUSTER),
];

impl ServiceLoadbalancerFlags {
    /// Reads flags; says which loadbalancer.json they name.
    fn flags(&mut self, flags: &[String]) -> Result<Option<String>> {
        let mut config = None;
        let mut rest = flags.iter();
        while let Some(flag) = rest.next() {
            let Some(written) = flag.strip_prefix("--").or_else(|| flag.strip_prefix('-')) else {
                bail!(
                    "{flag:?} is not a flag; write the flags of service-loadbalancer as they were, such \
                       as --tcp-services=mysql:3306"
                );
            };
            let (name, joined) = match written.split_once('=') {
                Some((name, value)) => (name.replace('_', "-"), Some(value.to_owned())),
                None => (written.replace('_', "-"), None),
            };
            if let Some((_, instead)) = SWITCHES.iter().find(|(it, _)| *it == name) {
                self.notes.push((flag.clone(), instead));
                continue;
            }
            let mut value = || match joined.clone().or_else(|| rest.next().cloned()) {
                Some(value) => Ok(value),
                None => bail!("{flag} needs a value"),
            };
            match name.as_str() {
                "cfg" | "config" => config = Some(value()?),
                "tcp-services" => self.tcp_services(&value()?)?,
                "namespace" => self.namespace = Some(value()?),
                "target-service" => self.target_service = Some(value()?),
                "http-port" => self.http_port = Some(number(flag, &value()?)?),
                "stats-port" => self.stats_port = Some(number(flag, &value()?)?),
                "ssl-cert" => self.certificate = Some(value()?),
                "error-page" => self.error_page = Some(value()?),
                "default-return-code" => {
                    let code = number(flag, &value()?)?;
                    if !(200..600).contains(&code) {
                        bail!("{flag}: a status is from 200 to 599");
                    }
                    self.return_code = Some(code);
                }
                "balance-algorithm" => self.algorithm(&value()?, flag),
                _ => match VALUES.iter().find(|(it, _)| *it == name) {
                    Some((_, instead)) => {
                        value()?;
                        self.notes.push((flag.clone(), instead));
                    }
                    None => bail!("service-loadbalancer has no flag --{name}"),
                },
            }
        }
        Ok(config)
    }

    fn tcp_services(&mut self, text: &str) -> Result<()> {
        for entry in text.split(',').map(str::trim).filter(|it| !it.is_empty()) {
            let named = entry.rsplit_once(':').filter(|(name, port)| {
                !name.is_empty()
                    && !name.contains(['/', ':', ' '])
                    && port.parse::<u16>().is_ok_and(|it| it > 0)
            });
            if named.is_none() {
                bail!("--tcp-services: {entry:?} must name a Service and its port, such as mysql:3306");
            }
            self.tcp_services.push(entry.to_owned());
        }
        Ok(())
    }

    fn algorithm(&mut self, text: &str, whence: &str) {
        self.algorithm = match text {
            "roundrobin" => Some("round-robin"),
            "leastconn" => Some("least-connections"),
            "source" => Some("source-hash"),
            "first" => Some("first"),
            _ => {
                let instead = "Seaway does not have this algorithm; it has round-robin, least-connections, \
                     random-two, source-hash and first";
                self.notes.push((whence.to_owned(), instead));
                return;
            }
        };
    }

    fn json(&mut self, text: &str) -> Result<()> {
        let keys: Map<String, Value> = serde_json::from_str(text).context("the text is not a JSON object")?;
        for (key, value) in keys {
            let whence = format!("{key}: {value}");
            match key.as_str() {
                // A flag says it louder.
                "algorithm" if self.algorithm.is_none() => {
                    self.algorithm(value.as_str().unwrap_or_default(), &whence);
                }
                "algorithm" | "name" => {}
                "reloadCmd" => {
                    self.notes.push((whence, "Seaway needs no reload: a changed file takes effect at once"))
                }
                "config" | "template" => {
                    self.notes.push((whence, "Seaway has no template: the Service says what is served"));
                }
                _ => self.notes.push((whence, "not known")),
            }
        }
        Ok(())
    }

    fn yaml(&self) -> String {
        let mut text =
            "# Made by seaway import service-loadbalancer. All keys: seaway config --example\n".to_owned();
        self.front_door(&mut text);
        if !self.tcp_services.is_empty() {
            text.push_str("\ntcpServices:\n");
            for entry in &self.tcp_services {
                let namespace = self.namespace.as_ref().map_or(String::new(), |it| format!("{it}/"));
                let _ = writeln!(text, "- {namespace}{entry}");
            }
        }
        if let Some(balance) = self.algorithm {
            let _ = writeln!(text, "\ndefaults:\n  balance: {balance}");
        }
        if let Some(port) = self.stats_port {
            let _ = writeln!(
                text,
                "\n# It was open to everybody, and has no password here either: loopback, until you say otherwise.\nadmin:\n  listen: [\"127.0.0.1:{port}\", \"[::1]:{port}\"]"
            );
        }
        if let Some(namespace) = &self.namespace {
            let _ = writeln!(
                text,
                "\n# --namespace={namespace}: Seaway serves every namespace in the folder: keep manifests of other namespaces out of it."
            );
        }
        if !self.notes.is_empty() {
            text.push_str("\n# Without a counterpart here:\n");
        }
        for (what, instead) in &self.notes {
            let _ = writeln!(text, "#   {}\n#     {instead}", what.replace('\n', " "));
        }
        text
    }

    fn front_door(&self, text: &mut String) {
        let _ = writeln!(text, "\nfrontDoor:\n  enabled: true");
        if let Some(port) = self.http_port {
            let _ = writeln!(text, "  port: {port}");
        }
        if let Some(service) = &self.target_service {
            let _ = writeln!(
                text,
                "  services: annotated            # --target-service={service}: annotate it with seaway.dev/front-door: \"true\""
            );
        }
        if let Some(file) = &self.certificate {
            // What its template said, and served by https whoever had lb.sslTerm.
            let _ = writeln!(
                text,
                "  certificates: [{{cert: {file:?}}}]\n  tls: {{secrets: named, hsts: 4380h}}"
            );
        }
        let page = self.error_page.as_deref().map(page);
        let fetched = page.as_ref().and_then(|it| it.1.as_ref());
        if let Some(url) = fetched {
            let _ = writeln!(text, "  # Pages are files: curl -o {PAGE} {url}");
        }
        let parts = [
            self.return_code.map(|code| format!("code: {code}")),
            page.as_ref().map(|(file, _)| format!("page: {file:?}")),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if !parts.is_empty() {
            let _ = writeln!(text, "  unmatched: {{{}}}", parts.join(", "));
        }
    }
}

/// Where a page is put that was fetched.
const PAGE: &str = "error-page.html";

/// The file of a page, and where it is to be fetched from, if it is no file yet.
fn page(url: &str) -> (String, Option<String>) {
    match url.strip_prefix("file://") {
        Some(path) => (path.to_owned(), None),
        None if url.contains("://") => (PAGE.to_owned(), Some(url.to_owned())),
        None => (url.to_owned(), None),
    }
}

fn number(flag: &str, text: &str) -> Result<u16> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => bail!("{flag}: {text:?} is not a number from 1 to 65535"),
    }
}

#[cfg(test)]
mod tests;
