//! `check` and `config --check`: all that is wrong with a folder and a configuration, for people and for editors.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
    process::ExitCode,
};

use anyhow::{Context, Result};
use seaway_admin::server::PORT;
use seaway_model::{Kind, L4, ObjectRef, Problem, ProblemDetail, Reason, load_balancer::Bind};
use seaway_plan::{Overview, World, annotations::BACKENDS};

use super::{PlannedFolder, PreviousState, STANDARD_INPUT};
use crate::{
    args::{Check, CheckOutput},
    output, rights,
    settings::{
        Settings,
        checked::{CheckedSettings, ConfigPlaces, read_checked},
        doubts::is_front_door_wider,
    },
};

/// What Problems say of a process that serves. A check serves nothing.
const WHILE_SERVING: [&str; 4] = [
    "The previous certificate stays in use.",
    "What was read from it before stays in use.",
    "The last good state of the file is still served.",
    "Until then TLS clients are refused.",
];

pub(crate) fn check(arguments: &Check) -> Result<ExitCode> {
    let CheckedSettings { settings, mut problems, places } = arguments.common.settings_checked();
    let before = PreviousState::of(&arguments.common, &settings);
    read_as_run_does()?;
    let (of, look) = if arguments.manifests.as_os_str() == "-" {
        (STANDARD_INPUT.to_owned(), PlannedFolder::at_standard_input(&settings, before)?)
    } else {
        (
            arguments.manifests.display().to_string(),
            PlannedFolder::at(&arguments.manifests, &settings, before)?,
        )
    };
    problems.extend(mistakes(&look));
    problems.extend(wider_front_door(&look.world, &settings));
    Ok(told(&of, &each_once(problems, places.as_ref()), arguments.output))
}

/// The same of a configuration, and of the folder that it names.
pub(crate) fn check_config(file: &Path) -> Result<ExitCode> {
    let CheckedSettings { settings, mut problems, places } = read_checked(file);
    read_as_run_does()?;
    problems.extend(beside(&settings)?);
    let problems = each_once(problems, places.as_ref());
    for problem in &problems {
        print(problem);
    }
    if problems.is_empty() {
        output::line("no problems");
        return Ok(ExitCode::SUCCESS);
    }
    Ok(ExitCode::FAILURE)
}

/// With the places of those of the configuration. What two parts find is one Problem.
pub(super) fn each_once(mut problems: Vec<Problem>, places: Option<&ConfigPlaces>) -> Vec<Problem> {
    if let Some(places) = places {
        places.locate(&mut problems);
    }
    let mut seen = BTreeSet::new();
    problems.retain(|it| seen.insert((it.place.clone(), it.field.clone(), it.message.clone())));
    problems
}

/// `seaway run` gives up the right of root to read every file, so a check must not have it either: it would find no fault with a
/// file that is missing from what is served. The configuration and the state folder are read before: the latter may be of the
/// account that serves.
fn read_as_run_does() -> Result<()> {
    rights::keep_only(rights::SERVING_CAPABILITIES).context("capabilities cannot be dropped")?;
    Ok(())
}

/// Of the folder, if the configuration names one; else of certificates alone, as nothing is known of Services.
pub(super) fn beside(settings: &Settings) -> Result<Vec<Problem>> {
    let Some(folder) = &settings.manifests else {
        let look = PlannedFolder::at_text(b"", settings, PreviousState::default())?;
        let files = mistakes(&look).into_iter().filter(|it| it.object.kind == Kind::File);
        return Ok(files.chain(wider_front_door(&look.world, settings)).collect());
    };
    match PlannedFolder::at(folder, settings, PreviousState::default()) {
        Ok(look) => Ok(mistakes(&look).into_iter().chain(wider_front_door(&look.world, settings)).collect()),
        Err(error) => {
            let object = ObjectRef::new(Kind::Config, "", "manifests");
            let problem = Problem::new(object, Reason::Unreadable, format!("{error:#}")).at("manifests");
            Ok(vec![problem.fix("Create the folder, or correct `manifests:` in seaway.yaml.")])
        }
    }
}

