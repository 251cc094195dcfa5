//! A container that sees the files of its image alone, as a container runtime makes it: nothing of the machine is below its root
//! but /proc, /sys and /dev.

use std::{fs, path::Path};

use k8s_openapi::api::core::v1::{Container, Pod, SecurityContext};

use super::{
    volumes::{self, Mount},
    walls,
};
use crate::kubernetes::node::NodeContext;

/// A program's line, within the unpacked image: a layer of its own over it, volumes in it, and then `pod enter`, which is static
/// and gives up what the container may not do.
pub(super) fn around(
    place: &NodeContext,
    pod: &Pod,
    container: &Container,
    image: &Path,
    line: Vec<String>,
) -> Result<Vec<String>, String> {
    let layers = volumes::folder(place, pod).join("root").join(&container.name);
    let [upper, work, root] = ["upper", "work", "root"].map(|part| layers.join(part));
    for folder in [&upper, &work, &root] {
        fs::create_dir_all(folder).map_err(|it| it.to_string())?;
    }
    let (image, upper, work) = (image.display(), upper.display(), work.display());
    let root = root.display();
    let mut script = vec![format!(
        "mount -t overlay overlay -o lowerdir='{image}',upperdir='{upper}',workdir='{work}' '{root}'"
    )];
    for top in ["proc", "sys", "dev"] {
        script.push(format!("mkdir -p '{root}/{top}' && mount --rbind /{top} '{root}/{top}'"));
    }
    for Mount { folder, at, read_only } in volumes::requested_mounts(place, pod, container) {
        script.push(format!("mkdir -p '{root}{at}' && mount --bind '{}' '{root}{at}'", folder.display()));
        if read_only {
            script.push(format!("mount -o remount,bind,ro '{root}{at}'"));
        }
    }
    // As a kubelet's, which knows how names are looked up.
    script.push(format!(
        "touch '{root}/etc/resolv.conf' && mount --bind /etc/resolv.conf '{root}/etc/resolv.conf'"
    ));
    let none = SecurityContext::default();
    let context = container.security_context.as_ref().unwrap_or(&none);
    let privileged = context.privileged == Some(true);
    if !privileged {
        script.push(format!(
            "mount --bind /proc/sys '{root}/proc/sys' && mount -o remount,bind,ro '{root}/proc/sys'"
        ));
    }
    if context.read_only_root_filesystem == Some(true) {
        script.push(format!("mount -o remount,ro '{root}'"));
    }
    script.push("exec \"$@\"".to_owned());

    let of_pod = pod.spec.as_ref().and_then(|it| it.security_context.as_ref());
    let user = context.run_as_user.or(of_pod.and_then(|it| it.run_as_user));
    let group = context.run_as_group.or(of_pod.and_then(|it| it.run_as_group));
    let groups: Vec<String> = of_pod.and_then(|it| it.fs_group).iter().map(i64::to_string).collect();
    let capabilities = match privileged {
        true => "all".to_owned(),
        false => walls::capabilities(context).into_iter().collect::<Vec<_>>().join(","),
    };
    let no_new = context.allow_privilege_escalation == Some(false);
    let pods = place.images.get("web").and_then(|it| it.first()).ok_or("rig/kubernetes/pod is missing")?;
    let entering = [
        pods.clone(),
        "enter".to_owned(),
        root.to_string(),
        user.unwrap_or(USER).to_string(),
        group.unwrap_or(user.unwrap_or(USER)).to_string(),
        groups.join(","),
        capabilities,
        no_new.to_string(),
    ];
    let shell = ["sh", "-c", &script.join(" &&\n"), "sh"].map(str::to_owned);
    Ok(shell.into_iter().chain(entering).chain(line).collect())
}

/// Of an image that says nothing else, and ours does not matter: manifests say it.
const USER: i64 = 65_532;
