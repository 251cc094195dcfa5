use std::{io, path::Path};

use k8s_openapi::api::{
    authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec},
    core::v1::{Pod, ServiceAccount},
};
use kube::{Api, Client};

use super::volumes::namespace;
use crate::kubernetes::node::NodeContext;

/// Asks for a token of the pod's service account, and writes down what its containers find of it.
pub(super) async fn prepare(
    place: &NodeContext,
    client: &Client,
    pod: &Pod,
    folder: &Path,
) -> Result<(), String> {
    let account = pod.spec.as_ref().and_then(|it| it.service_account_name.clone()).unwrap_or_default();
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), &namespace(pod));
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
    write(place, folder, &namespace(pod), &token).map_err(|it| it.to_string())
}

fn write(place: &NodeContext, folder: &Path, namespace: &str, token: &str) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    std::fs::write(folder.join("token"), token)?;
    std::fs::write(folder.join("namespace"), namespace)?;
    // Not with the rights of the file: a pod's user is another one than its owner.
    std::fs::write(folder.join("ca.crt"), std::fs::read(&place.authority)?)?;
    Ok(())
}
