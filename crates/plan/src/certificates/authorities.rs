//! Certificates of authorities that objects are named for: what is said where they can verify nobody, and of Secrets that the
//! configuration names in vain.

use seaway_model::{
    Kind, Name, ObjectRef, Problem, ProblemDetail, Reason, config::FrontDoorTls, load_balancer::ClientAuth,
};

use super::{Certificates, Entry};

const CLIENTS: &str = "frontDoor.tls.clients.secret";

impl Certificates {
    /// Whether there is somebody to vouch for the certificates of clients.
    pub(crate) fn vouches(&self, object: &ObjectRef) -> bool {
        self.held(object).is_some_and(|it| !it.authorities.is_empty())
    }

    /// What is wrong with the authorities of clients that `owner` names at `field`. `closed`: what follows for it where there are none.
    pub(crate) fn problem_of_clients(
        &self,
        (owner, field): (&ObjectRef, Name),
        authorities: &ObjectRef,
        closed: &str,
    ) -> Option<Problem> {
        let known = self.known.get(authorities);
        let problem = |reason, why: String| {
            let what = format!("{why}, so no client certificate can be verified");
            let fix =
                "Write the certificate of the CA that signs the certificates of clients into ca.crt, as PEM.";
            Problem::new(owner.clone(), reason, what).at(field).fix(fix)
        };
        if self.vouches(authorities) {
            let is_of_a_ca = known.and_then(|it| it.held.as_ref()).is_none_or(|it| it.has_ca);
            let why = format!(
                "ca.crt of {authorities} holds a certificate of a client or a server, and none of a CA"
            );
            return (!is_of_a_ca).then(|| problem(Reason::BadCertificate, why));
        }
        let broken = known.and_then(|it| it.broken.as_ref()).filter(|it| it.reason == Reason::BadCertificate);
        let problem = match broken {
            Some(broken) => problem(
                Reason::BadCertificate,
                format!("ca.crt of {authorities} cannot be used ({})", broken.message),
            ),
            None => problem(Reason::NoSuchSecret, format!("{authorities} has no ca.crt"))
                .about(ProblemDetail::Missing(authorities.clone())),
        };
        Some(Problem { message: problem.message.clone() + closed, ..problem })
    }

    /// Secrets that the configuration names in vain. Files that cannot be read are told by who reads them.
    pub(crate) fn missing(&self, settings: &FrontDoorTls, door: &ObjectRef) -> Vec<Problem> {
        let pair = |it: &ObjectRef| self.known.get(it).is_some_and(Entry::is_pair) || self.not_known_yet(it);
        let named = settings.certificates.iter().enumerate();
        let missing = named.filter(|(_, it)| it.kind == Kind::Secret && !pair(it));
        let problem = |(index, object): (usize, &ObjectRef)| {
            let problem =
                Problem::new(door.clone(), Reason::NoSuchSecret, format!("{object} has no certificate"));
            problem
                .about(ProblemDetail::Missing(object.clone()))
                .at(format!("frontDoor.certificates[{index}].secret"))
                .fix("Write the Secret, or name another.")
        };
        let mut problems: Vec<Problem> = missing.map(problem).collect();
        let clients = settings.terms.clients.iter();
        problems.extend(clients.filter_map(|it| self.missing_authorities(it, door)));
        problems
    }