/// Where the front door listens, it does so at addresses that `host.addresses` leaves out: valid, and probably not meant.
fn wider_front_door(world: &World, settings: &Settings) -> Option<Problem> {
    if !is_front_door_wider(settings) {
        return None;
    }
    let door = world.front_door()?;
    let at: Vec<String> =
        door.at.iter().filter(|it| it.ip().is_unspecified()).map(ToString::to_string).collect();
    let message = format!(
        "host.addresses does not limit the front door: it listens at {}, so at all addresses of this machine",
        at.join(" and ")
    );
    let fix = "Set frontDoor.addresses to the addresses that it may use; [\"::\", 0.0.0.0] are all of this host, \
               without this Problem.";
    let problem = Problem::new(ObjectRef::new(Kind::Config, "", "frontDoor"), Reason::Ignored, message);
    (!at.is_empty()).then(|| problem.at("frontDoor.addresses").fix(fix))
}

/// Services at the port of the status page, which a running process cannot serve.
pub(super) fn at_status_page(world: &World, settings: &Settings) -> Vec<Problem> {
    let usual =
        [SocketAddr::from((Ipv4Addr::LOCALHOST, PORT)), SocketAddr::from((Ipv6Addr::LOCALHOST, PORT))];
    let pages = settings.admin.as_deref().unwrap_or(&usual);
    let of = |overview: &Overview| {
        let balancer = &overview.load_balancer;
        let ips: Vec<IpAddr> = balancer.binds.iter().filter_map(Bind::ip).collect();
        let is_taken = |page: &&SocketAddr| {
            balancer.listeners.keys().any(|it| it.l4 == L4::Tcp && it.port == page.port())
                && ips.iter().any(|ip| page.ip().is_unspecified() || *ip == page.ip())
        };
        let page = pages.iter().find(is_taken)?;
        let message = format!("{page} is the address of the status page, so this port is not served there");
        let object = overview.status.owner.object();
        let field = if object.kind == Kind::Config { object.name.clone() } else { "spec.ports".into() };
        let problem = Problem::new(object, Reason::PortInUse, message).at(field);
        Some(problem.fix("Choose another port, or move the status page: admin.listen in seaway.yaml."))
    };
    world.overview().iter().filter_map(of).collect()
}

/// As a check tells them: what follows from another mistake names that one.
pub(super) fn mistakes(look: &PlannedFolder) -> Vec<Problem> {
    let all: Vec<Problem> = look.mistakes().cloned().collect();
    let mut told = all.clone();
    for problem in &mut told {
        for sentence in WHILE_SERVING {
            problem.fix = problem.fix.replace(sentence, "").trim_end().to_owned();
        }
        if let Some(cause) = cause(problem, &all) {
            problem.fix = format!("Correct {cause} first.");
        }
    }
    told
}

/// The mistake from which this one follows.
fn cause(problem: &Problem, all: &[Problem]) -> Option<String> {
    let is_other = |it: &&Problem| {
        it.object.namespace == problem.object.namespace
            && (&it.object, &it.field, &it.message) != (&problem.object, &problem.field, &problem.message)
    };
    let mut others = all.iter().filter(is_other);
    match problem.reason {
        Reason::NoEndpoints if matches!(&problem.about, Some(ProblemDetail::Missing(it)) if it.kind == Kind::EndpointSlice) =>
        {
            let names_backends = |it: &Problem| {
                it.object == problem.object
                    && (it.field.contains("backend")
                        || matches!(&it.about, Some(ProblemDetail::MeantAnnotation(it)) if it.as_str() == BACKENDS)
                        || it.field.ends_with("annotations"))
            };
            // Slices of others are broken for others: those count that are called as this Service, or nearly name it.
            let service = &problem.object.name;
            let is_slice = |it: &Problem| {
                let rest = it.object.name.strip_prefix(service.as_str());
                matches!(it.object.kind, Kind::EndpointSlice | Kind::Endpoints)
                    && (rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
                        || it.about == Some(ProblemDetail::Meant(problem.object.clone())))
            };
            let found = others.find(|it| names_backends(it) || is_slice(it))?;
            Some(if is_slice(found) { found.object.to_string() } else { found.field.to_string() })
        }
        Reason::NoSuchSecret => {
            let named = |it: &&Problem| {
                it.object.kind == Kind::Secret
                    && problem.about == Some(ProblemDetail::Missing(it.object.clone()))
            };
            others.find(named).map(|it| it.object.to_string())
        }
        _ => None,
    }
}

