//! `adopt`: which load balancers of another controller are adopted, and how fast.

use seaway_manifests::{decode::Field, tree::Value};
use seaway_model::{
    Name,
    config::{AdoptMode, AdoptionConfig, AdoptionSelector},
};

pub(super) fn read(field: &Field<'_>) -> AdoptionConfig {
    let section = field.object();
    let modes = [("observe", AdoptMode::Observe), ("ask", AdoptMode::Ask), ("all", AdoptMode::All)];
    let mode = section.take("mode").one_of(&modes);
    let adopt = AdoptionConfig {
        mode: mode.unwrap_or_default(),
        // What another controller published is taken over only by a word.
        native: mode.unwrap_or(AdoptMode::Observe),
        only: canary(&section.take("only")),
        per_minute: section.take("perMinute").integer_within(1, 100_000),
        stop_after: section.take("stopAfter").integer_within(1, 100_000),
        beside_occm: section.take("besideOccm").bool().unwrap_or(false),
    };
    section.finish();
    adopt
}

/// A list that is there and empty would choose every Service, which is not what its author meant.
fn canary(field: &Field<'_>) -> AdoptionSelector {
    let section = field.object();
    let (namespaces, labels, names) =
        (section.take("namespaces"), section.take("labels"), section.take("names"));
    for list in [&namespaces, &labels, &names] {
        let is_empty = match list.node().map(|it| &it.value) {
            Some(Value::List(items)) => items.is_empty(),
            Some(Value::Map(entries)) => entries.is_empty(),
            _ => false,
        };
        if is_empty {
            list.required("leave it out to choose every Service");
        }
    }
    let pair = |item: Field<'_>| {
        let text = item.name()?;
        let pair = text.split_once('/').filter(|(namespace, name)| !namespace.is_empty() && !name.is_empty());
        if pair.is_none() {
            item.invalid(text, "must be NAMESPACE/NAME");
        }
        pair.map(|(namespace, name)| (Name::from(namespace), Name::from(name)))
    };
    let canary = AdoptionSelector {
        namespaces: namespaces.texts().into_iter().map(Name::from).collect(),
        labels: labels
            .entries()
            .filter_map(|(key, value)| Some((key.into(), value.text()?.into())))
            .collect(),
        names: names.items().filter_map(pair).collect(),
    };
    section.finish();
    canary
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{super::parse, *};

    fn adopt(text: &str) -> AdoptionConfig {
        parse(text, Path::new("")).expect("it is right").config.adopt
    }

    fn faults(text: &str) -> Vec<String> {
        let faults = parse(text, Path::new("")).expect_err("it is wrong");
        faults.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn what_is_adopted_is_read_and_all_is_the_default() {
        assert_eq!(adopt("{}"), AdoptionConfig::default());
        assert!(adopt("adopt: {mode: all}").is_open());
        let read = adopt(
            "adopt: {mode: ask, perMinute: 5, stopAfter: 3, besideOccm: true, \
             only: {namespaces: [shop], labels: {tier: test}, names: [shop/web]}}",
        );
        let only = AdoptionSelector {
            namespaces: vec!["shop".into()],
            labels: [("tier".into(), "test".into())].into(),
            names: vec![("shop".into(), "web".into())],
        };
        let mode = AdoptMode::Ask;
        assert_eq!(adopt("adopt: {perMinute: 5}").native, AdoptMode::Observe);
        assert_eq!(
            read,
            AdoptionConfig {
                mode,
                native: mode,
                only,
                per_minute: Some(5),
                stop_after: Some(3),
                beside_occm: true
            }
        );
    }

    #[test]
    fn a_choice_that_is_empty_or_half_written_is_refused() {
        for (text, field) in [
            ("adopt: {mode: some}", "adopt.mode"),
            ("adopt: {perMinute: 0}", "adopt.perMinute"),
            ("adopt: {stopAfter: -1}", "adopt.stopAfter"),
            ("adopt: {only: {namespaces: []}}", "adopt.only.namespaces"),
            ("adopt: {only: {labels: {}}}", "adopt.only.labels"),
            ("adopt: {only: {names: []}}", "adopt.only.names"),
            ("adopt: {only: {names: [web]}}", "adopt.only.names[0]"),
            ("adopt: {only: {name: web}}", "adopt.only.name"),
        ] {
            let told = faults(text);
            assert!(told.len() == 1 && told[0].starts_with(&format!("{field}: ")), "{text}: {told:?}");
        }
    }
}