    fn missing_authorities(&self, clients: &ClientAuth, door: &ObjectRef) -> Option<Problem> {
        let object = &clients.authorities;
        let is_secret = object.kind == Kind::Secret;
        if is_secret && self.not_known_yet(object) || !is_secret && !self.vouches(object) {
            return None;
        }
        let field = if is_secret { CLIENTS } else { "frontDoor.tls.clients.authorities" };
        self.problem_of_clients((door, field.into()), object, ": no client is served")
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
    use seaway_model::fact::Secret;

    use super::{
        super::{pem, tests::secret, x509},
        *,
    };

    fn params(name: &str) -> CertificateParams {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params
    }

    /// A CA, a certificate that it signed, and one that signed itself and is no CA.
    fn made() -> [String; 3] {
        let (key, other, own) = (
            KeyPair::generate().expect("a key"),
            KeyPair::generate().expect("a key"),
            KeyPair::generate().expect("a key"),
        );
        let mut ca = params("ca");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = ca.self_signed(&key).expect("signed").pem();
        let issuer = Issuer::new(ca, key);
        let leaf = params("leaf").signed_by(&other, &issuer).expect("signed").pem();
        [authority, leaf, params("own").self_signed(&own).expect("signed").pem()]
    }

    #[test]
    fn who_signs_others_is_read_of_a_certificate() {
        let [authority, leaf, own] = made();
        for (text, expected) in [(&authority, Some(true)), (&leaf, Some(false)), (&own, Some(true))] {
            let bytes = pem::certificates(text).next().flatten().expect("PEM");
            assert_eq!(x509::signs(&bytes), expected, "{text}");
            assert_eq!(x509::signs(&bytes[..bytes.len() / 2]), None);
        }
    }

    /// An intermediate of a public CA would let in all that have a certificate of it.
    #[test]
    fn authorities_in_the_file_of_a_certificate_are_used_only_where_they_signed_themselves() {
        let (root_key, middle_key, leaf_key) = (
            KeyPair::generate().expect("a key"),
            KeyPair::generate().expect("a key"),
            KeyPair::generate().expect("a key"),
        );
        let authority = |name: &str| {
            let mut params = params(name);
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            params
        };
        let root = authority("root").self_signed(&root_key).expect("signed").pem();
        let root_issuer = Issuer::new(authority("root"), root_key);
        let middle = authority("middle").signed_by(&middle_key, &root_issuer).expect("signed").pem();
        let issuer = Issuer::new(authority("middle"), middle_key);
        let leaf = params("leaf").signed_by(&leaf_key, &issuer).expect("signed").pem();
        let key = leaf_key.serialize_pem();
        for (kind, chain, is_used) in [
            (Kind::File, format!("{leaf}{middle}{key}"), false),
            (Kind::File, format!("{leaf}{middle}{root}{key}"), false),
            (Kind::File, format!("{leaf}{key}{root}"), true),
            (Kind::File, format!("{leaf}{key}"), true),
            // Whoever writes a Secret writes its ca.crt for this.
            (Kind::Secret, format!("{leaf}{middle}{key}"), true),
        ] {
            let mut certificates = Certificates::default();
            let parts = [("tls.crt", &*chain), ("tls.key", &*chain), ("ca.crt", &*chain)];
            let object = ObjectRef::new(kind, "", "/etc/seaway/fullchain.pem");
            let before = format!("{leaf}{key}{root}");
            let both = |text| [("tls.crt", text), ("tls.key", text), ("ca.crt", text)];
            certificates.put(&Secret { object: object.clone(), ..secret("x", &both(&*before)) }, true);
            assert!(certificates.vouches(&object));
            certificates.put(&Secret { object: object.clone(), ..secret("x", &parts) }, true);
            assert_eq!(certificates.vouches(&object), is_used, "{kind:?} {chain}");
            assert!(
                certificates.held(&object).is_some_and(|it| !it.chain.is_empty()),
                "it is shown as before"
            );
            let problems = certificates.problems_of(&object);
            let problems: Vec<String> =
                problems.iter().map(|it| format!("{} {}", it.message, it.fix)).collect();
            let is_said = problems.iter().any(|it| {
                it.contains("a CA certificate that is not self-signed") && it.contains("a file of its own")
            });
            assert_eq!(is_said, !is_used, "{problems:?}");
        }
    }

    #[test]
    fn authorities_that_verify_nobody_are_named_with_what_is_wrong() {
        let [authority, leaf, own] = made();
        let garbage = "-----BEGIN CERTIFICATE-----\nZ2FyYmFnZQ==\n-----END CERTIFICATE-----\n";
        let both = format!("{leaf}{authority}");
        for (key, text, expected) in [
            ("ca.crt", &*authority, None),
            ("ca.crt", &*own, None),
            ("ca.crt", &*both, None),
            (
                "ca.crt",
                &*leaf,
                Some(
                    "ca.crt of Secret default/ca holds a certificate of a client or a server, and none of a CA",
                ),
            ),
            (
                "ca.crt",
                "no PEM",
                Some("ca.crt of Secret default/ca cannot be used (there is no PEM certificate)"),
            ),
            (
                "ca.crt",
                garbage,
                Some(
                    "ca.crt of Secret default/ca cannot be used (no PEM block can be read as a certificate)",
                ),
            ),
            ("ca.pem", &*authority, Some("Secret default/ca has no ca.crt")),
        ] {
            let mut certificates = Certificates::default();
            let secret = Secret { kind: "Opaque".into(), ..secret("ca", &[(key, text)]) };
            certificates.put(&secret, true);
            let owner = ObjectRef::new(Kind::Service, "default", "shop");
            let problem =
                certificates.problem_of_clients((&owner, "here".into()), &secret.object, ": closed");
            let message = problem.as_ref().map(|it| it.message.as_str());
            let follows = if certificates.vouches(&secret.object) { "" } else { ": closed" };
            let expected =
                expected.map(|it| format!("{it}, so no client certificate can be verified{follows}"));
            assert_eq!(message, expected.as_deref());
            assert_eq!(problem.map(|it| (it.object, it.field)), expected.map(|_| (owner, "here".into())));
        }
    }
}
