//! `--controllers`, as cloud controller managers read it: the first word for a controller decides, `*` is for those that no word names.

use std::{fmt, str::FromStr};

/// Which run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Controllers {
    pub(crate) service: bool,
    pub(crate) cloud_node: bool,
    pub(crate) cloud_node_lifecycle: bool,
    pub(crate) route: bool,
}

impl Default for Controllers {
    fn default() -> Controllers {
        Controllers { service: true, cloud_node: false, cloud_node_lifecycle: false, route: false }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ControllerKind {
    Service,
    Node,
    Lifecycle,
    Route,
}

/// Their short names, and their long ones.
const NAMES: [(&str, &str, ControllerKind); 4] = [
    ("service", "service-lb-controller", ControllerKind::Service),
    ("cloud-node", "cloud-node-controller", ControllerKind::Node),
    ("cloud-node-lifecycle", "cloud-node-lifecycle-controller", ControllerKind::Lifecycle),
    ("route", "node-route-controller", ControllerKind::Route),
];

impl Controllers {
    pub(crate) fn follows_nodes(self) -> bool {
        self.cloud_node || self.cloud_node_lifecycle
    }

    /// Whether one runs that needs a cloud.
    pub(crate) fn needs_cloud(self) -> bool {
        self.follows_nodes() || self.route
    }
}

impl FromStr for Controllers {
    type Err = String;

    fn from_str(text: &str) -> Result<Controllers, String> {
        let words: Vec<&str> = text.split(',').map(str::trim).filter(|it| !it.is_empty()).collect();
        let all = words.contains(&"*");
        let mut said = Vec::new();
        for word in words.into_iter().filter(|it| *it != "*") {
            let (name, on) = word.strip_prefix('-').map_or((word, true), |it| (it, false));
            let found = NAMES.iter().find(|(short, long, _)| name == *short || name == *long);
            let Some((.., which)) = found else {
                let known: Vec<&str> = NAMES.iter().map(|it| it.0).collect();
                return Err(format!(
                    "no controller is called {name:?}; the controllers are {}",
                    known.join(", ")
                ));
            };
            said.push((*which, on));
        }
        let runs = |which| said.iter().find(|it| it.0 == which).map_or(all, |it| it.1);
        let found = Controllers {
            service: runs(ControllerKind::Service),
            cloud_node: runs(ControllerKind::Node),
            cloud_node_lifecycle: runs(ControllerKind::Lifecycle),
            route: runs(ControllerKind::Route),
        };
        match found.service || found.needs_cloud() {
            true => Ok(found),
            false => Err("no controller would run".to_owned()),
        }
    }
}

impl fmt::Display for Controllers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = [self.service, self.cloud_node, self.cloud_node_lifecycle, self.route];
        let named = NAMES.iter().zip(all).filter(|(_, runs)| *runs).map(|(name, _)| name.0);
        f.write_str(&named.collect::<Vec<_>>().join(","))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_are_those_of_cloud_controller_managers() {
        for (text, runs) in [
            ("service", "service"),
            ("*", "service,cloud-node,cloud-node-lifecycle,route"),
            ("*,-service", "cloud-node,cloud-node-lifecycle,route"),
            ("-service,*", "cloud-node,cloud-node-lifecycle,route"),
            ("route", "route"),
            ("service,node-route-controller", "service,route"),
            ("*,-route", "service,cloud-node,cloud-node-lifecycle"),
            ("cloud-node-controller, cloud-node-lifecycle-controller", "cloud-node,cloud-node-lifecycle"),
            ("service-lb-controller,cloud-node", "service,cloud-node"),
            // The first word for a controller decides.
            ("service,cloud-node,-service", "service,cloud-node"),
            ("-service,service,cloud-node", "cloud-node"),
        ] {
            assert_eq!(text.parse::<Controllers>().map(|it| it.to_string()).as_deref(), Ok(runs), "{text}");
        }
        assert_eq!("service".parse(), Ok(Controllers::default()));
        for (text, why) in [
            ("nodes", "no controller is called \"nodes\""),
            ("-service", "no controller would run"),
            ("", "no controller would run"),
        ] {
            assert!(text.parse::<Controllers>().is_err_and(|it| it.contains(why)), "{text}");
        }
    }
}
