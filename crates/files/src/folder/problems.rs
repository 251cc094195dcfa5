//! What is wrong with a folder, said with file, line and column.

use std::{collections::BTreeMap, io};

use seaway_manifests::{
    decode::ValidationError,
    hint,
    object::{InvalidObject, UNTIL_CORRECTED},
};
use seaway_model::{Change, Kind, Name, ObjectRef, Problem, ProblemDetail, Reason};

use super::{
    File, Folder, Trouble,
    closed_places::{Followup, followup},
    line_of,
};

/// How many names a message lists.
const LISTED: usize = 5;

/// All that is wrong within one file, by the object it is about.
pub(super) fn of_file(shown: Name, name: &Name, file: &File) -> BTreeMap<ObjectRef, Vec<Problem>> {
    let mut problems: BTreeMap<ObjectRef, Vec<Problem>> = BTreeMap::new();
    let whole = ObjectRef::new(Kind::Manifest, "", name.clone());
    if let Some(trouble) = &file.trouble {
        let is_served =
            !file.kept.is_empty() || file.documents.iter().any(|it| !it.document.found.is_empty());
        let mut problem =
            Problem::new(whole.clone(), Reason::Unreadable, trouble.why.clone()).in_file(shown.clone(), 0, 0);
        problem.fix = trouble.fix.into();
        if is_served {
            add(&mut problem.fix, "The last good state of the file is still served.");
        } else {
            // What is in it is not known, unless its letters alone are wrong.
            let then = followup(file, file.unread_places.as_ref()).unwrap_or(Followup::Unknown);
            problem.message.push_str(&then.message());
            add(&mut problem.fix, then.fix());
        }
        problems.entry(whole.clone()).or_default().push(problem);
    }
    for placed in &file.documents {
        // Said once, with the first that is wrong.
        let mut then = followup(file, placed.document.closed.as_ref());
        for InvalidObject { reference, errors: faults } in &placed.document.broken {
            let object = reference.as_ref().unwrap_or(&whole);
            let told = problems.entry(object.clone()).or_default();
            for fault in faults {
                let ValidationError { field, at, message } = fault;
                let reason = if reference.is_some() { Reason::Invalid } else { Reason::Unreadable };
                let mut problem = Problem::new(object.clone(), reason, message.clone())
                    .at(field.as_str())
                    .in_file(shown.clone(), placed.line.saturating_add(at.line), at.column);
                problem.fix = hint(fault).unwrap_or_default();
                if reference.is_none() && !file.kept.is_empty() {
                    add(&mut problem.fix, &kept(file));
                }
                if let Some(then) = then.take() {
                    problem.message.push_str(&then.message());
                    add(&mut problem.fix, then.fix());
                }
                told.push(problem);
            }
        }
        // As it is written, it is planned, and named there; but not while its last good state is.
        let kept = placed.document.found.iter().filter(|it| file.kept.contains_key(it.reference()));
        for found in kept {
            for ValidationError { field, at, message } in &found.object.misplaced {
                let object = found.reference();
                let problem = Problem::new(object.clone(), Reason::BadAnnotation, message.clone())
                    .at(field.as_str())
                    .in_file(shown.clone(), placed.line.saturating_add(at.line), at.column);
                problems.entry(object.clone()).or_default().push(problem);
            }
        }
        let kept = placed.document.replaced_routes.iter().filter(|(route, _)| file.kept.contains_key(route));
        for (route, ValidationError { field, at, message }) in kept {
            let fix = "Write kind: HTTPRoute and apiVersion: gateway.networking.k8s.io/v1. To have no such route, remove the object, or give \
                       it another name.";
            let problem = Problem::new(route.clone(), Reason::Invalid, message.clone()).fix(fix);
            let problem = problem.at(field.as_str()).in_file(
                shown.clone(),
                placed.line.saturating_add(at.line),
                at.column,
            );
            problems.entry(route.clone()).or_default().push(problem);
        }
        for (reference, ValidationError { field, at, message }) in &placed.document.ignored {
            let object = reference.as_ref().unwrap_or(&whole);
            let fix = match message.ends_with(UNTIL_CORRECTED) {
                true => "Correct it, or remove it.",
                false => "Correct it, or remove it. Everything else in the file takes effect.",
            };
            let mut problem = Problem::new(object.clone(), Reason::Ignored, message.clone())
                .fix(fix)
                .at(field.as_str())
                .in_file(shown.clone(), placed.line.saturating_add(at.line), at.column);
            if let Some(then) = then.take_if(|_| reference.is_none()) {
                problem.message.push_str(&then.message());
                add(&mut problem.fix, then.fix());
            }
            problems.entry(object.clone()).or_default().push(problem);
        }
    }
    problems
}

