//! `seaway.yaml`: read, checked, and resolved into what each part of the process is given.
//!
//! Every key is known or refused, with file, line and a suggestion. Defaults live here and in `model`, nowhere else;
//! `example.yaml` beside this file shows all of them, and a test holds it to that.

mod access_log;
mod acme;
mod adopt;
mod balancing;
mod certificates;
pub(crate) mod checked;
pub(crate) mod data_plane;
mod dns;
pub(crate) mod doubts;
mod exposed;
mod front_door;
pub(crate) mod layer2;
mod limits;
mod metrics;
mod nodes;
mod pools;
mod series;
pub(crate) mod tenants;

use std::{
    net::{IpAddr, SocketAddr},
    path::{Path, PathBuf},
    time::Duration,
};

use seaway_admin::logging::check_level;
use seaway_cluster::{ClusterAccess, LeaseTimings, WatchTimings};
use seaway_files::pem::PemFiles;
use seaway_manifests::{
    decode::{Field, FieldReads, ValidationError, ValidationErrors},
    tree,
};
use seaway_model::{
    Config, L4, Name,
    config::{OrphanPolicy, TlsSecrets},
};
use seaway_node::Layer2Settings;
use seaway_openstack::Limits;
use seaway_proxy::{AccessLog, MemoryLimits};

use self::{data_plane::DataPlane, series::Series, tenants::ExplicitKeys};
pub(crate) use self::{metrics::Metrics, nodes::NodeKeys};

pub(crate) const EXAMPLE: &str = include_str!("settings/example.yaml");

/// Who serves Services that name no class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DefaultDriver {
    Native,
    Octavia,
    None,
}

/// The whole configuration of a process.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) host: Name,
    /// The host's own addresses; empty: those that are found.
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) manifests: Option<PathBuf>,
    pub(crate) state_dir: Option<PathBuf>,
    /// Where a host of a cluster keeps what it knows; `None`: below /run.
    pub(crate) snapshot: Option<PathBuf>,
    pub(crate) workers: Option<usize>,
    pub(crate) pin: bool,
    /// Which program serves.
    pub(crate) data_plane: DataPlane,
    /// `None`: loopback, where there is one.
    pub(crate) admin: Option<Vec<SocketAddr>>,
    /// `None`: metrics are shown with the status page alone.
    pub(crate) metrics: Option<Metrics>,
    pub(crate) log_json: bool,
    pub(crate) log_level: String,
    pub(crate) resolvers: Vec<SocketAddr>,
    /// How long a clean stop waits for connections.
    pub(crate) drain: Duration,
    /// How long a controller that leads and is silent is waited for.
    pub(crate) lease: Duration,
    /// What a silent host may hold is nobody else's for so long.
    pub(crate) quarantine: Duration,
    /// Certificates in files.
    pub(crate) pems: Vec<PemFiles>,
    /// `None`: nobody wants to know who asked for what.
    pub(crate) access_log: Option<AccessLog>,
    pub(crate) series: Series,
    /// What clients may make the process hold.
    pub(crate) memory: MemoryLimits,
    /// How hosts agree who announces an address by ARP and NDP.
    pub(crate) layer2: Layer2Settings,
    /// Where IPAddressPools are read.
    pub(crate) metallb: Name,
    /// Where hosts of a cluster read certificates, as copies that the leader keeps.
    pub(crate) copies: Option<Name>,
    /// Everything in a cloud is looked at this often.
    pub(crate) audit: Duration,
    /// Load balancers of a cloud in ERROR that do not come back are made again.
    pub(crate) rebuild: bool,
    /// How many requests a cloud gets.
    pub(crate) requests: Limits,
    /// Which Nodes of a cloud are deleted, and when; what is said of their pods' networks.
    pub(crate) nodes: NodeKeys,
    /// Whether Services without a class are ours, where that is said.
    pub(crate) by_default: Option<DefaultDriver>,
    /// Which keys are set whose defaults differ between a folder and a cluster.
    pub(crate) said: ExplicitKeys,
    /// What was odd in files beside the configuration, though it works.
    pub(crate) told: Vec<String>,
    pub(crate) config: Config,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            host: host_name(),
            addresses: Vec::new(),
            manifests: None,
            state_dir: None,
            snapshot: None,
            workers: None,
            pin: false,
            data_plane: DataPlane::default(),
            admin: None,
            metrics: None,
            log_json: false,
            log_level: "info".to_owned(),
            resolvers: Vec::new(),
            drain: Duration::from_secs(30),
            lease: LeaseTimings::LEADER.term,
            quarantine: WatchTimings::default().quarantine,
            pems: Vec::new(),
            access_log: None,
            series: Series::default(),
            memory: MemoryLimits::default(),
            layer2: Layer2Settings::default(),
            metallb: ClusterAccess::METALLB.into(),
            copies: None,
            audit: Duration::from_secs(300),
            rebuild: false,
            requests: Limits::default(),
            nodes: NodeKeys::default(),
            by_default: None,
            said: ExplicitKeys::default(),
            told: Vec::new(),
            config: Config::default(),
        }
    }
}

