//! Load balancers of a cloud beside our own: what `--cloud-config` says, and who makes them.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use seaway_admin::MetricsSource;
use seaway_cluster::{Cluster, EventRecorder, Leadership, RecordStore};
use seaway_drivers::octavia::{self, Audits, Heartbeats, InCloud, Joining, Octavia, conf, sole::SoleWriter};
use seaway_model::{Name, Owner, config::CloudDefaults};
use seaway_openstack::{Class, Cloud, Error, Fence, Metrics, Settings, Source, credentials::CloudConf};
use seaway_watchdog::{HANG_LIMIT, Heartbeat, WatchedPart};
use tokio::{
    sync::{OnceCell, mpsc},
    time::sleep,
};
use tracing::error;

use super::refused::{Refused, Stamp};
use crate::settings::{self, DefaultDriver};

/// `spec.loadBalancerClass` of Services that want one.
pub(crate) const CLASS: &str = "seaway.dev/octavia";
const CLOUD: &str = "openstack";
/// How often a file is looked at.
const WAKE: Duration = Duration::from_secs(2);

/// What this file says of load balancers, as part of the settings; a line for each thing in it that means nothing here is
/// told. Who we are in the cloud is read when it is joined, and again whenever it changes.
///
/// A file that the cloud provider's controller would not start with is an error, with its lines.
fn configure(settings: &mut settings::Settings, file: &Path) -> Result<()> {
    let conf = CloudConf::read(file).context("--cloud-config")?;
    let conf::Read { mut defaults, refused, mut told } = conf::read(&conf);
    if !refused.is_empty() {
        return Err(anyhow!("{}", refused.join("\n")));
    }
    told.extend(conf.unknown_keys());
    defaults.classless = settings.by_default == Some(DefaultDriver::Octavia);
    defaults.rebuild = settings.rebuild;
    settings.told = told;
    settings.config.clouds = [(CLASS.into(), Arc::new(defaults))].into();
    Ok(())
}

/// As at a start: with a file that is refused, or not there, nothing is written in the cloud, and all other drivers run.
pub(crate) fn configure_or_refuse(settings: &mut settings::Settings, file: &Path) {
    let Err(wrong) = configure(settings, file) else { return };
    without(settings);
    let why = format!("{wrong:#}");
    let defaults = settings.config.clouds.get_mut(CLASS).expect("it was just put there");
    Arc::make_mut(defaults).refused = Some(why.as_str().into());
    settings.told =
        vec![format!("nothing is written in the cloud until {} is corrected: {why}", file.display())];
}

/// What the driver needs of the file, beside what Services are planned by.
pub(super) fn follow(settings: &settings::Settings, octavia: &Octavia) {
    if let Some(defaults) = settings.config.clouds.get(CLASS) {
        octavia.set_cascade(defaults.cascade);
    }
}

/// Why nothing is written in the cloud.
pub(crate) fn refused(settings: &settings::Settings) -> Option<&Name> {
    settings.config.clouds.get(CLASS)?.refused.as_ref()
}

/// What was last understood goes on, where there is such a thing.
pub(super) fn keep_understood(settings: &mut settings::Settings, before: &settings::Settings) {
    let why = refused(settings).filter(|_| refused(before).is_none()).cloned();
    if let Some(why) = why {
        error!("the file of --cloud-config is not read again; the last valid version stays in use: {why}");
        settings.told.clone_from(&before.told);
        settings.config.clouds.clone_from(&before.config.clouds);
    }
}

/// Whoever wants a load balancer of a cloud is told that nobody knows one.
pub(crate) fn without(settings: &mut settings::Settings) {
    let classless = settings.by_default == Some(DefaultDriver::Octavia);
    let absent = CloudDefaults { absent: true, enabled: false, classless, ..CloudDefaults::default() };
    settings.config.clouds = [(CLASS.into(), Arc::new(absent))].into();
}

pub(crate) fn placement() -> InCloud {
    InCloud { cloud: CLOUD.into(), class: CLASS.into() }
}

