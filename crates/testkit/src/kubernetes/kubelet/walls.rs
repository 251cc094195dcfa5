//! What stands around a container: its volumes, and what its `securityContext` takes away.
//!
//! It is the machine's own files that it runs on; so mounts are made in a namespace of its own, and folders that they
//! are below are covered by layers that nobody else sees.

use std::{collections::BTreeSet, fs};

use k8s_openapi::api::core::v1::{Capabilities, Container, Pod, SecurityContext};

use super::volumes::{self, Mount};
use crate::kubernetes::node::NodeContext;

/// What container runtimes leave to who asks for nothing.
const USUAL: [&str; 14] = [
    "chown",
    "dac_override",
    "fowner",
    "fsetid",
    "kill",
    "setgid",
    "setuid",
    "setpcap",
    "net_bind_service",
    "net_raw",
    "sys_chroot",
    "mknod",
    "audit_write",
    "setfcap",
];

/// A program's line, within its walls. Who asks for none has none but those of its network.
pub(super) fn around(
    place: &NodeContext,
    pod: &Pod,
    container: &Container,
    line: Vec<String>,
) -> Result<Vec<String>, String> {
    let mounts = volumes::mounts(place, pod, container);
    let context = container.security_context.as_ref();
    if mounts.is_empty() && context.is_none() {
        return Ok(line);
    }
    let layers = volumes::folder(place, pod).join("layers").join(&container.name);
    let mut script = Vec::new();
    let tops: BTreeSet<&str> = mounts.iter().filter_map(|it| it.at.split('/').nth(1)).collect();
    for top in &tops {
        let [upper, work] = ["upper", "work"].map(|part| layers.join(top).join(part));
        for folder in [&upper, &work] {
            fs::create_dir_all(folder).map_err(|it| it.to_string())?;
        }
        let (upper, work) = (upper.display(), work.display());
        script.push(format!(
            "mount -t overlay overlay -o lowerdir=/{top},upperdir={upper},workdir={work} /{top}"
        ));
    }
    for Mount { folder, at, read_only } in &mounts {
        script.push(format!("mkdir -p '{at}' && mount --bind '{}' '{at}'", folder.display()));
        if *read_only {
            script.push(format!("mount -o remount,bind,ro '{at}'"));
        }
    }
    let privileged = context.is_some_and(|it| it.privileged == Some(true));
    if context.is_some() && !privileged {
        script.push("mount --bind /proc/sys /proc/sys && mount -o remount,bind,ro /proc/sys".to_owned());
    }
    if context.is_some_and(|it| it.read_only_root_filesystem == Some(true)) {
        script.extend(tops.iter().map(|top| format!("mount -o remount,bind,ro /{top}")));
        script.push("mount -o remount,bind,ro /".to_owned());
    }
    script.push("exec \"$@\"".to_owned());
    let mut whole = vec!["sh".to_owned(), "-c".to_owned(), script.join(" &&\n"), "sh".to_owned()];
    if let Some(context) = context.filter(|_| !privileged) {
        whole.extend(rights(context));
    }
    whole.extend(line);
    Ok(whole)
}

/// What takes rights away from a program.
fn rights(context: &SecurityContext) -> Vec<String> {
    let bounding = capabilities(context).iter().fold("-all".to_owned(), |all, one| format!("{all},+{one}"));
    let mut setpriv =
        vec!["setpriv".to_owned(), format!("--bounding-set={bounding}"), "--inh-caps=-all".to_owned()];
    if context.allow_privilege_escalation == Some(false) {
        setpriv.push("--no-new-privs".to_owned());
    }
    setpriv.push("--".to_owned());
    setpriv
}

/// What a container may do at most: capabilities by their names in lower case, without `cap_`.
pub(super) fn capabilities(context: &SecurityContext) -> BTreeSet<String> {
    let lower = |names: Option<&Vec<String>>| -> BTreeSet<String> {
        names.into_iter().flatten().map(|it| it.to_lowercase()).collect()
    };
    let none = Capabilities::default();
    let asked = context.capabilities.as_ref().unwrap_or(&none);
    let (drop, add) = (lower(asked.drop.as_ref()), lower(asked.add.as_ref()));
    let mut kept: BTreeSet<String> = match drop.contains("all") {
        true => BTreeSet::new(),
        false => USUAL.iter().map(|it| (*it).to_owned()).filter(|it| !drop.contains(it)).collect(),
    };
    kept.extend(add);
    kept
}