impl Settings {
    /// Keys that only a new process can follow.
    pub(crate) fn needs_restart(&self, before: &Settings) -> Vec<&'static str> {
        let differs = [
            ("host", self.host != before.host || self.addresses != before.addresses),
            ("manifests", self.manifests != before.manifests),
            ("stateDir", self.state_dir != before.state_dir),
            ("snapshot", self.snapshot != before.snapshot),
            (
                "dataPlane",
                (self.workers, self.pin, &self.data_plane)
                    != (before.workers, before.pin, &before.data_plane),
            ),
            ("admin", self.admin != before.admin || self.metrics != before.metrics),
            ("metrics", self.series.limits != before.series.limits),
            ("log.format", self.log_json != before.log_json),
            ("resolvers", self.resolvers != before.resolvers),
            ("lease", self.lease != before.lease),
            ("quarantine", self.quarantine != before.quarantine),
            ("cloud.audit", self.audit != before.audit),
            ("cloud.requestsPerSecond", self.requests.per_second != before.requests.per_second),
            ("cloud.inFlight", self.requests.in_flight != before.requests.in_flight),
            ("pools.metallbNamespace", self.metallb != before.metallb),
            ("certificateCopies", self.copies != before.copies),
        ];
        differs.into_iter().filter(|(_, differs)| *differs).map(|(key, _)| key).collect()
    }
}

/// Everything wrong with a file, each with its place.
#[derive(Debug)]
pub(crate) struct SettingsError(pub(crate) Vec<String>);

impl std::fmt::Display for SettingsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.join("\n"))
    }
}

impl std::error::Error for SettingsError {}

/// Reads a file, or takes the defaults where none is named.
pub(crate) fn load(file: Option<&Path>) -> Result<Settings, SettingsError> {
    let Some(file) = file else { return Ok(Settings::default()) };
    let text = std::fs::read_to_string(file)
        .map_err(|error| SettingsError(vec![format!("{}: {error}", file.display())]))?;
    let beside = file.parent().unwrap_or(Path::new(""));
    parse(&text, beside).map_err(|faults| {
        let told = |it: &ValidationError| format!("{}:{}:{}: {it}", file.display(), it.at.line, it.at.column);
        SettingsError(faults.iter().map(told).collect())
    })
}

/// `beside`: where files are that it names.
pub(crate) fn parse(text: &str, beside: &Path) -> Result<Settings, Vec<ValidationError>> {
    let roots = tree::parse(text).map_err(|error| {
        vec![ValidationError { field: String::new(), at: error.at, message: error.message.clone() }]
    })?;
    let faults = ValidationErrors::default();
    let settings = match roots.as_slice() {
        [] => Settings::default(),
        [root] => read(&Field::root(root, &faults), beside),
        [_, second, ..] => {
            let message =
                "a configuration must be one YAML document, but a second one begins here".to_owned();
            return Err(vec![ValidationError { field: String::new(), at: second.at, message }]);
        }
    };
    if faults.is_empty() { Ok(settings) } else { Err(faults.into_sorted()) }
}

