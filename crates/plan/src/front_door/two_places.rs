//! A host name and a path in annotations of their own are two places, and not one. Of a Service that restricts access, one place was
//! probably meant: the path below the host name.

use seaway_model::{Problem, Reason, fact::Service};

use crate::{
    annotations::{HOST, PATH, ServiceOptions},
    guarded::is_protected,
    index::ServiceKey,
};

/// What is said of it, with the annotation to write.
pub(super) fn problem(service: &Service, options: &ServiceOptions) -> Option<Problem> {
    let http = &options.http;
    let (host, path) = (http.hosts.first()?, http.paths.first()?);
    if !is_protected(service, options) {
        return None;
    }
    let key = ServiceKey::new(service.meta.namespace.clone(), service.meta.name.clone());
    let message = format!(
        "{HOST} and {PATH} are two places, all paths of {host} and {path} of all host names: this Service does not restrict access to \
         {host}{path}, if another one serves that"
    );
    let fix = format!(
        "For one place, set {HOST}: {host}{path}, and remove {PATH}. If both are meant, set {HOST}: {host}/."
    );
    Some(Problem::new(key.object(), Reason::Unsupported, message).at(options.field_of(PATH)).fix(fix))
}
