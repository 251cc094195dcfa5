//! What the configuration means in a cluster. One function for controllers, nodes and all commands that show what one of
//! them would do, so that what is shown is what is done.

use std::path::Path;

use seaway_cluster::{ClusterAccess, CredentialSource, WatchTimings};
use seaway_model::config::OpenPolicy;

use super::{Part, cloud};
use crate::{
    args::ProcessArgs,
    settings::{DefaultDriver, Settings, layer2, tenants},
};

/// `cloud_config`: the file of `--cloud-config`.
pub(crate) fn in_cluster(settings: &mut Settings, part: Part, cloud_config: Option<&Path>) {
    // Other controllers may serve Services of the same cluster, too.
    settings.config.classless = settings.by_default == Some(DefaultDriver::Native);
    match cloud_config {
        Some(file) => cloud::configure_or_refuse(settings, file),
        None if part == Part::Controller => cloud::without(settings),
        None => {}
    }
    settings.config.pools.cluster = true;
    // Other programs may have ports 80 and 443 of a cluster's hosts.
    let opens = &mut settings.config.front_door.opens;
    if *opens == OpenPolicy::WhenNeeded {
        *opens = OpenPolicy::Never;
    }
    if settings.config.front_door.tls.acme.take().is_some() {
        // Several hosts would order the same.
        let line = "frontDoor.acme is ignored: only `seaway run` orders certificates; in a cluster, use cert-manager";
        settings.told.push(line.into());
    }
    if part == Part::Node && settings.layer2.key_file.is_none() {
        // There once its Secret is made.
        settings.layer2.key_file = Some(layer2::KEY_IN_POD.into());
    }
    tenants::close_by_default(&mut settings.config, settings.said);
    // Copies have that limit, and those that are there stay.
    let limits = &mut settings.config.tenants.limits;
    limits.held_certificate_bytes = limits.certificate_bytes.filter(|_| settings.copies.is_none());
}

pub(super) fn access(arguments: &ProcessArgs, settings: &Settings, part: Part) -> ClusterAccess {
    let credentials = match &arguments.kubeconfig {
        Some(path) => CredentialSource::Kubeconfig { path: path.clone(), context: arguments.context.clone() },
        None => CredentialSource::Detected,
    };
    let namespace = arguments.namespace.as_deref().map(Into::into);
    let pace = WatchTimings { quarantine: settings.quarantine, ..WatchTimings::default() };
    // Controllers read Secrets themselves, and copy them.
    let copies = settings.copies.clone().filter(|_| part == Part::Node);
    ClusterAccess { credentials, namespace, metallb: settings.metallb.clone(), copies, pace }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::parse;

    #[test]
    fn no_certificates_are_ordered_in_a_cluster_and_that_is_said() {
        let mut settings = parse("frontDoor: {acme: {}}\n", Path::new("")).expect("it is right");
        in_cluster(&mut settings, Part::Node, None);
        assert_eq!(settings.config.front_door.tls.acme, None);
        assert!(settings.told.iter().any(|it| it.contains("frontDoor.acme")), "{:?}", settings.told);
    }

    #[test]
    fn held_certificates_have_the_limit_where_none_are_copied() {
        for (text, limit) in [
            ("", Some(4 << 20)),
            ("tenants: {limits: {certificateBytes: 2Ki}}", Some(2 << 10)),
            ("tenants: {limits: {certificateBytes: 0}}", None),
            ("certificateCopies: seaway-certificates", None),
        ] {
            let mut settings = parse(text, Path::new("")).expect("it is right");
            assert_eq!(settings.config.tenants.limits.held_certificate_bytes, None, "in a folder: {text}");
            in_cluster(&mut settings, Part::Node, None);
            assert_eq!(settings.config.tenants.limits.held_certificate_bytes, limit, "{text}");
        }
    }
}
