//! Passwords of BGP sessions: a host gets each Secret that a BGPPeer names, by its name, and no other. A watch of them would need the
//! right to list all Secrets of a namespace.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use seaway_model::ObjectRef;
use seaway_watchdog::Part;
use secrecy::SecretString;
use tokio::{sync::watch, time::timeout};

use crate::{answer::ApiError, connect::Cluster, writer::OwnedTask};

/// A changed password is noticed so soon, and one that could not be read is asked for again.
const READ_AGAIN: Duration = Duration::from_secs(30);
const TRY_AGAIN: Duration = Duration::from_secs(5);
/// As Secrets of the type kubernetes.io/basic-auth call it.
const KEY: &str = "password";
/// Of TCP MD5.
const LONGEST: usize = 80;

/// By Secret: its password, or why there is none.
pub type PasswordsBySecret = BTreeMap<ObjectRef, Result<SecretString, String>>;

/// Reads until it is dropped.
pub struct PasswordReader {
    wanted: watch::Sender<BTreeSet<ObjectRef>>,
    read: watch::Receiver<Arc<PasswordsBySecret>>,
    task: OwnedTask,
}

impl PasswordReader {
    pub fn start(cluster: &Cluster) -> PasswordReader {
        let (wanted, wishes) = watch::channel(BTreeSet::new());
        let (tell, read) = watch::channel(Arc::default());
        let task = OwnedTask::spawn("the reader of BGP passwords", keep(cluster.clone(), wishes, tell));
        PasswordReader { wanted, read, task }
    }

    /// No other is asked for, and others are forgotten.
    pub fn set_wanted(&self, secrets: BTreeSet<ObjectRef>) {
        self.wanted.send_if_modified(|before| {
            let is_other = *before != secrets;
            *before = secrets;
            is_other
        });
    }

    /// What was read last; it changes only where a password does.
    pub fn read(&self) -> watch::Receiver<Arc<PasswordsBySecret>> {
        self.read.clone()
    }

    /// For the watchdog.
    pub fn part(&self) -> Part {
        self.task.part()
    }
}

async fn keep(
    cluster: Cluster,
    mut wanted: watch::Receiver<BTreeSet<ObjectRef>>,
    tell: watch::Sender<Arc<PasswordsBySecret>>,
) {
    loop {
        let secrets = wanted.borrow_and_update().clone();
        let before = tell.borrow().clone();
        let mut all = PasswordsBySecret::new();
        for secret in &secrets {
            let password = match get(&cluster, secret).await {
                // Without an API server, sessions go on.
                Err(Unread::ForNow(why)) => match before.get(secret) {
                    Some(Ok(password)) => Ok(password.clone()),
                    _ => Err(why),
                },
                Err(Unread::ForGood(why)) => Err(why),
                Ok(password) => Ok(password),
            };
            all.insert(secret.clone(), password);
        }
        let pause = if all.values().any(Result::is_err) { TRY_AGAIN } else { READ_AGAIN };
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

#[derive(Debug)]
enum Unread {
    /// The API server did not say.
    ForNow(String),
    /// There is no such password, or not for us.
    ForGood(String),
}

async fn get(cluster: &Cluster, secret: &ObjectRef) -> Result<SecretString, Unread> {
    let secrets: Api<Secret> = Api::namespaced(cluster.client(), &secret.namespace);
    match cluster.within_deadline(secrets.get(&secret.name)).await {
        Ok(found) => password_of(&found).map_err(|why| Unread::ForGood(format!("{secret} {why}"))),
        Err(ApiError::NotFound) => Err(Unread::ForGood(format!("there is no {secret}"))),
        Err(ApiError::Forbidden(_)) => Err(Unread::ForGood(format!(
            "hosts may not read {secret}; name it in the Role seaway-bgp-passwords (deploy/kubernetes/components/bgp)"
        ))),
        Err(other) => Err(Unread::ForNow(format!("{secret} cannot be read: {}", other.why()))),
    }
}

fn password_of(secret: &Secret) -> Result<SecretString, String> {
    let bytes = secret.data.as_ref().and_then(|it| it.get(KEY)).ok_or(format!("has no key `{KEY}`"))?;
    let text = str::from_utf8(&bytes.0).map_err(|_| format!("has no text in its key `{KEY}`"))?;
    let text = text.strip_suffix('\n').unwrap_or(text);
    match text.len() {
        0 => Err(format!("has an empty key `{KEY}`")),
        1..=LONGEST => Ok(text.to_owned().into()),
        length => Err(format!("has a password of {length} bytes, and TCP MD5 takes {LONGEST} at most")),
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn only_a_password_that_sessions_can_have_is_taken() {
        let secret = |key: &str, value: &[u8]| {
            let data = [(key.to_owned(), ByteString(value.to_vec()))];
            Secret { data: Some(data.into()), ..Secret::default() }
        };
        let read = |secret: &Secret| password_of(secret).map(|it| it.expose_secret().to_owned());
        assert_eq!(read(&secret("password", b"hush\n")), Ok("hush".to_owned()));
        for (secret, why) in [
            (Secret::default(), "no key `password`"),
            (secret("pass", b"hush"), "no key `password`"),
            (secret("password", b""), "empty"),
            (secret("password", &[0xff]), "no text"),
            (secret("password", &[b'x'; 81]), "81 bytes"),
        ] {
            let told = read(&secret).expect_err(why);
            assert!(told.contains(why), "{told}");
        }
    }
}