/// A file that has nothing in it.
pub(super) fn empty() -> Trouble {
    Trouble { why: "is empty; to remove its objects, delete the file".to_owned(), fix: "" }
}

/// A file that is there, and cannot be read.
pub(super) fn unreadable(error: &io::Error) -> Trouble {
    let fix = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "Let the account that runs Seaway read the file, by chmod or chown. It drops the right of root to read every file."
        }
        _ => "",
    };
    Trouble { why: format!("cannot be read: {error}"), fix }
}

/// The object and the field that a Problem is about: if it is a slice, who corrects it looks for the line there, and not at the
/// Service that has the Problem.
pub(super) fn subject(problem: &Problem) -> (ObjectRef, Name) {
    match &problem.about {
        Some(ProblemDetail::Field(object, field)) => (object.clone(), field.clone()),
        _ => (problem.object.clone(), problem.field.clone()),
    }
}

/// Another sentence.
fn add(fix: &mut String, sentence: &str) {
    if !fix.is_empty() && !sentence.is_empty() {
        fix.push(' ');
    }
    fix.push_str(sentence);
}

fn kept(file: &File) -> String {
    let mut names: Vec<String> = file.kept.keys().take(LISTED).map(ToString::to_string).collect();
    if let more @ 1.. = file.kept.len().saturating_sub(LISTED) {
        names.push(format!("{more} more"));
    }
    format!(
        "Until this is corrected, the last good state of these objects stays in use: {}.",
        names.join(", ")
    )
}

impl Folder {
    /// What a check of the folder names and nobody needs to hear who serves it: manifests may have lost their heads, or be
    /// missing altogether; other programs keep files here, too.
    pub fn unread_problems(&self) -> Vec<Problem> {
        let problem =
            |name: &Name, line: u32, column: u32, message: &str| {
                Problem::new(ObjectRef::new(Kind::Manifest, "", name.clone()), Reason::Ignored, message)
                    .in_file(self.shown(name), line, column)
            };
        let mut problems: Vec<Problem> = Vec::new();
        let is_kustomize = |name: &str| {
            let file = name.rsplit('/').next().unwrap_or_default();
            file.strip_prefix("kustomization.").is_some()
        };
        for (name, file) in self.files.iter().filter(|(name, _)| !is_kustomize(name)) {
            for placed in &file.documents {
                for at in &placed.document.unnamed {
                    let line = placed.line.saturating_add(at.line);
                    let then = followup(file, placed.document.closed.as_ref());
                    let then = then.map(|it| it.message()).unwrap_or_default();
                    let message =
                        format!("not a Kubernetes object: it has neither apiVersion nor kind{then}");
                    problems.push(
                        problem(name, line, at.column, &message).fix(
                            "Add both fields, or move the document to a folder that Seaway does not read.",
                        ),
                    );
                }
            }
        }
        for name in &self.unread {
            let message = "this file is not read: names of manifests end in .yaml, .yml or .json";
            problems.push(problem(name, 0, 0, message).fix("Rename it, or move it to another folder."));
        }
        if self.files.is_empty() {
            let message = "this folder has no manifests: names of manifests end in .yaml, .yml or .json";
            let here = Problem::new(self.folder_object(), Reason::Ignored, message).fix(self.others());
            problems.push(here.in_file(listing_name(&self.dir), 0, 0));
        }
        problems
    }