/// Who makes load balancers in the cloud of this file, once that lets us in; and what they count of their calls.
pub(super) fn driver(
    file: &Path,
    cluster: &Cluster,
    name: &str,
    settings: &settings::Settings,
    (leading, records): (Leadership, RecordStore),
    herald: EventRecorder,
    usable: Arc<AtomicBool>,
) -> (Arc<Octavia>, Arc<Connection>, MetricsSource) {
    let calls = Metrics::default();
    let audits = Audits { of: placement(), period: settings.audit };
    let heartbeats = Heartbeats {
        record: Arc::new(records),
        term,
        is_handed_over: {
            let leading = leading.clone();
            Box::new(move || leading.was_handed_over())
        },
    };
    let usable = move || usable.load(Ordering::Relaxed);
    // A write that waits, or is repeated, may outlast the lead that it was begun in.
    let sole = Arc::new(SoleWriter::default());
    let fence = Fence::new({
        let (usable, sole) = (usable.clone(), sole.clone());
        move || leading.is_held() && usable() && sole.may_write()
    });
    let (defaults, limits) = (&settings.config.clouds[CLASS], settings.requests);
    let settings = Settings { limits, metrics: calls.clone(), fence, ..Settings::default() };
    let connection = Arc::new(Connection::to(file, settings));
    let driver = octavia(connection.clone(), cluster, name, defaults, usable)
        .alone(sole)
        .auditing(audits)
        .beating(heartbeats);
    let driver = driver.telling(Box::new(move |owner, note| {
        if let Owner::Object { object, uid } = owner {
            herald.record(object, uid, note.warning, note.reason, note.text);
        }
    }));
    (Arc::new(driver), connection, Box::new(move |registry| calls.register(registry)))
}

/// The cloud of a file, signed in to once for all who ask it: its limits are for all of them together.
pub(crate) struct Connection {
    file: PathBuf,
    settings: Settings,
    refused: Refused,
    cloud: OnceCell<Cloud>,
}

impl Connection {
    pub(crate) fn to(file: &Path, settings: Settings) -> Connection {
        Connection { file: file.to_owned(), settings, refused: Refused::default(), cloud: OnceCell::new() }
    }

    pub(super) async fn cloud(&self) -> Result<Cloud, Error> {
        let connect = || async {
            let stamp = Stamp::of(&self.file);
            if let Some(error) = self.refused.still(Instant::now(), stamp) {
                return Err(error);
            }
            let cloud = Cloud::connect(Source::cloud_conf(&self.file), self.settings.clone()).await;
            cloud.inspect_err(|error| self.refused.note(error, Instant::now(), stamp))
        };
        self.cloud.get_or_try_init(connect).await.cloned()
    }
}

pub(crate) fn octavia(
    connection: Arc<Connection>,
    cluster: &Cluster,
    name: &str,
    defaults: &CloudDefaults,
    may: impl Fn() -> bool + Send + Sync + 'static,
) -> Octavia {
    let (cluster, name) = (cluster.clone(), Name::from(name));
    let join = move || -> Joining {
        let (connection, cluster, name) = (connection.clone(), cluster.clone(), name.clone());
        Box::pin(async move {
            let uid = cluster.identity().await.map_err(|error| {
                let text = format!("the UID of this cluster cannot be read: {error}");
                // Not the cloud's fault.
                Error::new(Class::NotFound, text)
            })?;
            Ok((connection.cloud().await?, octavia::Cluster { uid, name }))
        })
    };
    Octavia::new(Box::new(join), defaults.provider.clone(), may).cascading(defaults.cascade)
}

/// Tells when this file was changed, and is not being written any more.
pub(super) fn rewritten(file: PathBuf, parts: &mut Vec<WatchedPart>) -> mpsc::Receiver<()> {
    let (tell, told) = mpsc::channel(1);
    let (heartbeat, part) = Heartbeat::new("the watch of the file of --cloud-config");
    // Whatever it waits for, it has a turn by its timer.
    parts.push(part.with_allowed_silence(WAKE.saturating_add(HANG_LIMIT)));
    tokio::spawn(heartbeat.watch(async move {
        let mut read = Stamp::of(&file);
        let mut last = read;
        loop {
            tokio::select! {
                () = tell.closed() => return,
                () = sleep(WAKE) => {}
            }
            let now = Stamp::of(&file);
            let is_whole = std::mem::replace(&mut last, now) == now;
            if is_whole && std::mem::replace(&mut read, now) != now {
                // If one word is waiting to be heard, the file will be read after this change as well.
                let _ = tell.try_send(());
            }
        }
    }));
    told
}

