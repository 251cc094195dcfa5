//! `seaway openstack check`: what a cloud has, line by line, and what is missing.

use std::process::ExitCode;

use anyhow::Result;
use seaway_openstack::{
    Error,
    survey::{
        Ability, FetchResult, Finding, ProviderInfo, Severity, Survey, date, findings, is_absence, survey,
    },
};
use serde_json::json;

use super::{connect, progress_printer};
use crate::{
    args::{OpenStackCheck, Output},
    output,
};

pub(super) async fn check(arguments: &OpenStackCheck) -> Result<ExitCode> {
    let cloud = match connect(&arguments.which).await {
        Ok(cloud) => cloud,
        Err(error) => return Ok(not_signed_in(&error, arguments.output)),
    };
    let survey = survey(&cloud, &*progress_printer()).await;
    let findings = findings(&survey);
    match arguments.output {
        Output::Json => {
            let all = json!({ "found": survey, "findings": findings });
            output::line(&serde_json::to_string_pretty(&all)?);
        }
        Output::Table => {
            for line in lines(&survey) {
                output::line(&line);
            }
            findings.iter().for_each(tell);
        }
    }
    let missing = findings.iter().filter(|it| it.weight == Severity::Missing).count();
    output::error(&match (missing, findings.len() - missing) {
        (0, 0) => "nothing is missing".to_owned(),
        (0, warnings) => format!("nothing is missing; {warnings} warnings"),
        (missing, warnings) => format!("{missing} missing, {warnings} warnings"),
    });
    Ok(if missing == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn not_signed_in(error: &Error, form: Output) -> ExitCode {
    let what = format!("not signed in: {}", with_causes(error));
    match form {
        Output::Json => {
            output::line(&json!({ "findings": [{ "weight": "missing", "what": what }] }).to_string())
        }
        Output::Table => output::line(&row("MISSING", &what)),
    }
    ExitCode::FAILURE
}

fn with_causes(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text
}

fn tell(finding: &Finding) {
    let word = match finding.weight {
        Severity::Missing => "MISSING",
        Severity::Warning => "warning",
    };
    output::line(&row(word, &finding.what));
    output::line(&row("", &format!("→ {}", finding.fix)));
}

fn row(word: &str, text: &str) -> String {
    format!("{word:<13} {text}")
}

fn lines(survey: &Survey) -> Vec<String> {
    let mut lines = identity(survey);
    for found in &survey.services {
        let told = match (&found.endpoint, &found.versions) {
            (FetchResult::Failed(error), _) => format!("- ({})", error.message()),
            (FetchResult::Value(url), FetchResult::Failed(error)) => format!("{url}  {}", error.message()),
            (FetchResult::Value(url), FetchResult::Value(spoken)) => {
                let dialects = spoken.microversion.as_ref().map(|it| format!(", microversions to {it}"));
                format!("{url}  {}{}", spoken.version, dialects.unwrap_or_default())
            }
        };
        lines.push(row(found.service.as_str(), &told));
    }
    match &survey.providers {
        FetchResult::Value(providers) => lines.extend(providers.iter().flat_map(provider)),
        FetchResult::Failed(error) => lines.extend(untold("providers", error)),
    }
    for (word, names) in [("flavors", &survey.flavors), ("zones", &survey.availability_zones)] {
        // Most clouds have none, and some do not let them be listed.
        if let Some(names) = names.value().filter(|it| !it.is_empty()) {
            lines.push(row(word, &names.join(", ")));
        }
    }
    lines.extend(outside(survey));
    lines.extend(quotas(survey));
    lines
}

fn identity(survey: &Survey) -> Vec<String> {
    let it = &survey.identity;
    let project =
        it.project.as_ref().map_or("no project".to_owned(), |it| format!("project {} ({})", it.name, it.id));
    let region = it.region.as_ref().map(|it| format!(", region {it}")).unwrap_or_default();
    let mut lines = vec![row("signed in", &format!("as {} by {}, {project}{region}", it.user, it.by))];
    let roles = if it.roles.is_empty() { "none known".to_owned() } else { it.roles.join(", ") };
    let until = it.expires.and_then(date).map(|it| format!("; token until {it}")).unwrap_or_default();
    lines.push(row("", &format!("roles: {roles}{until}")));
    lines
}

fn provider(it: &ProviderInfo) -> Vec<String> {
    let words = |all: &[Ability]| all.iter().map(|it| it.as_str()).collect::<Vec<_>>().join(", ");
    let mut lines = vec![row("provider", &format!("{}: {}", it.name, it.description))];
    if !it.can.known {
        lines.push(row(
            "",
            "Seaway does not know the features of this provider; Octavia refuses what it does not support",
        ));
        return lines;
    }
    lines.push(row("", &format!("can: {}", words(&it.can.can))));
    if !it.can.cannot.is_empty() {
        lines.push(row("", &format!("cannot: {}", words(&it.can.cannot))));
    }
    if let Some(capabilities) = it.flavor_capabilities.as_ref().filter(|it| !it.is_empty()) {
        lines.push(row("", &format!("flavors may set: {}", capabilities.join(", "))));
    }
    lines
}

/// Of a service that is not there, its own line is enough.
fn untold(word: &str, error: &Error) -> Option<String> {
    (!is_absence(error)).then(|| row(word, &format!("- ({})", error.message())))
}

fn outside(survey: &Survey) -> Vec<String> {
    let networks = match &survey.external_networks {
        FetchResult::Value(networks) => networks,
        FetchResult::Failed(error) => return untold("outside", error).into_iter().collect(),
    };
    let told = networks.iter().map(|it| {
        let subnets = match &it.subnets {
            FetchResult::Value(subnets) if subnets.is_empty() => "no subnet is visible".to_owned(),
            FetchResult::Value(subnets) => {
                subnets.iter().map(|it| it.cidr.as_str()).collect::<Vec<_>>().join(", ")
            }
            FetchResult::Failed(error) => format!("- ({})", error.message()),
        };
        row("outside", &format!("{} ({}): {subnets}", it.name, it.id))
    });
    told.collect()
}

fn quotas(survey: &Survey) -> Vec<String> {
    let there = survey.quotas.iter().filter(|it| !it.limit.error().is_some_and(is_absence));
    let told = there.map(|it| {
        let used = match &it.used {
            FetchResult::Value(used) => used.to_string(),
            FetchResult::Failed(_) => "?".to_owned(),
        };
        let limit = match &it.limit {
            FetchResult::Value(-1) => "no limit".to_owned(),
            FetchResult::Value(limit) => limit.to_string(),
            FetchResult::Failed(error) => format!("? ({})", error.message()),
        };
        row("quota", &format!("{}: {used} of {limit}", it.what))
    });
    told.collect()
}