fn told(of: &str, problems: &[Problem], format: CheckOutput) -> ExitCode {
    match format {
        CheckOutput::Json => {
            output::line(&serde_json::to_string_pretty(&problems).unwrap_or_default());
        }
        CheckOutput::Github => problems.iter().for_each(|it| output::line(&github(it))),
        CheckOutput::Table => problems.iter().for_each(print),
    }
    if problems.is_empty() {
        output::error(&format!("{of}: no problems"));
        return ExitCode::SUCCESS;
    }
    let many = if problems.len() == 1 { "" } else { "s" };
    output::error(&format!("{of}: {} problem{many}", problems.len()));
    ExitCode::FAILURE
}

fn print(problem: &Problem) {
    output::line(&shown(problem));
    for line in problem.fix.lines() {
        output::line(&format!("    {line}"));
    }
}

/// The configuration is one file: its place says which.
fn shown(problem: &Problem) -> String {
    let place = match &problem.place {
        Some(place) if problem.object.kind == Kind::Config => place,
        _ => return problem.to_string(),
    };
    let text = Problem { place: None, ..problem.clone() }.to_string();
    let own = format!("{} {}: ", Kind::Config, place.file);
    let text = text.strip_prefix(&own).or_else(|| text.strip_prefix("Config ")).unwrap_or(&text);
    format!("{place}: {text}")
}

/// A line that GitHub Actions shows at the line of the file.
fn github(problem: &Problem) -> String {
    let property = |text: &str| escaped(text).replace(':', "%3A").replace(',', "%2C");
    let mut place = String::new();
    if let Some(it) = &problem.place {
        place.push_str(&format!(" file={}", property(&it.file)));
        if it.line > 0 {
            place.push_str(&format!(",line={},col={}", it.line, it.column));
        }
        place.push(',');
    } else {
        place.push(' ');
    }
    let plain = Problem { place: None, ..problem.clone() };
    let mut text = plain.to_string();
    if !problem.fix.is_empty() {
        text.push('\n');
        text.push_str(&problem.fix);
    }
    format!("::error{place}title={}::{}", property(&format!("{}", problem.reason)), escaped(&text))
}

