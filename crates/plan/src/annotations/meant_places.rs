//! Where at the front door a Service was probably to be, of which the annotations for that are not understood. If it protects itself,
//! these places answer 503: a broader host name or path would serve its requests without its protection. What is understood of any
//! Service or route comes before such a guess.

use seaway_model::{
    Name, Problem,
    fact::{Labels, Service},
    load_balancer::HostPattern,
};

use super::{
    HOST, OURS, PATH, ServiceOptions,
    meant::{kebab, meant},
    other_name,
    protecting::{leaves_front_door, of_ours},
    rows,
};
use crate::{guarded, http, quantity::list};

/// Beside what is understood.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct MeantPlaces {
    hosts: Vec<HostPattern>,
    placed: Vec<(HostPattern, Name)>,
    paths: Vec<Name>,
    /// Of something that is written it is not known which place it means.
    is_unknown: bool,
}

impl ServiceOptions {
    /// The places that were probably meant, without those that are understood.
    fn meant_places(&self, annotations: &Labels) -> MeantPlaces {
        let mut places = MeantPlaces::default();
        for (key, text) in annotations {
            let Some(option) = option_of(key).filter(|it| !self.written.contains_key(it)) else { continue };
            let entries = list(text, |it| Ok(it.to_owned())).unwrap_or_default();
            places.is_unknown |= entries.is_empty();
            for entry in entries {
                places.add(key, option, &entry);
            }
        }
        let http = &self.http;
        places.is_unknown |= places.is_empty() && self.understood_places().is_empty();
        places.hosts.retain(|it| !http.hosts.contains(it));
        places.placed.retain(|it| !http.placed.contains(it));
        places.paths.retain(|it| !http.paths.contains(it));
        places
    }

    fn understood_places(&self) -> MeantPlaces {
        let http = &self.http;
        let (hosts, placed, paths) = (http.hosts.clone(), http.placed.clone(), http.paths.clone());
        MeantPlaces { hosts, placed, paths, is_unknown: false }
    }

    /// The same options with nothing but places that were probably meant. Nothing, unless the Service protects itself and is not kept
    /// out.
    pub(crate) fn guessed_places(&self, service: &Service) -> Option<ServiceOptions> {
        let http = &self.http;
        let is_one = http.place_unclear && http.front_door != Some(false);
        if !is_one || !guarded::is_protected(service, self) {
            return None;
        }
        let MeantPlaces { hosts, placed, paths, .. } = self.meant_places(&service.meta.annotations);
        let mut guessed = self.clone();
        (guessed.http.hosts, guessed.http.placed, guessed.http.paths) = (hosts, placed, paths);
        Some(guessed)
    }

    /// Takes them beside those that are understood.
    pub(crate) fn take_meant_places(&mut self, service: &Service) {
        let Some(ServiceOptions { http: guessed, .. }) = self.guessed_places(service) else { return };
        self.http.hosts.extend(guessed.hosts);
        self.http.placed.extend(guessed.placed);
        self.http.paths.extend(guessed.paths);
    }

    /// Says what follows for requests that are meant for the Service.
    pub(super) fn name_meant_places(&self, service: &Service, problems: &mut [Problem]) {
        if self.guessed_places(service).is_none() {
            return;
        }
        let guessed = self.meant_places(&service.meta.annotations);
        let all: Vec<String> = self.understood_places().listed().chain(guessed.listed()).collect();
        let mut then = String::new();
        if !all.is_empty() {
            then = format!(", and answers 503 at {}", all.join(", "));
        }
        if !guessed.is_empty() {
            then.push_str(", unless another Service or HTTPRoute has the same host name and path");
        }
        if guessed.is_unknown {
            then.push_str(
                "; a broader host name or path may serve requests that are meant for it, without its protection",
            );
        }
        for problem in problems.iter_mut().filter(|it| leaves_front_door(it)) {
            problem.message.push_str(&then);
        }
    }
}

impl MeantPlaces {
    fn add(&mut self, key: &str, option: &str, text: &str) {
        let is_word = option == PATH && !text.contains(['/', '.', ':', ' ']);
        let meant = match is_word {
            // A word is the first part of a path, if anything says that it is one.
            true if is_path(key) => http::path(&format!("/{text}")).ok().map(|it| (None, Some(it))),
            true => None,
            false => http::meant_place(text),
        };
        match meant {
            Some((Some(host), None)) => self.hosts.push(host),
            Some((Some(host), Some(path))) => self.placed.push((host, path)),
            // All paths of all host names are not taken from others by guess.
            Some((None, Some(path))) if *path != *"/" => self.paths.push(path),
            Some(_) | None => self.is_unknown = true,
        }
    }

    fn is_empty(&self) -> bool {
        self.hosts.is_empty() && self.placed.is_empty() && self.paths.is_empty()
    }

    fn listed(&self) -> impl Iterator<Item = String> {
        let hosts = self.hosts.iter().map(ToString::to_string);
        let placed = self.placed.iter().map(|(host, path)| format!("{host}{path}"));
        hosts.chain(placed).chain(self.paths.iter().map(ToString::to_string))
    }
}

/// [`HOST`] or [`PATH`], if that is what a name says, or is misspelt for.
pub fn option_of(key: &str) -> Option<&'static str> {
    let known = rows().find(|row| row.names.contains(&key)).map(|row| row.name());
    let misspelt = || meant(&name_in(key)?).ours;
    known.or_else(misspelt).filter(|it| [HOST, PATH].contains(it))
}

/// Whether a key of [`PATH`] is that one, or misspelt for it, rather than a word that other programs have for it.
fn is_path(key: &str) -> bool {
    key == PATH || name_in(key).is_some_and(|name| other_name(&kebab(&name)).is_none())
}

/// What follows our prefix, or one that is nearly ours.
fn name_in(key: &str) -> Option<String> {
    let near = of_ours(key);
    near.as_deref().unwrap_or(key).strip_prefix(OURS).map(str::to_owned)
}
