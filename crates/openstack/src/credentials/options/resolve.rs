//! From keys to credentials. Domains, versions and scopes fall back as they do for `openstack`.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use secrecy::SecretString;

use super::{Options, option_error};
use crate::{
    call::Service,
    credentials::{
        ApplicationCredential, AuthMethod, Credentials, Domain, Environment, IdentityVersion, Interface,
        Located, Project, Scope, Tls, User, duration,
    },
    error::{Class, Error},
};

/// What was made of them, and what of them nobody needed.
pub(in crate::credentials) struct ResolvedOptions {
    pub(in crate::credentials) credentials: Credentials,
    pub(in crate::credentials) unused: Vec<String>,
}

impl Options {
    /// `whole` is what a human calls all of it: `cloud "demo" of /etc/openstack/clouds.yaml`.
    pub(in crate::credentials) fn resolve(
        mut self,
        whole: &str,
        surroundings: &Environment,
    ) -> Result<ResolvedOptions, Error> {
        let lacks = |what: &str, fix: &str| {
            Error::new(Class::Credentials, format!("{whole} has no {what}")).with_fix(fix.to_owned())
        };
        let (kind, by_kind) = self.kind()?;
        let auth_url = self.text(&["auth_url"]).ok_or_else(|| {
            lacks(
                "auth_url",
                "set it (OS_AUTH_URL; cloud.conf: auth-url), as in https://keystone.example:5000/v3",
            )
        })?;
        if !auth_url.value.starts_with("http://") && !auth_url.value.starts_with("https://") {
            let why = format!("{:?} has to begin with http:// or https://", auth_url.value);
            return Err(option_error(&auth_url.place, "auth_url", &why));
        }
        let version = self.version()?.or(by_kind);
        let (any_domain, user_domain, project_domain) = self.domains();
        let user = self.user(user_domain.as_ref().or(any_domain.as_ref()));
        let scope = self.scope(project_domain, any_domain);
        let proof = self.proof(kind, user, &lacks)?;
        let interface = self.interface()?;
        let (overrides, tls) = (self.overrides(), self.tls(surroundings)?);
        let timeout = self.timeout()?;
        let credentials = Credentials {
            auth_url,
            proof,
            scope,
            version,
            region: self.text(&["region_name", "region"]),
            interface,
            overrides,
            tls,
            timeout,
        };
        Ok(ResolvedOptions { credentials, unused: self.unused().collect() })
    }

    fn kind(&mut self) -> Result<(Option<Kind>, Option<IdentityVersion>), Error> {
        let Some(said) = self.text(&["auth_type", "auth_plugin"]) else { return Ok((None, None)) };
        let (bare, version) = match said.value.split_at_checked(2) {
            Some(("v3", bare)) => (bare, Some(IdentityVersion::V3)),
            Some(("v2", bare)) => (bare, Some(IdentityVersion::V2)),
            _ => (said.value.as_str(), None),
        };
        let kind = match bare {
            "password" => Kind::Password,
            "token" => Kind::Token,
            "applicationcredential" | "application_credential" => Kind::ApplicationCredential,
            _ => {
                let why = format!(
                    "{:?} is not supported: Seaway supports password, token and v3applicationcredential",
                    said.value
                );
                return Err(option_error(&said.place, "auth_type", &why));
            }
        };
        Ok((Some(kind), version))
    }

    fn version(&mut self) -> Result<Option<IdentityVersion>, Error> {
        let Some(said) = self.text(&["identity_api_version"]) else { return Ok(None) };
        match said.value.trim_start_matches('v').split('.').next() {
            Some("3") => Ok(Some(IdentityVersion::V3)),
            Some("2") => Ok(Some(IdentityVersion::V2)),
            _ => Err(option_error(
                &said.place,
                "identity_api_version",
                &format!("{:?} is neither 3 nor 2", said.value),
            )),
        }
    }

    /// The one for everything, the user's, the project's.
    fn domains(&mut self) -> (Option<Domain>, Option<Domain>, Option<Domain>) {
        let mut domain = |id: &str, name: &str| {
            let (id, name) = (self.text(&[id]), self.text(&[name]));
            id.map(|it| Domain::Id(it.value)).or(name.map(|it| Domain::Name(it.value)))
        };
        let fallback =
            domain("default_domain_id", "default_domain_name").or_else(|| domain("default_domain", ""));
        let user = domain("user_domain_id", "user_domain_name");
        let project = domain("project_domain_id", "project_domain_name")
            .or_else(|| domain("tenant_domain_id", "tenant_domain_name"));
        let any = domain("domain_id", "domain_name");
        (any, user.or_else(|| fallback.clone()), project.or(fallback))
    }

    fn user(&mut self, domain: Option<&Domain>) -> Option<User> {
        let trustee = self.text(&["trustee_id"]);
        let (id, name) = (self.text(&["user_id"]), self.text(&["username", "user_name"]));
        let by_name =
            |it: Located<String>| User::Name { name: it.value, domain: domain.cloned().unwrap_or_default() };
        trustee.or(id).map(|it| User::Id(it.value)).or(name.map(by_name))
    }

