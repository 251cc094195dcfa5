//! `cloud.conf`, the file of the OpenStack cloud controller manager: `[Global]` is who we are, the rest is for the
//! driver, which finds it here with the line of everything.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    LoadedCredentials, SourceLocation, clouds,
    environment::Environment,
    ini::{Entry, Ini},
    options::{Options, option_error},
    permissions,
    source::SourceFiles,
};
use crate::error::{Class, Error};

/// A `cloud.conf`, read and not yet understood.
#[derive(Clone, Debug)]
pub struct CloudConf {
    pub file: PathBuf,
    pub ini: Ini,
}

/// Sections that mean something to the cloud controller manager.
const KNOWN: [&str; 6] = ["Global", "LoadBalancer", "LoadBalancerClass", "Networking", "Route", "Metadata"];

/// Keys of `[Global]`, and what OpenStack's own client calls them. Old files have `tenant`, some have underscores.
const KEYS: [(&str, &str); 29] = [
    ("auth-url", "auth_url"),
    ("username", "username"),
    ("user-id", "user_id"),
    ("password", "password"),
    ("tenant-id", "project_id"),
    ("project-id", "project_id"),
    ("tenant-name", "project_name"),
    ("project-name", "project_name"),
    ("trust-id", "trust_id"),
    ("trustee-id", "trustee_id"),
    ("trustee-password", "trustee_password"),
    ("domain-id", "domain_id"),
    ("domain-name", "domain_name"),
    ("tenant-domain-id", "project_domain_id"),
    ("project-domain-id", "project_domain_id"),
    ("tenant-domain-name", "project_domain_name"),
    ("project-domain-name", "project_domain_name"),
    ("user-domain-id", "user_domain_id"),
    ("user-domain-name", "user_domain_name"),
    ("region", "region_name"),
    ("os-endpoint-type", "interface"),
    ("ca-file", "cacert"),
    ("cert-file", "cert"),
    ("key-file", "key"),
    ("tls-insecure", "insecure"),
    ("token", "token"),
    ("application-credential-id", "application_credential_id"),
    ("application-credential-name", "application_credential_name"),
    ("application-credential-secret", "application_credential_secret"),
];

impl CloudConf {
    pub fn read(file: &Path) -> Result<CloudConf, Error> {
        let shown = file.display();
        let text = fs::read_to_string(file).map_err(|source| {
            Error::new(Class::Credentials, format!("{shown} cannot be read")).with_source(source)
        })?;
        CloudConf::parse(file, &text)
    }

    pub fn parse(file: &Path, text: &str) -> Result<CloudConf, Error> {
        let ini = Ini::parse(text).map_err(|broken| {
            Error::new(Class::Credentials, format!("{}:{}: {}", file.display(), broken.line, broken.what))
        })?;
        Ok(CloudConf { file: file.to_owned(), ini })
    }

    /// Where a line is, for whoever has to mend it.
    pub fn place(&self, line: usize) -> SourceLocation {
        SourceLocation(format!("{}:{line}", self.file.display()))
    }

    /// What nobody here reads: leftovers such as `[BlockStorage]` do no harm, and are told.
    pub fn unknown_keys(&self) -> Vec<String> {
        let known = |name: &str| KNOWN.iter().any(|it| it.eq_ignore_ascii_case(name));
        let sections = self.ini.sections.iter().filter(|it| !known(&it.name));
        sections
            .map(|it| format!("{}: the section [{}] is not used here", self.place(it.line), it.name))
            .collect()
    }

    fn global(&self, key: &str) -> Option<&Entry> {
        self.ini.entry("Global", key)
    }

    fn truth(&self, key: &str) -> Result<bool, Error> {
        let Some(entry) = self.global(key) else { return Ok(false) };
        match entry.value().to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Ok(true),
            "false" | "no" | "off" | "0" | "" => Ok(false),
            other => Err(option_error(
                &self.place(entry.line),
                key,
                &format!("{other:?} is neither true nor false"),
            )),
        }
    }

    fn options(&self) -> Options {
        let mut options = Options::default();
        for entry in self.ini.entries("Global") {
            let name = entry.key.to_ascii_lowercase().replace('_', "-");
            if ["use-clouds", "clouds-file", "cloud"].contains(&&*name) {
                continue;
            }
            let known = KEYS.iter().find(|(key, _)| *key == name).map(|(_, meant)| *meant);
            options.put(known.unwrap_or(&entry.key), entry.value(), self.place(entry.line));
        }
        // The time-out of all calls of the cloud controller manager stands there, of all places.
        if let Some(entry) = self.ini.entry("Metadata", "request-timeout") {
            options.put("request_timeout", entry.value(), self.place(entry.line));
        }
        options
    }

    /// As `credentials`, but for the files: none is looked at.
    pub(crate) fn resolve_for_fuzzing(&self) -> bool {
        self.options().resolve("it", &Environment::default()).is_ok()
    }

    pub(super) fn credentials(&self, around: &Environment) -> Result<LoadedCredentials, Error> {
        let shown = self.file.display().to_string();
        let mut options = self.options();
        let secret = options.has_secret_of(&shown);
        let mut files = SourceFiles { used: vec![self.file.clone()], missing: Vec::new() };
        let mut warnings = self.unknown_keys();
        warnings.extend(permissions::check_permissions(&self.file, secret)?);
        let mut whole = format!("[Global] of {shown}");
        if self.truth("use-clouds")? {
            let named = self.global("clouds-file").map(Entry::value).filter(|path| !path.is_empty());
            let around = match named {
                Some(path) => &around.clone().with("OS_CLIENT_CONFIG_FILE", path),
                None => around,
            };
            let cloud = self.global("cloud").map(Entry::value).filter(|name| !name.is_empty());
            let (merged, more_files, more_warnings, below) = clouds::below(cloud, options, around)?;
            options = merged;
            files.used.extend(more_files.used);
            files.missing = more_files.missing;
            warnings.extend(more_warnings);
            whole = format!("{whole}, and {below}");
        }
        let resolved = options.resolve(&whole, around)?;
        LoadedCredentials::new(resolved, files, warnings, &whole)
    }
}
