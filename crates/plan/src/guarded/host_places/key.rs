//! Host names and paths as keys: what is below a path is one range, and what is above it is found by taking segments away, as the
//! wildcards above a host name by taking labels away.

use std::{
    collections::BTreeMap,
    ops::Bound::{Included, Unbounded},
};

use seaway_model::{Name, load_balancer::HostPattern};

/// Entries by host and path.
pub(super) type Tree<V> = BTreeMap<Name, BTreeMap<Name, V>>;

/// Of what has no host name: each that is another's comes before it, so it stands beside them, and covers none.
pub(super) const ALL_HOSTS: &str = "";

/// Of a longer path only its beginning counts: no client asks for so many, and each is a look-up of its own.
const MOST_SEGMENTS: usize = 64;

/// `example.shop.` for `shop.example`, and `example.*` for `*.example`: what is below a wildcard stands together.
pub(super) fn by_labels(host: &HostPattern) -> Name {
    let (name, end) = match host {
        HostPattern::Exact(name) => (name, ""),
        HostPattern::Under(name) => (name, "*"),
    };
    let mut labels: String = name.rsplit('.').flat_map(|it| [it, "."]).collect();
    labels.push_str(end);
    labels.into()
}

/// With a slash at its end, so that `/admin/` begins what is below it, and not `/administrator/`.
pub(super) fn slashed(path: &str) -> Name {
    let path = path.trim_end_matches('/');
    let end = path.match_indices('/').nth(MOST_SEGMENTS).map_or(path.len(), |(at, _)| at);
    format!("{}/", path.get(..end).unwrap_or(path)).into()
}

/// `shop.example/admin`, of both keys.
pub(super) fn readable(host: &str, path: &str) -> String {
    if host == ALL_HOSTS {
        return format!("{} of all host names", if path == "/" { path } else { path.trim_end_matches('/') });
    }
    let labels: Vec<&str> = host.trim_end_matches('.').rsplit('.').collect();
    format!("{}{}", labels.join("."), path.trim_end_matches('/'))
}

/// The host name itself, and the wildcards above it.
pub(super) fn covering(host: &str) -> impl Iterator<Item = String> {
    let above = host.match_indices('.').filter_map(move |(at, _)| {
        let (labels, rest) = host.split_at_checked(at.saturating_add(1))?;
        (!matches!(rest, "" | "*")).then(|| format!("{labels}*"))
    });
    [host.to_owned()].into_iter().chain(above)
}

/// The path itself and those above it, from the top.
pub(super) fn prefixes(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').filter_map(|(at, _)| path.get(..=at))
}

/// The path itself, and all below it.
pub(super) fn below<'t, V>(
    paths: &'t BTreeMap<Name, V>,
    path: &'t str,
) -> impl Iterator<Item = (&'t Name, &'t V)> {
    let all = paths.range::<str, _>((Included(path), Unbounded));
    all.take_while(move |(it, _)| it.starts_with(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_covers_what_is_below_it_and_nothing_else() {
        let exact = |name: &str| HostPattern::Exact(name.into());
        let under = |name: &str| HostPattern::Under(name.into());
        let hosts = [
            exact("a.b.example"),
            exact("b.example"),
            exact("xb.example"),
            under("b.example"),
            under("example"),
        ];
        for (host, expected) in [
            (exact("b.example"), vec!["b.example"]),
            (under("b.example"), vec!["a.b.example", "*.b.example"]),
            (under("example"), vec!["a.b.example", "b.example", "xb.example", "*.b.example", "*.example"]),
            (exact("example"), vec![]),
        ] {
            let above = by_labels(&host);
            let is_within = |it: &&HostPattern| covering(&by_labels(it)).any(|it| *it == *above);
            let found: Vec<String> =
                hosts.iter().filter(is_within).map(|it| readable(&by_labels(it), "/")).collect();
            assert_eq!(found, expected, "{host}");
        }
    }

    #[test]
    fn a_path_is_above_its_segments_and_nothing_else() {
        for (path, expected) in [
            ("", vec!["/"]),
            ("/", vec!["/"]),
            ("/a", vec!["/", "/a/"]),
            ("/a/b/", vec!["/", "/a/", "/a/b/"]),
        ] {
            assert_eq!(prefixes(&slashed(path)).collect::<Vec<_>>(), expected, "{path}");
        }
        let paths: BTreeMap<Name, ()> =
            ["/", "/a", "/a/b", "/a-b", "/ab", "/a0"].map(|it| (slashed(it), ())).into();
        let of = |path: &str| below(&paths, path).map(|(it, ())| it.to_string()).collect::<Vec<_>>();
        assert_eq!(of("/a/"), ["/a/", "/a/b/"]);
        assert_eq!(of("/").len(), 6);
        let long = "/a".repeat(MOST_SEGMENTS + 9);
        assert_eq!(prefixes(&slashed(&long)).count(), MOST_SEGMENTS + 1);
    }
}