/// What is read of a file, and as what.
pub(crate) fn fields_read(text: &str) -> FieldReads {
    let faults = ValidationErrors::recording();
    if let Ok([root]) = tree::parse(text).as_deref() {
        read(&Field::root(root, &faults), Path::new(""));
    }
    faults.into_reads()
}

fn read(root: &Field<'_>, beside: &Path) -> Settings {
    let mut settings = Settings::default();
    let file = root.object();
    host(&file.take("host"), &mut settings);
    settings.manifests = file.take("manifests").name().map(PathBuf::from);
    settings.state_dir = file.take("stateDir").name().map(PathBuf::from);
    settings.snapshot = file.take("snapshot").name().map(PathBuf::from);
    data_plane(&file.take("dataPlane"), &mut settings);
    let admin = file.take("admin");
    admin_section(&admin, beside, &mut settings);
    let log = file.take("log");
    log_section(&log, &mut settings);
    settings.access_log = access_log::read(&file.take("accessLog"), beside);
    settings.series = series::read(&file.take("metrics"));
    settings.memory = limits::read(&file.take("limits"));
    settings.resolvers = sockets(&file.take("resolvers"), 53);
    if let Some(drain) = file.take("drain").duration() {
        settings.drain = drain;
    }
    if let Some(quarantine) = file.take("quarantine").duration() {
        settings.quarantine = quarantine;
    }
    let lease = file.take("lease");
    match lease.duration() {
        // The API counts in seconds.
        Some(term) if term < Duration::from_secs(1) => {
            lease.invalid(&*format!("{term:?}"), "must be 1s or more")
        }
        Some(term) => settings.lease = term,
        None => {}
    }
    cloud(&file.take("cloud"), &mut settings);
    settings.nodes = nodes::read(&file.take("nodes"));
    settings.config.adopt = adopt::read(&file.take("adopt"));
    pools::read(&file.take("pools"), &mut settings);
    (settings.layer2, settings.config.layer2) = layer2::read(&file.take("layer2"), beside);
    settings.config.dns = dns::read(&file.take("dns"), beside);
    let copies = file.take("certificateCopies");
    settings.copies = copies.name().map(Name::from);
    let classes = file.take("loadBalancerClasses");
    if classes.is_set() {
        settings.config.classes = classes.texts().into_iter().map(Name::from).collect();
    }
    settings.by_default = file.take("defaultDriver").one_of(&[
        ("native", DefaultDriver::Native),
        ("octavia", DefaultDriver::Octavia),
        ("none", DefaultDriver::None),
    ]);
    settings.config.classless =
        settings.by_default.map_or(settings.config.classless, |it| it == DefaultDriver::Native);
    let mut exposed = exposed::read(&file.take("tcpServices"), "tcpServices", L4::Tcp);
    exposed.extend(exposed::read(&file.take("udpServices"), "udpServices", L4::Udp));
    settings.config.exposed = exposed;
    let door = &mut settings.config.front_door;
    front_door::read(&file.take("frontDoor"), beside, door, &mut settings.pems, &mut settings.said);
    if copies.is_set() && settings.said.secrets && settings.config.front_door.tls.secrets == TlsSecrets::All {
        copies
            .error("cannot be combined with `frontDoor.tls.secrets: all`: only Secrets that something names are copied");
    }
    tenants::read(&file.take("tenants"), &mut settings.config.tenants, &mut settings.said);
    balancing::read(&file.take("defaults"), beside, &mut settings.config.defaults);
    file.finish();
    settings
}

fn host(field: &Field<'_>, settings: &mut Settings) {
    let host = field.object();
    if let Some(name) = host.take("name").name() {
        settings.host = name.into();
    }
    settings.addresses = host.take("addresses").items().filter_map(|it| it.ip()).collect();
    let labels = host.take("labels");
    let labels = labels.entries().filter_map(|(key, value)| Some((key.into(), value.text()?.into())));
    settings.config.host_labels = labels.collect();
    host.finish();
}

