//! Scripts: text files in which what is sent (`>`) was written by hand, and what came back (`<`) was recorded.

use std::{mem, path::Path};

use anyhow::{Context, Result, bail, ensure};

/// A file: steps, with the comments between them.
#[derive(Debug, Default)]
pub(crate) struct Script {
    pub(crate) name: String,
    /// No real cloud says this any more.
    pub(crate) only_fake: bool,
    pub(crate) parts: Vec<Part>,
}

#[derive(Debug)]
pub(crate) enum Part {
    /// Comments and empty lines, kept as they are.
    Words(String),
    Step(Box<Step>),
}

#[derive(Debug, Default)]
pub(crate) struct Step {
    /// As it stands in the file, without the marks.
    pub(crate) sent: Vec<String>,
    pub(crate) recorded: Vec<String>,
    pub(crate) action: Action,
    /// Who asks: `member`, `admin`, `other`, `nobody`, or a token in braces.
    pub(crate) who: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) keeps: Vec<(String, String)>,
    /// The parts of the body that are told; all, if none are named; nothing, for `only status`.
    pub(crate) only: Option<Vec<String>>,
    /// A list whose order is promised.
    pub(crate) in_order: bool,
    pub(crate) until: Option<(String, String)>,
}

#[derive(Debug, Default)]
pub(crate) enum Action {
    #[default]
    Nothing,
    Request {
        method: String,
        service: String,
        path: String,
        body: String,
    },
    /// What no API can do: `settles`, `breaks pool {pool}`.
    Operator(String),
    /// Another script, of which only what it keeps counts.
    Prelude(String),
    /// Until nothing is pending at a load balancer.
    Ready(String),
}

/// The first line of a script that only the fake can play.
const ONLY_FAKE: &str = "# Only the fake:";

impl Script {
    pub(crate) fn read(path: &Path) -> Result<Script> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let name = path.file_stem().and_then(|it| it.to_str()).context("a file's name")?;
        Script::parse(name, &text).with_context(|| path.display().to_string())
    }

    pub(crate) fn parse(name: &str, text: &str) -> Result<Script> {
        let mut script =
            Script { name: name.to_owned(), only_fake: text.starts_with(ONLY_FAKE), ..Script::default() };
        let mut step = Step::default();
        for (line, number) in text.lines().zip(1..) {
            if let Some(sent) = line.strip_prefix('>') {
                if !step.recorded.is_empty() {
                    script.end(mem::take(&mut step));
                }
                step.sent.push(sent.strip_prefix(' ').unwrap_or(sent).to_owned());
                step.parse().with_context(|| format!("line {number}: {line}"))?;
            } else if let Some(recorded) = line.strip_prefix('<') {
                step.recorded.push(recorded.strip_prefix(' ').unwrap_or(recorded).to_owned());
            } else {
                script.end(mem::take(&mut step));
                script.words(line);
            }
        }
        script.end(step);
        Ok(script)
    }

    /// All that is sent, as text: an address that stands in it was not chosen by the cloud.
    pub(crate) fn said(&self) -> String {
        let steps =
            self.parts.iter().filter_map(|it| if let Part::Step(step) = it { Some(step) } else { None });
        steps.flat_map(|step| step.sent.iter().map(|it| it.clone() + "\n")).collect()
    }

    fn end(&mut self, step: Step) {
        if !step.sent.is_empty() {
            self.parts.push(Part::Step(Box::new(step)));
        }
    }

    fn words(&mut self, line: &str) {
        if let Some(Part::Words(words)) = self.parts.last_mut() {
            *words += line;
            *words += "\n";
        } else {
            self.parts.push(Part::Words(format!("{line}\n")));
        }
    }
}

impl Step {
    /// Understands the line that came last.
    fn parse(&mut self) -> Result<()> {
        let line = self.sent.last().context("a line")?;
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match word {
            "GET" | "POST" | "PUT" | "DELETE" | "PATCH" | "HEAD" => {
                let (service, path) = rest.split_once(' ').context("a service and a path")?;
                let (method, service, path) = (word.to_owned(), service.to_owned(), path.to_owned());
                self.action = Action::Request { method, service, path, body: String::new() };
            }
            "as" => self.who = rest.to_owned(),
            "header" => {
                let (name, value) = rest.split_once(": ").context("a name and a value")?;
                self.headers.push((name.to_owned(), value.to_owned()));
            }
            "keep" => {
                let (name, place) = rest.split_once(' ').context("a name and a place")?;
                self.keeps.push((name.to_owned(), place.to_owned()));
            }
            "only" if rest == "status" => self.only = Some(Vec::new()),
            "only" => self.only = Some(rest.split(' ').map(str::to_owned).collect()),
            "in" => {
                ensure!(rest == "order", "in order, or nothing");
                self.in_order = true;
            }
            "until" if rest == "gone" => self.until = Some(("state".to_owned(), "404".to_owned())),
            "until" => {
                let (place, value) = rest.split_once(' ').context("a place and a value")?;
                self.until = Some((place.to_owned(), value.to_owned()));
            }
            "operator" => self.action = Action::Operator(rest.to_owned()),
            "prelude" => self.action = Action::Prelude(rest.to_owned()),
            "ready" => self.action = Action::Ready(rest.to_owned()),
            _ => match &mut self.action {
                Action::Request { body, .. } => {
                    *body += line;
                    *body += "\n";
                }
                _ => bail!("a body before its request"),
            },
        }
        Ok(())
    }
}
