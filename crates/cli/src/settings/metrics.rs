//! `admin.metrics`: metrics of a part of a cluster, by TLS, for those whom the API server lets get them.

use std::{
    net::{Ipv6Addr, SocketAddr},
    path::{Path, PathBuf},
};

use seaway_manifests::decode::Field;

use super::sockets;

/// Where nothing else is said.
const PORT: u16 = 19362;

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Metrics {
    pub(crate) listen: Vec<SocketAddr>,
    /// The certificate and its key; else one is made at each start.
    pub(crate) files: Option<(PathBuf, PathBuf)>,
}

pub(super) fn read(field: &Field<'_>, beside: &Path) -> Option<Metrics> {
    if !field.is_set() {
        return None;
    }
    let section = field.object();
    let listen = section.take("listen");
    let (cert, key) = (section.take("cert"), section.take("key"));
    let files = match (cert.name(), key.name()) {
        (Some(cert), Some(key)) => Some((beside.join(cert), beside.join(key))),
        (Some(_), None) => {
            key.required("the key of `cert`");
            None
        }
        (None, Some(_)) => {
            cert.required("the certificate of `key`");
            None
        }
        (None, None) => None,
    };
    let listen = match listen.is_set() {
        true => sockets(&listen, PORT),
        false => vec![(Ipv6Addr::UNSPECIFIED, PORT).into()],
    };
    section.finish();
    Some(Metrics { listen, files })
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    fn metrics(text: &str) -> Option<Metrics> {
        parse(text, Path::new("/etc/seaway")).expect("it is right").metrics
    }

    #[test]
    fn metrics_are_shown_where_and_by_which_certificate_it_is_said() {
        assert_eq!(metrics("admin: {listen: [127.0.0.1]}"), None);
        let all = metrics("admin: {metrics: {}}").expect("they are shown");
        assert_eq!((all.listen, all.files), (vec!["[::]:19362".parse().unwrap()], None));
        let said =
            metrics("admin: {metrics: {listen: ['192.0.2.1', '192.0.2.2:99'], cert: a.crt, key: a.key}}");
        let said = said.expect("they are shown");
        let at: Vec<String> = said.listen.iter().map(ToString::to_string).collect();
        assert_eq!(at, ["192.0.2.1:19362", "192.0.2.2:99"]);
        assert_eq!(said.files, Some(("/etc/seaway/a.crt".into(), "/etc/seaway/a.key".into())));
        for (text, field) in [("cert: a", "admin.metrics.key"), ("key: a", "admin.metrics.cert")] {
            let faults = parse(&format!("admin: {{metrics: {{{text}}}}}"), Path::new("")).expect_err("wrong");
            assert!(faults[0].to_string().starts_with(field), "{}", faults[0]);
        }
    }
}
