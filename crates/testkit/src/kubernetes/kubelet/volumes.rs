use std::{fs, io, path::PathBuf};

use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, Secret, Volume};
use kube::{Api, Client};

use super::account;
use crate::kubernetes::node::NodeContext;

/// A folder that a container sees.
pub(super) struct Mount {
    pub(super) folder: PathBuf,
    pub(super) at: String,
    pub(super) read_only: bool,
}

/// Makes the pod's volumes. What a volume is made of may come later, or never.
pub(super) async fn prepare(place: &NodeContext, client: &Client, pod: &Pod) -> Result<(), String> {
    let volumes = pod.spec.iter().flat_map(|it| it.volumes.iter().flatten());
    for volume in volumes {
        let folder = folder_of(place, pod, volume);
        if let Some(map) = &volume.config_map {
            let maps: Api<ConfigMap> = Api::namespaced(client.clone(), &namespace(pod));
            let map = maps.get(&map.name).await.map_err(|it| it.to_string())?;
            let files = map.data.iter().flatten().map(|(name, text)| (name, text.as_bytes()));
            write(&folder, files).map_err(|it| it.to_string())?;
        } else if let Some(name) = volume.secret.as_ref().and_then(|it| it.secret_name.as_ref()) {
            let secrets: Api<Secret> = Api::namespaced(client.clone(), &namespace(pod));
            let secret = secrets.get(name).await.map_err(|it| it.to_string())?;
            let files = secret.data.iter().flatten().map(|(name, bytes)| (name, bytes.0.as_slice()));
            write(&folder, files).map_err(|it| it.to_string())?;
        } else if volume.empty_dir.is_some() {
            fs::create_dir_all(&folder).map_err(|it| it.to_string())?;
        } else if is_made(volume) {
            fs::create_dir_all(&folder).map_err(|it| it.to_string())?;
        } else if is_account(volume) {
            account::prepare(place, client, pod, &folder).await?;
        }
    }
    Ok(())
}

/// Where a container on the machine's own files has them.
pub(super) fn mounts(place: &NodeContext, pod: &Pod, container: &Container) -> Vec<Mount> {
    let mut mounts = requested_mounts(place, pod, container);
    for mount in &mut mounts {
        // A machine's /var/run is its /run.
        if let Some(rest) = mount.at.strip_prefix("/var").filter(|rest| rest.starts_with("/run/")) {
            mount.at = rest.to_owned();
        }
    }
    mounts
}

/// Where a container asks for them. One of a kind that this does not know is not there.
pub(super) fn requested_mounts(place: &NodeContext, pod: &Pod, container: &Container) -> Vec<Mount> {
    let volumes: Vec<&Volume> = pod.spec.iter().flat_map(|it| it.volumes.iter().flatten()).collect();
    let of = |name: &str| volumes.iter().find(|it| it.name == name).map(|it| folder_of(place, pod, it));
    let mounts = container.volume_mounts.iter().flatten();
    let known = mounts.filter_map(|it| {
        let read_only = it.read_only == Some(true);
        Some(Mount { folder: of(&it.name)?, at: it.mount_path.clone(), read_only })
    });
    known.filter(|it| it.folder.is_dir()).collect()
}

fn is_account(volume: &Volume) -> bool {
    let sources = volume.projected.iter().flat_map(|it| it.sources.iter().flatten());
    sources.into_iter().any(|it| it.service_account_token.is_some())
}

/// A folder of the machine that kubelets make where there is none.
fn is_made(volume: &Volume) -> bool {
    volume.host_path.as_ref().is_some_and(|it| it.type_.as_deref() == Some("DirectoryOrCreate"))
}

fn folder_of(place: &NodeContext, pod: &Pod, volume: &Volume) -> PathBuf {
    match &volume.host_path {
        // All nodes are this machine, and each has folders of its own.
        Some(host) if is_made(volume) => place.folder.join("machine").join(host.path.trim_start_matches('/')),
        Some(host) => PathBuf::from(&host.path),
        None => folder(place, pod).join("volumes").join(&volume.name),
    }
}

/// What is a pod's own on the machine.
pub(super) fn folder(place: &NodeContext, pod: &Pod) -> PathBuf {
    place.folder.join(pod.metadata.uid.as_deref().unwrap_or_default())
}

pub(super) fn namespace(pod: &Pod) -> String {
    pod.metadata.namespace.clone().unwrap_or_default()
}

fn write<'m>(folder: &PathBuf, files: impl Iterator<Item = (&'m String, &'m [u8])>) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    for (name, content) in files {
        fs::write(folder.join(name), content)?;
    }
    Ok(())
}
