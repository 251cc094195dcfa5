//! `pools`: addresses of pools in a cluster.

use seaway_manifests::decode::Field;

use super::Settings;

pub(super) fn read(field: &Field<'_>, settings: &mut Settings) {
    let section = field.object();
    if let Some(grace) = section.take("grace").duration() {
        settings.config.pools.grace = grace;
    }
    if let Some(namespace) = section.take("metallbNamespace").name() {
        settings.metallb = namespace.into();
    }
    if let Some(most) = section.take("perNamespace").integer_within(0, u32::MAX.into()) {
        settings.said.per_namespace = true;
        settings.config.pools.per_namespace = Some(most).filter(|it| *it > 0);
    }
    section.finish();
}

#[cfg(test)]
mod tests {
    use std::{path::Path, time::Duration};

    use super::super::parse;

    #[test]
    fn the_grace_period_and_the_namespace_of_metallb_are_read() {
        let read = |text| parse(text, Path::new("")).expect("it is right");
        let settings = read("pools: {grace: 1h, metallbNamespace: metallb}");
        assert_eq!((settings.config.pools.grace, &*settings.metallb), (Duration::from_secs(3600), "metallb"));
        assert!(!settings.config.pools.cluster, "a file does not say where it is used");
        let told = parse("pools: {grace: soon, metallb: x}", Path::new("")).expect_err("it is wrong");
        assert_eq!(told.len(), 2, "{told:?}");
    }
}