fn data_plane(field: &Field<'_>, settings: &mut Settings) {
    let section = field.object();
    settings.workers = section.take("workers").integer_within(1, 1_024);
    settings.pin = section.take("pin").bool().unwrap_or(false);
    settings.data_plane = data_plane::read(&section.take("driver"), &section.take("haproxy"));
    section.finish();
}

fn admin_section(field: &Field<'_>, beside: &Path, settings: &mut Settings) {
    let section = field.object();
    let listen = section.take("listen");
    if listen.is_set() {
        settings.admin = Some(sockets(&listen, 1936));
    }
    settings.metrics = metrics::read(&section.take("metrics"), beside);
    section.finish();
}

fn cloud(field: &Field<'_>, settings: &mut Settings) {
    let section = field.object();
    let audit = section.take("audit");
    match audit.duration() {
        // Lists of a thousand load balancers are no matter of seconds.
        Some(period) if period < Duration::from_secs(10) => {
            audit.invalid(&*format!("{period:?}"), "must be 10s or more");
        }
        Some(period) => settings.audit = period,
        None => {}
    }
    settings.rebuild = section.take("rebuildOnError").bool().unwrap_or(false);
    let usual = Limits::default();
    settings.requests = Limits {
        per_second: section.take("requestsPerSecond").integer_within(1, 1_000).unwrap_or(usual.per_second),
        in_flight: section.take("inFlight").integer_within(1, 1_000).unwrap_or(usual.in_flight),
    };
    let orphans =
        section.take("orphans").one_of(&[("report", OrphanPolicy::Report), ("delete", OrphanPolicy::Delete)]);
    settings.config.orphans = orphans.unwrap_or(OrphanPolicy::Report);
    section.finish();
}

fn log_section(field: &Field<'_>, settings: &mut Settings) {
    let section = field.object();
    settings.log_json = section.take("format").one_of(&[("human", false), ("json", true)]).unwrap_or(false);
    let level = section.take("level");
    if let Some(text) = level.name() {
        match check_level(text) {
            Ok(()) => settings.log_level = text.to_owned(),
            Err(_) => level.invalid(
                text,
                "must be off, error, warn, info, debug or trace, or one for a part of the program, as in \
                 info,seaway_proxy=debug",
            ),
        }
    }
    section.finish();
}

/// `127.0.0.1:53`, `[::1]:53`, or an address alone.
fn sockets(field: &Field<'_>, port: u16) -> Vec<SocketAddr> {
    field.items().filter_map(|item| socket(&item, port)).collect()
}

fn socket(field: &Field<'_>, port: u16) -> Option<SocketAddr> {
    let text = field.text()?;
    let bare = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, port));
    let at = text.parse::<SocketAddr>().or(bare).ok();
    if at.is_none() {
        let why = format!("must be an address with a port, such as 127.0.0.1:{port} or [::1]:{port}");
        field.invalid(text, &why);
    }
    at
}

fn host_name() -> Name {
    nix::unistd::gethostname()
        .ok()
        .and_then(|it| it.into_string().ok())
        .filter(|it| !it.is_empty())
        .map_or("localhost".into(), Name::from)
}

#[cfg(test)]
mod tests {
    use seaway_model::fact::TargetPort;

    use super::*;

    fn parse(text: &str) -> Result<Settings, Vec<ValidationError>> {
        super::parse(text, Path::new(""))
    }

    fn faults(text: &str) -> Vec<String> {
        let faults = parse(text).expect_err("it is wrong");
        faults.iter().map(|it| format!("{}: {it}", it.at)).collect()
    }

