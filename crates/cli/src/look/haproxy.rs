//! `plan --driver haproxy`: the configuration by which HAProxy would serve what the folder asks for.

use std::{collections::BTreeMap, process::ExitCode};

use anyhow::Result;
use seaway_drivers::{HostPlacement, native};
use seaway_haproxy::{
    ConfigInput, Exclusions, RenderedFiles, Version, authorities, document,
    document::{FileKind, Global},
    files,
};
use seaway_model::Problem;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::PlannedFolder;
use crate::{
    args::{Output, Plan},
    output,
    settings::{Settings, data_plane::DataPlane},
};

struct RenderedConfig {
    files: RenderedFiles,
    problems: Vec<Problem>,
}

pub(super) fn plan(look: &PlannedFolder, settings: &Settings, arguments: &Plan) -> Result<ExitCode> {
    let printed = printed(look, settings, arguments.haproxy_version.into());
    match arguments.output {
        Output::Table => {
            output::line(&printed.text());
            for problem in &printed.problems {
                output::error(&problem.to_string());
            }
        }
        Output::Json => output::line(&serde_json::to_string_pretty(&printed.json())?),
    }
    Ok(ExitCode::SUCCESS)
}

fn printed(look: &PlannedFolder, settings: &Settings, version: Version) -> RenderedConfig {
    let all = look.world.load_balancers(&HostPlacement::new(settings.host.clone(), native::DRIVER).place());
    let certificates = all.values().flat_map(|it| it.certificates.iter());
    let certificates = certificates
        .filter(|(_, it)| !it.chain.is_empty() && seaway_proxy::look_at(it).is_err())
        .map(|(object, _)| object.clone());
    let authorities = all.values().flat_map(|it| authorities(it));
    let authorities = authorities.filter(|it| seaway_proxy::look_at_authorities(it).is_err()).cloned();
    let unusable =
        Exclusions { certificates: certificates.collect(), authorities: authorities.collect(), ports: None };
    let global = match &settings.data_plane {
        DataPlane::Haproxy(it) => it.global(),
        DataPlane::Native => Global::default(),
    };
    let wanted =
        ConfigInput { load_balancers: &all, version, global: &global, unusable: &unusable, before: None };
    let (document, problems) = document(wanted);
    let problems = look.problems.iter().cloned().chain(problems.into_iter().map(|(_, it)| it));
    RenderedConfig { files: files(&document), problems: super::located(&look.folder, problems.collect()) }
}

impl RenderedConfig {
    /// Each file but the configuration. A key is printed nowhere, and a certificate is in the file of its key.
    fn others(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        let shown = |place: &FileKind, text| (*place != FileKind::Certificates).then_some(text);
        self.files
            .others
            .iter()
            .map(move |(path, (place, text))| (path.as_str(), shown(place, text.expose_secret())))
    }

    fn text(&self) -> String {
        let mut text = self.files.configuration.clone();
        for (path, body) in self.others() {
            let body = body.unwrap_or("# A certificate and its key, which are not printed.");
            text.push_str(&format!("\n#### {path}\n{}\n", body.trim_end()));
        }
        text.truncate(text.trim_end().len());
        text
    }

    fn json(&self) -> Value {
        let others: BTreeMap<&str, Option<&str>> = self.others().collect();
        json!({"configuration": self.files.configuration, "files": others, "problems": self.problems})
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use seaway_haproxy::words::Folder;

    use super::{super::PreviousState, *};
    use crate::settings::data_plane::HaproxySettings;

    const SHOP: &str = "
apiVersion: v1
kind: Service
metadata: {name: shop, annotations: {seaway.dev/tls: shop-tls}}
spec:
  type: LoadBalancer
  ports: [{name: https, port: 443}, {name: dns, port: 53, protocol: UDP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shop-1, labels: {kubernetes.io/service-name: shop}}
addressType: IPv4
endpoints: [{addresses: [10.0.0.1]}]
ports: [{name: https, port: 8443}]
---
apiVersion: v1
kind: Secret
metadata: {name: shop-tls}
stringData:
  tls.crt: |
CHAIN
  tls.key: |
KEY
---
apiVersion: seaway.dev/v1alpha1
kind: AddressPool
metadata: {name: pool}
spec: {addresses: [192.0.2.0/24]}
";

    #[test]
    fn it_prints_all_but_keys_and_says_what_haproxy_cannot_serve() {
        let made = rcgen::generate_simple_self_signed(["shop.example".to_owned()]).expect("a certificate");
        let indented = |pem: String| pem.lines().map(|it| format!("    {it}\n")).collect::<String>();
        let key = made.signing_key.serialize_pem();
        let shop =
            SHOP.replace("CHAIN\n", &indented(made.cert.pem())).replace("KEY\n", &indented(key.clone()));
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("shop.yaml"), shop).expect("written");
        let settings = Settings::default();
        let look = PlannedFolder::at(folder.path(), &settings, PreviousState::default()).expect("it is read");
        let mut elsewhere = settings.clone();
        let folder = Folder::new("/srv/haproxy").expect("a folder");
        elsewhere.data_plane = DataPlane::Haproxy(HaproxySettings { program: "haproxy".into(), folder });
        let text = self::printed(&look, &elsewhere, Version::V2_6).text();
        assert!(text.contains("/srv/haproxy/worker.sock") && !text.contains("/run/seaway"), "{text}");
        let printed = printed(&look, &settings, Version::V2_6);
        let (text, json) = (printed.text(), printed.json());
        for part in [
            "frontend default.shop.443\n",
            ":443 transparent ssl crt-list /run/seaway/haproxy/crt-lists/default.shop.443.crt-list ",
            "    server s1 10.0.0.1:8443 weight 1\n",
            "#### /run/seaway/haproxy/certificates/default.shop-tls.pem\n# A certificate and its key",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let problems: Vec<String> = printed.problems.iter().map(ToString::to_string).collect();
        assert!(
            problems.iter().any(|it| it.contains("shop.yaml:") && it.contains("HAProxy does not serve UDP")),
            "{problems:?}"
        );
        for line in key.lines().filter(|it| !it.starts_with('-')) {
            assert!(!text.contains(line) && !json.to_string().contains(line));
        }
        assert!(json["files"]["/run/seaway/haproxy/certificates/default.shop-tls.pem"].is_null(), "{json}");
    }
}
