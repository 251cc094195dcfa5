//! Writing requests, made by hand: what is sent is JSON, what comes back is an object as it is told.

use kube::{
    Resource,
    api::{GetParams, ListParams, Patch, PatchParams, PostParams},
    core::{Request, request},
};
use seaway_model::{Kind, ObjectRef};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{
    api_error::ApiError,
    connect::{Cluster, MANAGER},
    decode,
    kinds::WatchedKind,
    object_cache::PublishedService,
    raw_object::RawObject,
};

impl Cluster {
    pub(crate) async fn create(
        &self,
        of: &WatchedKind,
        namespace: &str,
        object: &Value,
    ) -> Result<RawObject, ApiError> {
        self.create_as(of, namespace, object).await
    }

    /// `T`: what is read of the answer.
    pub(crate) async fn create_as<T: DeserializeOwned>(
        &self,
        of: &WatchedKind,
        namespace: &str,
        object: &Value,
    ) -> Result<T, ApiError> {
        self.send(of, namespace, |request| request.create(&ours(), object.to_string().into_bytes())).await
    }

    /// `object` names the version that it replaces.
    pub(crate) async fn replace(
        &self,
        of: &WatchedKind,
        namespace: &str,
        name: &str,
        object: &Value,
    ) -> Result<RawObject, ApiError> {
        self.send(of, namespace, |request| request.replace(name, &ours(), object.to_string().into_bytes()))
            .await
    }

    /// The status becomes, as far as it is ours, what `object` says. `force`: also what others have written.
    pub(crate) async fn apply_status(
        &self,
        of: &WatchedKind,
        namespace: &str,
        name: &str,
        object: &Value,
        force: bool,
    ) -> Result<RawObject, ApiError> {
        let parameters = PatchParams { force, ..PatchParams::apply(MANAGER) };
        self.send(of, namespace, |request| {
            request.patch_subresource("status", name, &parameters, &Patch::Apply(object))
        })
        .await
    }

    /// What `patch` says is merged into the object, lists by their members.
    pub(crate) async fn merge(
        &self,
        of: &WatchedKind,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<RawObject, ApiError> {
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        self.send(of, namespace, |request| request.patch(name, &parameters, &Patch::Strategic(patch))).await
    }

    /// The same of a Service, as it is from then on. `None`: it is gone, or another by now.
    pub(crate) async fn merge_service(
        &self,
        object: &ObjectRef,
        patch: &Value,
    ) -> Result<Option<PublishedService>, ApiError> {
        let services = WatchedKind::known(Kind::Service);
        let (namespace, name) = (&object.namespace, &object.name);
        match self.merge(services, namespace, name, patch).await {
            Ok(told) => {
                let published = decode::published(&told);
                self.cache().put_service(namespace, name, published.clone());
                Ok(Some(published))
            }
            Err(ApiError::NotFound | ApiError::Conflict(_)) => Ok(None),
            Err(answer) => Err(answer),
        }
    }

    /// The same of custom resources, whose lists are replaced as a whole.
    pub(crate) async fn merge_custom<T: DeserializeOwned>(
        &self,
        of: &WatchedKind,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<T, ApiError> {
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        self.send(of, namespace, |request| request.patch(name, &parameters, &Patch::Merge(patch))).await
    }

    /// The same of its status, of which lists are replaced as a whole, or, `by_members`, merged.
    pub(crate) async fn merge_status<T: DeserializeOwned>(
        &self,
        of: &WatchedKind,
        name: &str,
        patch: &Value,
        by_members: bool,
    ) -> Result<T, ApiError> {
        let parameters = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
        let patch = if by_members { Patch::Strategic(patch) } else { Patch::Merge(patch) };
        self.send(of, "", |request| request.patch_subresource("status", name, &parameters, &patch)).await
    }

    /// A page of a list of what has no namespace, read as `T`.
    pub(crate) async fn list_as<T: DeserializeOwned>(
        &self,
        of: &WatchedKind,
        params: &ListParams,
    ) -> Result<T, ApiError> {
        self.send(of, "", |request| request.list(params)).await
    }

    pub(crate) async fn get(
        &self,
        of: &WatchedKind,
        namespace: &str,
        name: &str,
    ) -> Result<RawObject, ApiError> {
        self.read_as(of, namespace, name).await
    }

    pub(crate) async fn read_as<T: DeserializeOwned>(
        &self,
        of: &WatchedKind,
        namespace: &str,
        name: &str,
    ) -> Result<T, ApiError> {
        self.send(of, namespace, |request| request.get(name, &GetParams::default())).await
    }

    async fn send<T: DeserializeOwned>(
        &self,
        of: &WatchedKind,
        namespace: &str,
        make: impl FnOnce(Request) -> Result<http::Request<Vec<u8>>, request::Error>,
    ) -> Result<T, ApiError> {
        let namespace = Some(namespace).filter(|it| !it.is_empty());
        let request = make(Request::new(RawObject::url_path(&of.resource(), namespace)))
            .map_err(|error| ApiError::Invalid(error.to_string()))?;
        let client = self.client();
        self.within_deadline(client.request(request)).await
    }
}

fn ours() -> PostParams {
    PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() }
}
