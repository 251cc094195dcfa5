//! Passwords of BGP sessions: a host gets each Secret that a BGPPeer names, by its name, and no other. A watch of them would need the
//! right to list all Secrets of a namespace.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use k8s_openapi::api::core::v1::Secret;
use kube::{Api, api::GetParams};
use seaway_model::{Kind, ObjectRef};
use seaway_watchdog::WatchedPart;
use secrecy::SecretString;
use tokio::{sync::watch, time::timeout};
use tracing::warn;

use crate::{api_error::ApiError, connect::Cluster, writer::OwnedTask};

/// A changed password is noticed so soon, and one that could not be read is asked for again.
const READ_AGAIN: Duration = Duration::from_secs(60);
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// While there is no session: the password may be what is wrong.
const WITHOUT_SESSION: Duration = Duration::from_secs(15);
/// As Secrets of the type kubernetes.io/basic-auth call it.
const KEY: &str = "password";

/// By Secret: its password, or why there is none.
pub type PasswordsBySecret = BTreeMap<ObjectRef, Result<SecretString, String>>;

/// Which Secrets sessions name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WantedPasswords {
    pub secrets: BTreeSet<ObjectRef>,
    /// A session is not established.
    pub is_urgent: bool,
}

/// Reads until it is dropped.
pub struct PasswordReader {
    wanted: watch::Sender<WantedPasswords>,
    read: watch::Receiver<Arc<PasswordsBySecret>>,
    task: OwnedTask,
}

impl PasswordReader {
    pub fn start(cluster: &Cluster) -> PasswordReader {
        let (wanted, wishes) = watch::channel(WantedPasswords::default());
        let (tell, read) = watch::channel(Arc::default());
        let task = OwnedTask::spawn("the reader of BGP passwords", keep(cluster.clone(), wishes, tell));
        PasswordReader { wanted, read, task }
    }

    /// No other is asked for, and others are forgotten.
    pub fn set_wanted(&self, wanted: WantedPasswords) {
        self.wanted.send_if_modified(|before| {
            let is_other = *before != wanted;
            *before = wanted;
            is_other
        });
    }

    /// What was read last; it changes only where a password does.
    pub fn read(&self) -> watch::Receiver<Arc<PasswordsBySecret>> {
        self.read.clone()
    }

    /// For the watchdog.
    pub fn part(&self) -> WatchedPart {
        self.task.part()
    }
}

async fn keep(
    cluster: Cluster,
    mut wanted: watch::Receiver<WantedPasswords>,
    tell: watch::Sender<Arc<PasswordsBySecret>>,
) {
    // Why what is in use was not read again, as it was logged.
    let mut troubles = BTreeMap::<ObjectRef, String>::new();
    loop {
        let WantedPasswords { secrets, is_urgent } = wanted.borrow_and_update().clone();
        troubles.retain(|secret, _| secrets.contains(secret));
        let before = tell.borrow().clone();
        let mut all = PasswordsBySecret::new();
        for secret in &secrets {
            let password = match (get(&cluster, secret).await, before.get(secret)) {
                // A session that is there stays: by a Secret that is made again, or while nobody answers, it is no less safe.
                (Err(why), Some(Ok(password))) => {
                    if troubles.insert(secret.clone(), why.clone()).as_ref() != Some(&why) {
                        warn!("the password that was read before stays in use: {why}");
                    }
                    Ok(password.clone())
                }
                (read, _) => {
                    troubles.remove(secret);
                    read
                }
            };
            all.insert(secret.clone(), password);
        }
        let pause = match all.values().any(Result::is_err) || !troubles.is_empty() {
            true => TRY_AGAIN,
            false if is_urgent => WITHOUT_SESSION,
            false => READ_AGAIN.saturating_add(jitter()),
        };
        if !are_same(&before, &all) {
            tell.send_replace(Arc::new(all));
        }
        let news = async {
            if secrets.is_empty() {
                wanted.changed().await
            } else {
                timeout(pause, wanted.changed()).await.unwrap_or(Ok(()))
            }
        };
        if news.await.is_err() {
            return;
        }
    }
}

fn are_same(one: &PasswordsBySecret, other: &PasswordsBySecret) -> bool {
    use secrecy::ExposeSecret as _;
    let shown = |it: &PasswordsBySecret| -> Vec<_> {
        let text = |it: &Result<SecretString, String>| {
            it.as_ref().map(|it| it.expose_secret().to_owned()).map_err(String::clone)
        };
        it.iter().map(|(secret, it)| (secret.clone(), text(it))).collect()
    };
    shown(one) == shown(other)
}

async fn get(cluster: &Cluster, secret: &ObjectRef) -> Result<SecretString, String> {
    let namespace = namespace_of(secret, cluster.namespace());
    let shown = ObjectRef::new(Kind::Secret, namespace, secret.name.clone());
    // What the API server has at hand: a password changes seldom, and the router's with it.
    let cached = GetParams { resource_version: Some("0".to_owned()) };
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), namespace);
    match cluster.within_deadline(secrets.get_with(&secret.name, &cached)).await {
        Ok(found) => password_of(&found).map_err(|why| format!("{shown} {why}")),
        Err(ApiError::NotFound) => Err(format!("{shown} does not exist")),
        Err(ApiError::Forbidden(_)) => Err(format!(
            "hosts may not read {shown}; name it in the Role seaway-bgp-passwords (deploy/kubernetes/components/bgp)"
        )),
        Err(other) => Err(format!("{shown} cannot be read: {}", other.why())),
    }
}

/// A BGPPeer of ours names a Secret of Seaway's own namespace.
fn namespace_of<'a>(secret: &'a ObjectRef, own: &'a str) -> &'a str {
    if secret.namespace.is_empty() { own } else { &secret.namespace }
}

fn password_of(secret: &Secret) -> Result<SecretString, String> {
    let bytes = secret.data.as_ref().and_then(|it| it.get(KEY)).ok_or(format!("has no key `{KEY}`"))?;
    let text = str::from_utf8(&bytes.0).map_err(|_| format!("has no text in its key `{KEY}`"))?;
    Ok(text.to_owned().into())
}

/// Hosts do not ask all at once.
fn jitter() -> Duration {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Duration::from_millis((now.subsec_millis() % 1_000).saturating_mul(15).into())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn what_has_no_password_is_told() {
        let secret = |key: &str, value: &[u8]| {
            let data = [(key.to_owned(), ByteString(value.to_vec()))];
            Secret { data: Some(data.into()), ..Secret::default() }
        };
        let read = |secret: &Secret| password_of(secret).map(|it| it.expose_secret().to_owned());
        assert_eq!(read(&secret("password", b"hush")), Ok("hush".to_owned()));
        for (secret, why) in [
            (Secret::default(), "no key `password`"),
            (secret("pass", b"hush"), "no key `password`"),
            (secret("password", &[0xff]), "no text"),
        ] {
            let told = read(&secret).expect_err(why);
            assert!(told.contains(why), "{told}");
        }
    }

    #[test]
    fn a_secret_without_a_namespace_is_of_seaways_own() {
        let secret = |namespace: &str| ObjectRef::new(Kind::Secret, namespace, "tor");
        assert_eq!(namespace_of(&secret(""), "seaway-system"), "seaway-system");
        assert_eq!(namespace_of(&secret("metallb-system"), "seaway-system"), "metallb-system");
    }
}
