//! `plan --driver haproxy`: the configuration by which HAProxy would serve what the folder asks for.

use std::{collections::BTreeSet, process::ExitCode};

use anyhow::Result;
use seaway_drivers::native::OnHost;
use seaway_haproxy::{
    Wanted, document,
    document::{Global, Place},
    files,
};
use seaway_model::Problem;
use secrecy::ExposeSecret as _;
use serde_json::json;

use super::Look;
use crate::{
    args::{Output, Plan},
    output,
    settings::Settings,
};

pub(super) fn plan(look: &Look, settings: &Settings, arguments: &Plan) -> Result<ExitCode> {
    let all = look.world.load_balancers(&OnHost(settings.host.clone()).place());
    let certificates = all.values().flat_map(|it| it.certificates.iter());
    let unusable: BTreeSet<_> = certificates
        .filter(|(_, it)| !it.chain.is_empty() && seaway_proxy::look_at(it).is_err())
        .map(|(object, _)| object.clone())
        .collect();
    let global = Global::default();
    let (document, problems) = document(Wanted {
        load_balancers: &all,
        version: arguments.haproxy_version.into(),
        global: &global,
        unusable: &unusable,
        before: None,
    });
    let problems: Vec<Problem> =
        look.problems.iter().cloned().chain(problems.into_iter().map(|(_, it)| it)).collect();
    let problems = super::located(&look.folder, problems);
    let files = files(&document);
    // A key is printed nowhere, and a certificate stands in the file of its key.
    let shown = |place: &Place| *place != Place::Certificates;
    match arguments.output {
        Output::Table => {
            output::line(files.configuration.trim_end());
            for (path, (place, text)) in &files.others {
                output::line(&match shown(place) {
                    true => format!("\n#### {path}\n{}", text.expose_secret().trim_end()),
                    false => format!("\n#### {path}\n# A certificate and its key, which are not printed."),
                });
            }
            for problem in &problems {
                output::error(&problem.to_string());
            }
        }
        Output::Json => {
            let others = files.others.iter().map(|(path, (place, text))| {
                (path.clone(), shown(place).then(|| text.expose_secret().to_owned()))
            });
            let others: std::collections::BTreeMap<_, _> = others.collect();
            let all = json!({"configuration": files.configuration, "files": others, "problems": problems});
            output::line(&serde_json::to_string_pretty(&all)?);
        }
    }
    Ok(ExitCode::SUCCESS)
}
