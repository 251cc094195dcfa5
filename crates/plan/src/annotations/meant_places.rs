//! Where at the front door a Service was probably to be, of which the annotations for that are not understood. If it protects itself,
//! these places are kept for it: a broader host name or path would serve its requests without its protection.

use seaway_model::{
    Name, Problem,
    fact::{Labels, Service},
    load_balancer::HostPattern,
};

use super::{
    HOST, OURS, PATH, ServiceOptions,
    meant::meant,
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
    /// The places that a Service has by its annotations, and those that were probably meant.
    fn meant_places(&self, annotations: &Labels) -> MeantPlaces {
        let http = &self.http;
        let (hosts, placed, paths) = (http.hosts.clone(), http.placed.clone(), http.paths.clone());
        let mut places = MeantPlaces { hosts, placed, paths, is_unknown: false };
        for (key, text) in annotations {
            let Some(option) = option_of(key).filter(|it| !self.written.contains_key(it)) else { continue };
            let entries = list(text, |it| Ok(it.to_owned())).unwrap_or_default();
            places.is_unknown |= entries.is_empty();
            for entry in entries {
                places.add(option, &entry);
            }
        }
        places.is_unknown |= places.is_empty();
        places
    }

    /// The same in the place of what is not understood, if the Service protects itself and is not kept out.
    pub(crate) fn take_meant_places(&mut self, service: &Service) -> bool {
        let http = &self.http;
        let is_one = http.place_unclear && http.front_door != Some(false);
        if !is_one || !guarded::is_protected(service, self) {
            return false;
        }
        let MeantPlaces { hosts, placed, paths, .. } = self.meant_places(&service.meta.annotations);
        (self.http.hosts, self.http.placed, self.http.paths) = (hosts, placed, paths);
        true
    }

    /// Says what follows for requests that are meant for the Service.
    pub(super) fn name_meant_places(&self, service: &Service, problems: &mut [Problem]) {
        let mut taken = self.clone();
        if !taken.take_meant_places(service) {
            return;
        }
        let places = self.meant_places(&service.meta.annotations);
        let mut then = String::new();
        if !places.is_empty() {
            then = format!(", and answers 503 at {}", places.listed());
        }
        if places.is_unknown {
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
    fn add(&mut self, option: &str, text: &str) {
        let is_plain = option == PATH && !text.contains(['/', '.', ':', ' ']);
        let path = is_plain.then(|| http::path(&format!("/{text}")).ok()).flatten();
        match path.map(|it| (None, Some(it))).or_else(|| http::meant_place(text)) {
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

    fn listed(&self) -> String {
        let hosts = self.hosts.iter().map(ToString::to_string);
        let placed = self.placed.iter().map(|(host, path)| format!("{host}{path}"));
        let all: Vec<String> =
            hosts.chain(placed).chain(self.paths.iter().map(ToString::to_string)).collect();
        all.join(", ")
    }
}

/// [`HOST`] or [`PATH`], if that is what a name says, or is misspelt for.
fn option_of(key: &str) -> Option<&'static str> {
    let known = rows().find(|row| row.names.contains(&key)).map(|row| row.name());
    let misspelt = || {
        let near = of_ours(key);
        meant(near.as_deref().unwrap_or(key).strip_prefix(OURS)?).ours
    };
    known.or_else(misspelt).filter(|it| [HOST, PATH].contains(it))
}
