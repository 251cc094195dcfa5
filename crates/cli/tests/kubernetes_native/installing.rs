//! From a clone and an image to a Service that answers: one command and one object.

use std::{
    fs,
    path::Path,
    process::Command,
    sync::Arc,
    time::{Duration, Instant},
};

use seaway_testkit::{kubernetes::Cluster, topology::CapabilitySets};

use crate::{
    kustomize::deploy,
    scene::{SEAWAY, Scene, deployment, service},
    shared_image::{root, run},
};

const POOL: &str = "
apiVersion: seaway.dev/v1alpha1
kind: AddressPool
metadata: {name: hosts}
spec: {hosts: true}
";

/// All files of the image with that program in it. Compiling a static one would take as long as all tests: this one comes with its
/// libraries, and is the same but for them; what debuggers read is left out.
fn lay_out(program: &str, folder: &Path) {
    let stripped = folder.with_extension("program");
    run(Command::new("strip").arg("-o").arg(&stripped).arg(program));
    run(Command::new(root().join("deploy/image/build"))
        .arg("--program")
        .arg(stripped)
        .arg("--root")
        .arg(folder));
}

/// Generous, for a program that is not optimised, beside other tests: how long it took is printed.
const AT_MOST: Duration = Duration::from_secs(60);

#[test]
fn one_command_and_one_object_make_a_service_answer_from_pods_of_the_image() {
    let folder = tempfile::tempdir().expect("a folder");
    let image = folder.path().join("image");
    lay_out(SEAWAY, &image);
    let Some(mut scene) = Scene::of_image(&image) else { return };
    scene.nodes = ["a", "b"].into_iter().map(|name| scene.cluster.node(name)).collect();
    // What is there before Seaway is.
    scene.cluster.apply(&deployment("shop", 2));
    scene.cluster.apply(&service("shop", "selector: {app: shop}"));
    scene.cluster.kubectl(&["rollout", "status", "deployment/shop", "--timeout", "60s"]);

    let began = Instant::now();
    scene.cluster.kubectl(&["apply", "-k", &deploy().join("bare-metal").to_string_lossy()]);
    let applied = began.elapsed();
    scene.cluster.apply(POOL);
    let _told = ToldOnFailure(scene.cluster.clone());
    let at = scene.answering("shop");
    let took = began.elapsed();
    eprintln!("kubectl apply -k took {applied:.1?}, and the first Service answered at {at} after {took:.1?}");
    assert!(took <= AT_MOST, "{took:?}");

    // As the image and the manifests have it: no root, no file of the machine, nothing to write to.
    for node in &scene.nodes {
        let serving =
            node.namespace().processes().into_iter().find(|(_, line)| line.contains("node --config"));
        let (process, line) = serving.expect("a host serves on each Node");
        assert!(line.starts_with("/seaway "), "{line}");
        assert!(
            CapabilitySets::of(process).iter().all(|it| it.permitted == CapabilitySets::NETWORK && it.no_new)
        );
    }
    let mut controllers = 0;
    for (process, line) in processes_of(&image) {
        if !line.contains("controller --config") {
            continue;
        }
        controllers += 1;
        let status = fs::read_to_string(format!("/proc/{process}/status")).expect("it runs");
        let users = status.lines().find_map(|it| it.strip_prefix("Uid:")).unwrap_or_default();
        assert!(users.split_whitespace().all(|it| it == "65532"), "{users}");
        let inside = Path::new("/proc").join(process.to_string()).join("root");
        assert!(inside.join("etc/ssl/certs/ca-certificates.crt").exists());
        assert!(
            !inside.join("bin").exists() && !inside.join("home").exists(),
            "it sees no file of the machine"
        );
    }
    assert_eq!(controllers, 2);
}

/// What a pod that does not come up says, for who reads why the test failed.
struct ToldOnFailure(Arc<Cluster>);

impl Drop for ToldOnFailure {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for arguments in [
            &["get", "pods", "-o", "wide"][..],
            &["logs", "-l", "app.kubernetes.io/name=seaway", "--all-containers"],
        ] {
            let printed = self.0.kubectl_process(&[arguments, &["-n", "seaway-system"]].concat(), "");
            eprintln!("{}", printed.unwrap_or_else(|it| it));
        }
    }
}

/// Of containers of this image alone, by the file system at their root.
fn processes_of(image: &Path) -> Vec<(u32, String)> {
    let entries = fs::read_dir("/proc").expect("is there").flatten();
    let ids = entries.filter_map(|it| it.file_name().to_string_lossy().parse::<u32>().ok());
    let line = |id: u32| {
        let line = fs::read_to_string(format!("/proc/{id}/cmdline")).ok()?;
        Some((id, line.replace('\0', " ")))
    };
    let is_of = |id: u32| {
        let mounts = fs::read_to_string(format!("/proc/{id}/mountinfo")).unwrap_or_default();
        mounts.contains(&format!("lowerdir={},", image.display()))
    };
    ids.filter(|it| is_of(*it)).filter_map(line).filter(|(_, line)| line.starts_with("/seaway ")).collect()
}
