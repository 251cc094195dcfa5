//! What some commands of kubectl do, by HTTP: those that tests give again and again. All others are a process of kubectl.

mod arguments;
mod manifest;

use std::time::{Duration, Instant};

use hyper::Method;
use serde_json::{Map, Value, json};

use self::arguments::Arguments;
use super::api::{Api, ApiError, ApiRequest, DEFAULT, KindRef, Template};

/// As with kubectl: what a manifest does not say any more goes, if it came with a manifest.
const APPLY: &str = "fieldManager=kubectl&force=true&fieldValidation=Strict";
const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
/// For what is deleted to go. kubectl waits for ever.
const PATIENCE: Duration = Duration::from_secs(300);
const PAUSE: Duration = Duration::from_millis(20);

type Printed = Result<String, String>;

/// What kubectl would print; nothing, if these arguments are left to it.
pub(super) fn carry_out(api: &Api, arguments: &[&str], input: &str) -> Option<Printed> {
    let arguments = Arguments::read(arguments)?;
    match arguments.verb {
        "apply" => apply(api, &arguments, input),
        "get" => get(api, &arguments),
        "delete" => delete(api, &arguments),
        "patch" => patch(api, &arguments),
        "annotate" => mark(api, &arguments, "annotations"),
        "label" => mark(api, &arguments, "labels"),
        "create" => create(api, &arguments),
        _ => None,
    }
}

fn apply(api: &Api, arguments: &Arguments<'_>, input: &str) -> Option<Printed> {
    let is_understood = arguments.words.is_empty() && arguments.flag("-f") == Some("-");
    if !is_understood || !arguments.has_only(&["-f", "-n"]) {
        return None;
    }
    let objects = manifest::objects(input)?;
    let (mut printed, mut faults) = (Vec::new(), Vec::new());
    for object in objects {
        let wanted = arguments.flag("-n");
        if wanted.is_some() && object.namespace.is_some() && wanted != object.namespace.as_deref() {
            return None;
        }
        let namespace = object.namespace.as_deref().or(wanted).unwrap_or(DEFAULT);
        let ask = ApiRequest {
            method: Method::PATCH,
            name: object.name.clone(),
            query: APPLY.to_owned(),
            content: "application/apply-patch+yaml",
            body: object.text,
            ..ApiRequest::in_namespace(namespace)
        };
        match api.ask(KindRef::Manifest(object.api_version, object.kind), ask) {
            Ok((kind, _)) => printed.push(format!("{}/{} applied", kind.shown, object.name)),
            Err(fault) => faults.push(fault.to_string()),
        }
    }
    Some(if faults.is_empty() { Ok(printed.join("\n")) } else { Err(faults.join("\n")) })
}

fn get(api: &Api, arguments: &Arguments<'_>) -> Option<Printed> {
    if !arguments.has_only(&["-n", "-o", "-l", "--field-selector", "--ignore-not-found"]) {
        return None;
    }
    let output = arguments.flag("-o")?;
    let template = output.strip_prefix("jsonpath=").and_then(Template::parse);
    if template.is_none() && output != "name" {
        return None;
    }
    let objects = arguments.objects();
    let (word, name) = match &objects[..] {
        [] if arguments.words.len() == 1 && !arguments.words[0].contains(['/', ',']) => {
            (arguments.words[0], "")
        }
        [(word, name)] => (*word, *name),
        _ => return None,
    };
    let query = [("-l", "labelSelector"), ("--field-selector", "fieldSelector")];
    let query = query.into_iter().filter_map(|(flag, key)| {
        Some(format!("{key}={}", arguments.flag(flag)?.replace('=', "%3D").replace(',', "%2C")))
    });
    let query = query.collect::<Vec<_>>().join("&");
    let ask = ApiRequest { name: name.to_owned(), query, ..ApiRequest::in_namespace(arguments.namespace()) };
    Some(match api.ask(KindRef::Word(word.to_owned()), ask) {
        Ok((kind, object)) => Ok(template.map_or_else(|| names(&kind.shown, &object), |it| it.of(&object))),
        Err(fault) if fault.is_gone() && arguments.is_set("--ignore-not-found") => Ok(String::new()),
        // kubectl may know it by another word.
        Err(ApiError::NoKind(_)) => return None,
        Err(fault) => Err(fault.to_string()),
    })
}

