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
mod empty_values;
mod exposed;
mod front_door;
pub(crate) mod layer2;
mod limits;
pub(crate) mod listen_only;
mod metrics;
mod nodes;
mod pools;
mod series;
pub(crate) mod tenants;
mod trusted_networks;

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
    merge_conflict, other_language, tree,
};
use seaway_model::{
    Config, L4, Name,
    config::{OrphanPolicy, TlsSecrets},
};
use seaway_node::Layer2Settings;
use seaway_openstack::Limits;
use seaway_proxy::{AccessLog, MemoryLimits};

use self::{data_plane::DataPlane, doubts::Doubt, series::Series, tenants::ExplicitKeys};
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
    /// What the configuration itself says and probably does not mean, each with its place.
    pub(crate) doubts: Vec<String>,
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
            doubts: Vec::new(),
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
    let (mut settings, doubts) = parse_document(&text, beside)
        .map_err(|mistakes| SettingsError(mistakes.iter().map(|it| placed(file, it.at, it)).collect()))?;
    settings.doubts = doubts.iter().map(|(at, it)| placed(file, *at, it)).collect();
    Ok(settings)
}

fn placed(file: &Path, at: tree::Position, message: impl std::fmt::Display) -> String {
    format!("{}:{}:{}: {message}", file.display(), at.line, at.column)
}

/// `beside`: where files are that it names.
pub(crate) fn parse(text: &str, beside: &Path) -> Result<Settings, Vec<ValidationError>> {
    Ok(parse_document(text, beside)?.0)
}

type PlacedDoubts = Vec<(tree::Position, Doubt)>;

/// With what is valid and probably not meant.
fn parse_document(text: &str, beside: &Path) -> Result<(Settings, PlacedDoubts), Vec<ValidationError>> {
    let roots = documents(text).map_err(|error| vec![error])?;
    match roots.as_slice() {
        [] => Ok((Settings::default(), Vec::new())),
        [root] => {
            let (settings, mistakes) = read_document(root, beside);
            if !mistakes.is_empty() {
                return Err(mistakes);
            }
            let doubts = doubts::of_text(root, &settings);
            Ok((settings, doubts.into_iter().map(|it| (root.position_of(&it.field), it)).collect()))
        }
        [_, second, ..] => Err(vec![second_document(second)]),
    }
}

fn documents(text: &str) -> Result<Vec<tree::Node>, ValidationError> {
    let error = |at, message| ValidationError { field: String::new(), at, message };
    let roots = tree::parse(text).map_err(|it| {
        let (at, message) = merge_conflict(text).unwrap_or((it.at, it.message));
        error(at, other_language(text).unwrap_or(message))
    })?;
    if let [tree::Node { at, value: tree::Value::Text(_) }] = roots.as_slice()
        && let Some(message) = other_language(text)
    {
        return Err(error(*at, message));
    }
    Ok(roots)
}

fn second_document(second: &tree::Node) -> ValidationError {
    let message = "a configuration must be one YAML document, but a second one begins here".to_owned();
    ValidationError { field: String::new(), at: second.at, message }
}

/// As far as it can be read, with all that is wrong with it.
fn read_document(root: &tree::Node, beside: &Path) -> (Settings, Vec<ValidationError>) {
    let faults = ValidationErrors::default();
    let settings = read(&Field::root(root, &faults), beside);
    let mut mistakes = faults.into_sorted();
    empty_values::refuse(root, &mut mistakes);
    (settings, mistakes)
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
mod tests;