    #[test]
    fn the_example_shows_every_key_and_its_default() {
        let settings = parse(EXAMPLE).expect("the example is right");
        assert_eq!(settings, Settings::default());
        // With every commented key in force, it is still right: none is misspelt or out of date.
        let all: Vec<&str> = EXAMPLE
            .lines()
            .map(|line| line.strip_prefix('#').filter(|it| !it.starts_with(' ')).unwrap_or(line))
            .collect();
        let full = parse(&all.join("\n")).expect("the example is right with every key in force");
        assert_eq!(full.config.exposed.len(), 4);
    }

    #[test]
    fn every_key_that_ever_was_is_still_understood() {
        // Files that it names are not here.
        let mut faults = faults(include_str!("../golden/seaway.yaml"));
        assert_eq!(faults.len(), 3, "public names change only with an alias: {faults:?}");
        faults.retain(|it| !it.contains("must be a file that can be read"));
        assert!(faults.is_empty(), "public names change only with an alias: {faults:?}");
    }

    #[test]
    fn an_unknown_key_is_refused_with_its_place_and_a_suggestion() {
        assert_eq!(
            faults("host:\n  name: a\ndefualts: {}\n"),
            ["3:1: defualts: unknown field (did you mean \"defaults\"?)"]
        );
        assert_eq!(
            faults("log:\n  levl: info\n"),
            ["2:3: log.levl: unknown field (did you mean \"level\"?)"]
        );
    }

    #[test]
    fn checks_that_are_asked_for_do_not_rest_unless_that_is_asked_for_too() {
        let rests = |text: &str| parse(text).expect("right").config.defaults.health.map(|it| it.while_used);
        assert_eq!(rests(""), Some(true));
        assert_eq!(rests("defaults: {healthCheck: {kind: tcp}}"), Some(false));
        assert_eq!(rests("defaults: {healthCheck: {kind: http, whileUsed: true}}"), Some(true));
        assert_eq!(rests("defaults: {healthCheck: off}"), None);
    }

    #[test]
    fn how_many_requests_a_cloud_gets_is_said_and_takes_a_new_process() {
        let usual = parse("").expect("right");
        assert_eq!(usual.requests, Limits { per_second: 50, in_flight: 32 });
        let settings = parse("cloud: {requestsPerSecond: 10, inFlight: 4}").expect("right");
        assert_eq!(settings.requests, Limits { per_second: 10, in_flight: 4 });
        assert_eq!(settings.needs_restart(&usual), ["cloud.requestsPerSecond", "cloud.inFlight"]);
        for wrong in ["requestsPerSecond: 0", "requestsPerSecond: 10000", "inFlight: 0", "inFlight: many"] {
            let told = faults(&format!("cloud: {{{wrong}}}"));
            assert_eq!(told.len(), 1, "{wrong}: {told:?}");
        }
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let told = faults(
            "admin:\n  listen: [nowhere]\ntcpServices: [mysql, {port: 3306}]\ndrain: soon\nlease: 10ms\n",
        );
        assert_eq!(told.len(), 5, "{told:?}");
    }

    #[test]
    fn copies_of_certificates_are_of_those_that_are_named() {
        let settings = parse("certificateCopies: seaway-certificates").expect("right");
        assert_eq!(settings.copies.as_deref(), Some("seaway-certificates"));
        let all = "certificateCopies: a\nfrontDoor: {tls: {secrets: all}}";
        assert!(faults(all)[0].contains("certificateCopies: cannot be combined with"), "{:?}", faults(all));
        assert!(parse(&all.replace("all", "named")).is_ok());
    }

    #[test]
    fn services_are_named_as_the_old_flag_did_or_by_a_map() {
        let settings = parse("tcpServices: ['mysql:3306', 'shop/web:http', {service: a/b, port: 1, listen: 2, address: 127.0.0.1}]").expect("right");
        let short = &settings.config.exposed[0];
        assert_eq!(
            (short.namespace.as_str(), short.service.as_str(), &short.port),
            ("default", "mysql", &TargetPort::Number(3306))
        );
        assert_eq!(settings.config.exposed[1].port, TargetPort::Name("http".into()));
        assert_eq!(settings.config.exposed[2].listen, Some(2));
    }
}