/// What no other lead has: a tag has room for eight characters.
fn term() -> String {
    let random = std::fs::read_to_string("/proc/sys/kernel/random/uuid").unwrap_or_default();
    match random.get(..8) {
        Some(random) => random.to_owned(),
        None => format!("{:08x}", jiff::Timestamp::now().as_millisecond() & 0xffff_ffff),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        file
    }

    fn read(file: &Path) -> settings::Settings {
        let mut settings = settings::load(None).unwrap();
        configure_or_refuse(&mut settings, file);
        settings
    }

    #[test]
    fn a_cloud_conf_that_is_refused_stops_what_is_done_in_the_cloud_and_nothing_else() {
        for (text, why) in [
            ("[LoadBalancer]\nsubnet-id=s\ninternal-lb=ture\n", ":3: [LoadBalancer] internal-lb"),
            ("[LoadBalancer]\nmanage-security-groups=treu\n", ":2: [LoadBalancer] manage-security-groups"),
            ("[LoadBalancer\n", ":1"),
        ] {
            let conf = file(text);
            let settings = read(conf.path());
            let defaults = &settings.config.clouds[&Name::from(CLASS)];
            assert!(defaults.absent && !defaults.enabled, "{text}");
            let told = refused(&settings).expect("it is refused");
            assert!(told.contains(why), "{told}");
            assert!(settings.told[0].contains(why), "{:?}", settings.told);
            assert!(configure(&mut settings.clone(), conf.path()).is_err());
        }
    }

    #[test]
    fn a_cloud_conf_that_is_missing_stops_what_is_done_in_the_cloud_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("cloud.conf");
        let missing = read(&path);
        let defaults = &missing.config.clouds[&Name::from(CLASS)];
        assert!(defaults.absent && !defaults.enabled);
        let why = refused(&missing).expect("it is refused");
        assert!(why.contains(&format!("{} cannot be read", path.display())), "{why}");
        assert!(missing.told[0].contains(&path.display().to_string()), "{:?}", missing.told);
        // It comes: a mount that was late.
        std::fs::write(&path, "[LoadBalancer]\nsubnet-id=s\n").unwrap();
        let mut there = read(&path);
        keep_understood(&mut there, &missing);
        assert_eq!(refused(&there), None);
        // It goes: what it said stays in force.
        std::fs::remove_file(&path).unwrap();
        let mut gone = read(&path);
        keep_understood(&mut gone, &there);
        assert_eq!(gone.config.clouds, there.config.clouds);
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_that_is_written_again_is_told_by_a_part_of_the_process() {
        let (conf, mut parts) = (file("[LoadBalancer]\n"), Vec::new());
        let mut told = rewritten(conf.path().to_owned(), &mut parts);
        assert!(matches!(&parts[..], [part] if part.name().contains("--cloud-config")), "{parts:?}");
        tokio::task::yield_now().await;
        for text in ["[LoadBalancer]\nsubnet-id=s\n", "[LoadBalancer]\n"] {
            std::fs::write(conf.path(), text).unwrap();
            assert_eq!(told.recv().await, Some(()), "{text}");
        }
    }

    #[test]
    fn the_last_file_that_was_understood_stays_in_force_while_a_process_runs() {
        let conf = file("[LoadBalancer]\nsubnet-id=s\n");
        let good = read(conf.path());
        std::fs::write(conf.path(), "[LoadBalancer]\nsubnet-id=t\nenabled=flase\n").unwrap();
        let mut again = read(conf.path());
        assert!(refused(&again).is_some());
        keep_understood(&mut again, &good);
        assert_eq!((&again.config.clouds, &again.told), (&good.config.clouds, &good.told));
        std::fs::write(conf.path(), "[LoadBalancer]\nsubnet-id=t\nenabled=true\n").unwrap();
        let mut again = read(conf.path());
        keep_understood(&mut again, &good);
        assert_eq!(again.config.clouds[&Name::from(CLASS)].place.subnet.as_deref(), Some("t"));
    }
}