/// Of an object, or of each in a list, a line.
fn names(kind: &str, object: &Value) -> String {
    let objects = object["items"].as_array().map_or(std::slice::from_ref(object), Vec::as_slice);
    let line = |it: &Value| format!("{kind}/{}", it["metadata"]["name"].as_str().unwrap_or_default());
    objects.iter().map(line).collect::<Vec<_>>().join("\n")
}

fn delete(api: &Api, arguments: &Arguments<'_>) -> Option<Printed> {
    let objects = arguments.objects();
    if objects.is_empty() || !arguments.has_only(&["-n", "--wait", "--ignore-not-found"]) {
        return None;
    }
    let (mut printed, mut faults, mut going) = (Vec::new(), Vec::new(), Vec::new());
    for (word, name) in objects {
        let at = ApiRequest { name: name.to_owned(), ..ApiRequest::in_namespace(arguments.namespace()) };
        let ask = ApiRequest {
            method: Method::DELETE,
            content: JSON,
            body: json!({"propagationPolicy": "Background"}).to_string(),
            ..at.clone()
        };
        match api.ask(KindRef::Word(word.to_owned()), ask) {
            Ok((kind, answer)) => {
                printed.push(format!("{} \"{name}\" deleted", kind.shown));
                // What goes at once is told of by a Status.
                let id = [&answer["metadata"]["uid"], &answer["details"]["uid"]];
                going.push((word, at, id.into_iter().find(|it| it.is_string()).cloned()));
            }
            Err(fault) if fault.is_gone() && arguments.is_set("--ignore-not-found") => {}
            Err(fault) => faults.push(fault.to_string()),
        }
    }
    if arguments.flag("--wait") != Some("false") {
        faults.extend(going.into_iter().filter_map(|(word, at, id)| until_gone(api, word, &at, id).err()));
    }
    Some(if faults.is_empty() { Ok(printed.join("\n")) } else { Err(faults.join("\n")) })
}

fn until_gone(api: &Api, word: &str, at: &ApiRequest, id: Option<Value>) -> Result<(), String> {
    let began = Instant::now();
    loop {
        match api.ask(KindRef::Word(word.to_owned()), at.clone()) {
            // Another of that name.
            Ok((_, now)) if id.as_ref().is_some_and(|it| *it != now["metadata"]["uid"]) => return Ok(()),
            // With its definition all of a kind go.
            Err(fault) if fault.is_gone() || matches!(fault, ApiError::NoKind(_)) => return Ok(()),
            Err(ApiError::Refused(status)) if status.code != 429 && status.code < 500 => return Ok(()),
            _ if began.elapsed() > PATIENCE => return Err(format!("{word} {} does not go", at.name)),
            _ => std::thread::sleep(PAUSE),
        }
    }
}

fn patch(api: &Api, arguments: &Arguments<'_>) -> Option<Printed> {
    let objects = arguments.objects();
    let [(word, name)] = objects[..] else { return None };
    if !arguments.has_only(&["-n", "--type", "-p", "--subresource"]) {
        return None;
    }
    let body = arguments.flag("-p")?;
    // kubectl takes YAML, too.
    serde_json::from_str::<Value>(body).ok()?;
    let content = match arguments.flag("--type").unwrap_or("strategic") {
        "strategic" => "application/strategic-merge-patch+json",
        "merge" => MERGE,
        "json" => "application/json-patch+json",
        _ => return None,
    };
    let ask = ApiRequest {
        method: Method::PATCH,
        name: name.to_owned(),
        below: arguments.flag("--subresource").map(|it| format!("/{it}")).unwrap_or_default(),
        query: "fieldManager=kubectl-patch".to_owned(),
        content,
        body: body.to_owned(),
        ..ApiRequest::in_namespace(arguments.namespace())
    };
    Some(changed(api, word, ask, "patched"))
}