    fn scope(&mut self, project_domain: Option<Domain>, any_domain: Option<Domain>) -> Scope {
        let id = self.text(&["project_id", "tenant_id"]);
        let name = self.text(&["project_name", "tenant_name"]);
        let system = self.text(&["system_scope"]);
        if let Some(trust) = self.text(&["trust_id"]) {
            Scope::Trust(trust.value)
        } else if let Some(id) = id {
            Scope::Project(Project::Id(id.value))
        } else if let Some(name) = name {
            let domain = project_domain.or(any_domain).unwrap_or_default();
            Scope::Project(Project::Name { name: name.value, domain })
        } else if let Some(domain) = any_domain {
            Scope::Domain(domain)
        } else if system.is_some() {
            Scope::System
        } else {
            Scope::Unsaid
        }
    }

    fn proof(
        &mut self,
        kind: Option<Kind>,
        user: Option<User>,
        lacks: &dyn Fn(&str, &str) -> Error,
    ) -> Result<AuthMethod, Error> {
        let trustee = self.take(&["trustee_password"]);
        let password = self.take(&["password"]);
        let password = trustee.or(password);
        let token = self.take(&["token", "auth_token"]);
        let id = self.text(&["application_credential_id"]);
        let name = self.text(&["application_credential_name"]);
        let secret = self.take(&["application_credential_secret"]);
        let kind = kind.unwrap_or(match (&secret, &password, &token) {
            (Some(_), _, _) => Kind::ApplicationCredential,
            (None, None, Some(_)) => Kind::Token,
            _ => Kind::Password,
        });
        let secret_of = |said: Option<Located<SecretString>>| said.map(|it| it.value);
        match kind {
            Kind::Password => Ok(AuthMethod::Password {
                user: user.ok_or_else(|| lacks("username", "set it, or user_id (OS_USERNAME)"))?,
                password: secret_of(password).ok_or_else(|| {
                    lacks("password", "set it (OS_PASSWORD), or use an application credential or a token")
                })?,
            }),
            Kind::Token => secret_of(token)
                .map(AuthMethod::Token)
                .ok_or_else(|| lacks("token", "set it (OS_TOKEN), as `openstack token issue` prints it")),
            Kind::ApplicationCredential => {
                let secret = secret_of(secret).ok_or_else(|| {
                    lacks(
                        "application_credential_secret",
                        "set it; Keystone showed the secret only when the application credential was created",
                    )
                })?;
                let which = match (id, name, user) {
                    (Some(id), _, _) => ApplicationCredential::Id(id.value),
                    (None, Some(name), Some(user)) => ApplicationCredential::Name { name: name.value, user },
                    (None, Some(_), None) => {
                        let fix = "each user can have an application credential of this name: set username or user_id, or \
                                   give application_credential_id instead of the name";
                        return Err(lacks("user for its application credential", fix));
                    }
                    (None, None, _) => return Err(lacks("application_credential_id", "set it")),
                };
                Ok(AuthMethod::ApplicationCredential { which, secret })
            }
        }
    }

    fn interface(&mut self) -> Result<Interface, Error> {
        let Some(said) = self.text(&["interface", "endpoint_type", "os_endpoint_type"]) else {
            return Ok(Interface::default());
        };
        Interface::parse(&said.value).ok_or_else(|| {
            option_error(
                &said.place,
                "interface",
                &format!("{:?} is none of public, internal, admin", said.value),
            )
        })
    }

    fn overrides(&mut self) -> BTreeMap<Service, Located<String>> {
        let mut overrides = BTreeMap::new();
        for service in Service::ALL {
            let (kind, project) = (service.as_str().replace('-', "_"), service.project().to_lowercase());
            let keys: Vec<String> = [kind, project]
                .iter()
                .flat_map(|name| [format!("{name}_endpoint_override"), format!("{name}_endpoint")])
                .collect();
            let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
            if let Some(said) = self.text(&keys) {
                overrides.insert(service, said);
            }
        }
        overrides
    }

    fn tls(&mut self, surroundings: &Environment) -> Result<Tls, Error> {
        let mut file = |keys: &[&str]| {
            let said = self.text(keys)?;
            Some(Located { value: surroundings.expand_path(&said.value), place: said.place })
        };
        let (ca, certificate, key) =
            (file(&["cacert", "ca_file"]), file(&["cert", "cert_file"]), file(&["key", "key_file"]));
        let client: Option<(Located<PathBuf>, Located<PathBuf>)> = match (certificate, key) {
            // One file may have both.
            (Some(certificate), None) => Some((certificate.clone(), certificate)),
            (Some(certificate), Some(key)) => Some((certificate, key)),
            (None, Some(key)) => {
                return Err(option_error(
                    &key.place,
                    "key",
                    "cert, the client certificate for this key, is not set: set it too, or remove key",
                ));
            }
            (None, None) => None,
        };
        let insecure = self.truth(&["insecure", "tls_insecure"])?.filter(|said| said.value);
        let unverified = self.truth(&["verify"])?.filter(|said| !said.value);
        Ok(Tls { ca, client, insecure: insecure.or(unverified).map(|said| said.place) })
    }

    fn timeout(&mut self) -> Result<Option<Duration>, Error> {
        let Some(said) = self.text(&["api_timeout", "request_timeout"]) else { return Ok(None) };
        match duration::read(&said.value) {
            // As for the cloud controller manager, that is to say nothing: no request may take for ever.
            Some(Duration::ZERO) => Ok(None),
            Some(time) => Ok(Some(time)),
            None => {
                let why = format!("{:?} is not a duration, such as 30 (seconds), 1m30s, 500ms", said.value);
                Err(option_error(&said.place, "api_timeout", &why))
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Kind {
    Password,
    Token,
    ApplicationCredential,
}