    /// What lies there instead of manifests.
    fn others(&self) -> String {
        let entries = std::fs::read_dir(&self.dir).into_iter().flatten().flatten();
        let files = entries.filter(|it| it.file_type().is_ok_and(|kind| kind.is_file()));
        let names = files.filter_map(|it| it.file_name().into_string().ok());
        let mut names: Vec<String> = names.filter(|it| !it.starts_with('.')).collect();
        names.sort();
        match names.as_slice() {
            [] => "seaway init writes a first one.".to_owned(),
            [first, ..] => {
                let all: Vec<&str> = names.iter().take(LISTED).map(String::as_str).collect();
                let ends = [".yaml", ".yml", ".json"];
                let named = first.strip_suffix(".txt").filter(|it| ends.iter().any(|end| it.ends_with(end)));
                let named = named.map_or_else(|| format!("{first}.yaml"), str::to_owned);
                format!(
                    "The folder has {}. If one is a manifest, rename it, as in: mv {first} {named}",
                    all.join(", ")
                )
            }
        }
    }

    /// All that is wrong with an object, or with a file.
    pub(super) fn problems_of(&self, reference: &ObjectRef) -> Vec<Problem> {
        let files = self.accused.get(reference).into_iter().flatten();
        let told = files.filter_map(|file| self.files.get(file)?.problems.get(reference));
        let mut problems: Vec<Problem> = told.flatten().cloned().collect();
        let served = self.claims.served(reference);
        let is_kept = |it: &&mut Problem| matches!(it.reason, Reason::Invalid | Reason::BadAnnotation);
        for problem in problems.iter_mut().filter(is_kept) {
            if served.is_some_and(|it| it.kept) {
                add(
                    &mut problem.fix,
                    "The last good state of the object stays in use until this is corrected.",
                );
            }
        }
        let Some(served) = served else { return problems };
        // It is closed as it is written, and its last good state protects it.
        for problem in problems.iter_mut().filter(|_| served.kept) {
            if let Some(why) = problem.message.strip_suffix(UNTIL_CORRECTED) {
                problem.message = why.into();
                add(&mut problem.fix, "Its last good state stays in use until this is corrected.");
            }
        }
        let first = (self.shown(&served.file), line_of(&self.files, served));
        for rival in self.claims.other_sources(reference) {
            let (file, line) = (self.shown(&rival.file), line_of(&self.files, rival));
            let message = format!(
                "the same object is written twice: {}:{} and {file}:{line}; the one in {}:{} is served",
                first.0, first.1, first.0, first.1
            );
            problems.push(
                Problem::new(reference.clone(), Reason::Duplicate, message)
                    .fix("Remove one of the two.")
                    .in_file(file, line, 1),
            );
        }
        problems
    }

    /// The reference to the folder itself, for Problems with it as a whole.
    pub(super) fn folder_object(&self) -> ObjectRef {
        ObjectRef::new(Kind::Manifest, "", listing_name(&self.dir))
    }

    /// The folder is not there any more, or not for us to read.
    pub(super) fn set_missing(&mut self, error: &io::Error) -> Vec<Change> {
        self.away = true;
        let here = self.folder_object();
        let problem =
            Problem::new(here.clone(), Reason::Unreadable, format!("the folder cannot be read: {error}"))
                .fix("The last good state of the folder is served until the folder can be read again.")
                .in_file(listing_name(&self.dir), 0, 0);
        self.report(here, vec![problem])
    }
}

fn listing_name(dir: &std::path::Path) -> Name {
    super::listing::key(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_located_at_the_object_that_is_to_be_corrected_whatever_its_words() {
        let object = |kind, name| ObjectRef::new(kind, "default", name);
        let problem =
            Problem::new(object(Kind::Service, "web"), Reason::NoSuchPort, "in other words").at("spec");
        assert_eq!(subject(&problem), (object(Kind::Service, "web"), "spec".into()));
        let slice = object(Kind::EndpointSlice, "web-1");
        let of_slice = problem.clone().about(ProblemDetail::Field(slice.clone(), "ports".into()));
        assert_eq!(subject(&of_slice), (slice.clone(), "ports".into()));
        // What does not exist has no place.
        let missing = problem.about(ProblemDetail::Missing(slice));
        assert_eq!(subject(&missing), (object(Kind::Service, "web"), "spec".into()));
    }
}