fn mark(api: &Api, arguments: &Arguments<'_>, field: &str) -> Option<Printed> {
    if !arguments.has_only(&["-n", "--overwrite"]) {
        return None;
    }
    let is_mark = |it: &&str| it.contains('=') || it.ends_with('-');
    let marks: Vec<&str> = arguments.words.iter().copied().filter(is_mark).collect();
    let others: Vec<&str> = arguments.words.iter().copied().filter(|it| !is_mark(it)).collect();
    let objects = arguments::objects(&others);
    if marks.is_empty() || objects.is_empty() {
        return None;
    }
    let marks: Map<String, Value> = marks
        .iter()
        .map(|mark| match mark.split_once('=') {
            Some((key, value)) => (key.to_owned(), value.into()),
            None => (mark.trim_end_matches('-').to_owned(), Value::Null),
        })
        .collect();
    let mut printed = Vec::new();
    for (word, name) in objects {
        let at = ApiRequest { name: name.to_owned(), ..ApiRequest::in_namespace(arguments.namespace()) };
        if !arguments.is_set("--overwrite") {
            let now = match api.ask(KindRef::Word(word.to_owned()), at.clone()) {
                Ok((_, now)) => now["metadata"][field].clone(),
                Err(fault) => return Some(Err(fault.to_string())),
            };
            let differs = |(key, value): (&String, &Value)| {
                value.is_string() && now.get(key).is_some_and(|it| it != value)
            };
            if marks.iter().any(differs) {
                return Some(Err(format!("error: --overwrite is false, and {word} {name} has {now}")));
            }
        }
        let ask = ApiRequest {
            method: Method::PATCH,
            query: "fieldManager=kubectl-edit".to_owned(),
            content: MERGE,
            body: json!({"metadata": {field: marks}}).to_string(),
            ..at
        };
        match changed(api, word, ask, "changed") {
            Ok(line) => printed.push(line),
            Err(fault) => return Some(Err(fault)),
        }
    }
    Some(Ok(printed.join("\n")))
}

fn changed(api: &Api, word: &str, ask: ApiRequest, how: &str) -> Printed {
    let name = ask.name.clone();
    let (kind, _) = api.ask(KindRef::Word(word.to_owned()), ask).map_err(|it| it.to_string())?;
    Ok(format!("{}/{name} {how}", kind.shown))
}

fn create(api: &Api, arguments: &Arguments<'_>) -> Option<Printed> {
    let [word, name] = arguments.words[..] else { return None };
    let object = match word {
        "namespace" | "serviceaccount" if arguments.has_only(&["-n"]) => json!({"metadata": {"name": name}}),
        "clusterrolebinding" | "rolebinding" => binding(name, arguments)?,
        _ => return None,
    };
    let ask = ApiRequest {
        method: Method::POST,
        query: "fieldManager=kubectl-create&fieldValidation=Strict".to_owned(),
        content: JSON,
        body: object.to_string(),
        ..ApiRequest::in_namespace(arguments.namespace())
    };
    let made = api.ask(KindRef::Word(word.to_owned()), ask);
    Some(made.map(|(kind, _)| format!("{}/{name} created", kind.shown)).map_err(|it| it.to_string()))
}

fn binding(name: &str, arguments: &Arguments<'_>) -> Option<Value> {
    if !arguments.has_only(&["-n", "--clusterrole", "--role", "--user", "--serviceaccount"]) {
        return None;
    }
    let group = "rbac.authorization.k8s.io";
    let (kind, role) = match (arguments.flag("--clusterrole"), arguments.flag("--role")) {
        (Some(role), None) => ("ClusterRole", role),
        (None, Some(role)) => ("Role", role),
        _ => return None,
    };
    let subject = match (arguments.flag("--user"), arguments.flag("--serviceaccount")) {
        (Some(user), None) => json!({"kind": "User", "name": user, "apiGroup": group}),
        (None, Some(account)) => {
            let (namespace, name) = account.split_once(':')?;
            json!({"kind": "ServiceAccount", "name": name, "namespace": namespace})
        }
        _ => return None,
    };
    Some(json!({
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": kind, "name": role},
        "subjects": [subject],
    }))
}