fn escaped(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::parse;

    const AT_FRONT_DOOR: &str = "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  annotations: \
        {seaway.dev/host: shop.example, seaway.dev/backends: '127.0.0.1:3000'}\nspec: {ports: [{port: 80}]}\n";

    #[test]
    fn a_front_door_that_listens_beyond_the_addresses_of_the_host_is_named() {
        let of_host = "host: {addresses: [127.0.0.1]}\n";
        let elsewhere = AT_FRONT_DOOR.replace("seaway.dev/host: shop.example, ", "");
        let own =
            elsewhere.replace("{ports:", "{type: LoadBalancer, ports:").replace("port: 80}", "port: 8080}");
        for (manifest, more, is_named) in [
            (AT_FRONT_DOOR, "", true),
            (AT_FRONT_DOOR, "frontDoor: {addresses: [127.0.0.1]}\n", false),
            (AT_FRONT_DOOR, "frontDoor: {addresses: ['::', 0.0.0.0]}\n", false),
            (AT_FRONT_DOOR, "frontDoor: {enabled: false}\n", false),
            (&own, "", false),
        ] {
            let settings = parse(&format!("{of_host}{more}"), Path::new("")).expect("is well written");
            let look = PlannedFolder::at_text(manifest.as_bytes(), &settings, PreviousState::default())
                .expect("is read");
            let problem = wider_front_door(&look.world, &settings);
            assert_eq!(problem.is_some(), is_named, "{more} {problem:?}");
        }
        let nothing = parse("", Path::new("")).expect("is well written");
        let look = PlannedFolder::at_text(AT_FRONT_DOOR.as_bytes(), &nothing, PreviousState::default())
            .expect("is read");
        assert_eq!(wider_front_door(&look.world, &nothing), None);
    }

    #[test]
    fn what_follows_from_another_mistake_is_known_by_types_and_not_by_words() {
        let object = |kind, name| ObjectRef::new(kind, "default", name);
        let problem = |object: &ObjectRef, reason| Problem::new(object.clone(), reason, "in other words");
        let (web, slice) = (object(Kind::Service, "web"), object(Kind::EndpointSlice, "wbe-1"));
        let secret = object(Kind::Secret, "web-tls");
        let no_slice = || {
            let none = object(Kind::EndpointSlice, "");
            problem(&web, Reason::NoEndpoints).at("spec.ports[0]").about(ProblemDetail::Missing(none))
        };
        let key = "metadata.annotations[seaway.dev/bakends]";
        let misspelt = || problem(&web, Reason::BadAnnotation).at(key);
        let backends = || ProblemDetail::MeantAnnotation(BACKENDS.into());
        let lost = || problem(&slice, Reason::NoSuchService);
        let unsigned = || problem(&web, Reason::NoSuchSecret);
        for (follows, other, expected) in [
            (no_slice(), misspelt().about(backends()), Some(key)),
            (no_slice(), misspelt(), None),
            (
                no_slice(),
                lost().about(ProblemDetail::Meant(web.clone())),
                Some("EndpointSlice default/wbe-1"),
            ),
            (no_slice(), lost(), None),
            (no_slice(), lost().about(ProblemDetail::Meant(object(Kind::Service, "other"))), None),
            (problem(&web, Reason::NoEndpoints), misspelt().about(backends()), None),
            (
                unsigned().about(ProblemDetail::Missing(secret.clone())),
                problem(&secret, Reason::Invalid),
                Some("Secret default/web-tls"),
            ),
            (unsigned(), problem(&secret, Reason::Invalid), None),
        ] {
            let all = [follows.clone(), other];
            assert_eq!(cause(&follows, &all).as_deref(), expected, "{all:?}");
        }
    }

    #[test]
    fn a_problem_of_the_configuration_is_shown_by_its_place_and_key() {
        for (name, field, text) in [
            ("a.yaml", "frontDoor.port", "a.yaml:3:5: frontDoor.port: wrong"),
            ("tcpServices[0]", "tcpServices[0]", "a.yaml:3:5: tcpServices[0]: wrong"),
            ("frontDoor", "frontDoor.tls", "a.yaml:3:5: frontDoor.tls: wrong"),
        ] {
            let object = ObjectRef::new(Kind::Config, "", name);
            let problem = Problem::new(object, Reason::Invalid, "wrong").at(field).in_file("a.yaml", 3, 5);
            assert_eq!(shown(&problem), text);
        }
    }

    #[test]
    fn a_problem_is_one_line_for_github() {
        let object = ObjectRef::new(Kind::Service, "default", "web");
        let problem = Problem::new(object, Reason::Invalid, "100 % wrong")
            .at("spec.ports[0]")
            .fix("Write:\na: b")
            .in_file("a,b.yaml", 3, 5);
        assert_eq!(
            github(&problem),
            "::error file=a%2Cb.yaml,line=3,col=5,title=Invalid::Service default/web: spec.ports[0]: 100 %25 wrong%0AWrite:%0Aa: b"
        );
    }
}
