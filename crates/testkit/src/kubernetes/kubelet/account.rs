use std::{io, path::PathBuf};

use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{Container, Pod, ServiceAccount},
};
use kube::{Api, Client};

use crate::kubernetes::node::Place;

const AT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// What a kubelet mounts for it: run by `sh`, with the folder of token and authority, one for what the program writes
/// below /run, and the program's line. The machine's own /run stays as it is.
const MOUNT: &str = "\
mount -t overlay overlay -o lowerdir=/run,upperdir=$2/upper,workdir=$2/work /run &&
mkdir -p /run/secrets/kubernetes.io/serviceaccount &&
mount --bind $1 /run/secrets/kubernetes.io/serviceaccount && shift 2 && exec \"$@\"";

/// Asks for a token of the pod's service account, and writes down what is mounted in its containers. Those who want none
/// have none.
pub(super) async fn prepare(place: &Place, client: &Client, pod: &Pod) -> Result<(), String> {
    let spec = pod.spec.as_ref();
    if !spec.is_some_and(|it| it.containers.iter().any(wants)) {
        return Ok(());
    }
    let of = |it: &Option<String>| it.clone().unwrap_or_default();
    let (namespace, account) = (
        of(&pod.metadata.namespace),
        spec.and_then(|it| it.service_account_name.clone()).unwrap_or_default(),
    );
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &namespace);
    let bound = BoundObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        name: pod.metadata.name.clone(),
        uid: pod.metadata.uid.clone(),
    };
    let spec = TokenRequestSpec {
        bound_object_ref: Some(bound),
        expiration_seconds: Some(3607),
        ..TokenRequestSpec::default()
    };
    let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
    let answer = accounts.create_token_request(&account, &Default::default(), &request).await;
    let token = answer.map_err(|it| it.to_string())?.status.and_then(|it| it.token).unwrap_or_default();
    write(place, pod, &namespace, &token).map_err(|it| it.to_string())
}

/// A program's line, with that mounted if its container wants it.
pub(super) fn mounted(place: &Place, pod: &Pod, container: &Container, line: Vec<String>) -> Vec<String> {
    if !wants(container) {
        return line;
    }
    let folder = folder(place, pod);
    let mount = ["sh", "-c", MOUNT, "sh"].map(str::to_owned);
    let folders = ["account", &container.name].map(|it| folder.join(it).to_string_lossy().into_owned());
    mount.into_iter().chain(folders).chain(line).collect()
}

fn write(place: &Place, pod: &Pod, namespace: &str, token: &str) -> io::Result<()> {
    let folder = folder(place, pod);
    let account = folder.join("account");
    std::fs::create_dir_all(&account)?;
    std::fs::write(account.join("token"), token)?;
    std::fs::write(account.join("namespace"), namespace)?;
    std::fs::copy(&place.authority, account.join("ca.crt"))?;
    let spec = pod.spec.iter();
    let all = spec.flat_map(|it| it.containers.iter().chain(it.init_containers.iter().flatten()));
    for container in all {
        for part in ["upper", "work"] {
            std::fs::create_dir_all(folder.join(&container.name).join(part))?;
        }
    }
    Ok(())
}

fn wants(container: &Container) -> bool {
    container.volume_mounts.iter().flatten().any(|it| it.mount_path == AT)
}

fn folder(place: &Place, pod: &Pod) -> PathBuf {
    place.folder.join(pod.metadata.uid.as_deref().unwrap_or_default())
}
