//! Where credentials come from: which file, which cloud, which value wins, and what is said of mistakes.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use seaway_openstack::{
    Credentials, Environment, Error, LoadedCredentials, Service, Source,
    credentials::{
        ApplicationCredential, AuthMethod, Domain, IdentityVersion, Interface, Project, Scope, User,
    },
};
use secrecy::ExposeSecret;
use tempfile::TempDir;

/// A folder that stands for a whole machine: `.` is where we are, `home` and `etc` are those.
pub(crate) struct FakeFilesystem {
    folder: TempDir,
    pub(crate) around: Environment,
}

impl FakeFilesystem {
    pub(crate) fn new() -> FakeFilesystem {
        let folder = tempfile::tempdir().expect("a folder");
        let around = Environment::in_folder(folder.path());
        FakeFilesystem { folder, around }
    }

    pub(crate) fn with(files: &[(&str, &str)]) -> FakeFilesystem {
        let machine = FakeFilesystem::new();
        for (path, text) in files {
            machine.write(path, text);
        }
        machine
    }

    pub(crate) fn write(&self, path: &str, text: &str) {
        let path = self.path(path);
        fs::create_dir_all(Path::new(&path).parent().expect("a folder")).expect("made");
        fs::write(&path, text).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
    }

    pub(crate) fn path(&self, path: &str) -> String {
        self.folder.path().join(path).display().to_string()
    }

    /// With this folder's path for its name.
    pub(crate) fn filled(&self, text: &str) -> String {
        text.replace("FOLDER", &self.folder.path().display().to_string())
    }

    pub(crate) fn set(mut self, variables: &[(&str, &str)]) -> FakeFilesystem {
        for (name, value) in variables {
            self.around = self.around.with(name, value);
        }
        self
    }

    fn read(&self, cloud: Option<&str>) -> Result<LoadedCredentials, Error> {
        Source::Client { cloud: cloud.map(str::to_owned), around: self.around.clone() }.read()
    }

    fn cloud(&self, cloud: Option<&str>) -> Credentials {
        self.read(cloud).expect("readable").credentials
    }

    /// As told to a human, with `.` for the folder.
    fn error(&self, cloud: Option<&str>) -> String {
        self.short(&self.read(cloud).expect_err("not readable").to_string())
    }

    pub(crate) fn short(&self, text: &str) -> String {
        text.replace(&self.folder.path().display().to_string(), ".")
    }

    fn warnings(&self, cloud: Option<&str>) -> Vec<String> {
        self.read(cloud).expect("readable").warnings.iter().map(|it| self.short(it)).collect()
    }
}

/// The least that makes a cloud.
fn cloud(name: &str, password: &str) -> String {
    format!(
        "  {name}:\n    auth:\n      auth_url: http://{name}:5000/v3\n      username: {name}\n      password: {password}\n      \
         project_name: {name}\n"
    )
}

pub(crate) fn clouds(names: &[&str]) -> String {
    names.iter().fold("clouds:\n".to_owned(), |text, name| text + &cloud(name, "pw"))
}

pub(crate) fn password(credentials: &Credentials) -> &str {
    match &credentials.proof {
        AuthMethod::Password { password, .. } => password.expose_secret(),
        AuthMethod::Token(token) => token.expose_secret(),
        AuthMethod::ApplicationCredential { secret, .. } => secret.expose_secret(),
    }
}

pub(crate) fn url(credentials: &Credentials) -> &str {
    &credentials.auth_url.value
}

#[test]
fn the_first_file_that_there_is_counts() {
    let places = [
        "clouds.yaml",
        "home/.config/openstack/clouds.yml",
        "etc/xdg/openstack/clouds.yaml",
        "etc/openstack/clouds.yaml",
    ];
    let machine = FakeFilesystem::new();
    for (index, place) in places.iter().enumerate().rev() {
        machine.write(place, &clouds(&[&format!("c{index}")]));
        assert_eq!(url(&machine.cloud(None)), format!("http://c{index}:5000/v3"), "{place}");
    }
    machine.write("own/mine.yaml", &clouds(&["own"]));
    let own = machine.path("own/mine.yaml");
    let machine = machine.set(&[("OS_CLIENT_CONFIG_FILE", &own)]);
    assert_eq!(url(&machine.cloud(None)), "http://own:5000/v3");
}

#[test]
fn the_cloud_asked_for_counts_more_than_the_environments_and_one_alone_needs_no_name() {
    let machine = FakeFilesystem::with(&[("clouds.yaml", &clouds(&["a", "b"]))]);
    assert_eq!(url(&machine.cloud(Some("b"))), "http://b:5000/v3");
    let several = machine.error(None);
    assert_eq!(
        several,
        "read the credentials: ./clouds.yaml has several clouds; set OS_CLOUD to one of: a, b"
    );
    assert_eq!(
        machine.error(Some("c")),
        "read the credentials: ./clouds.yaml has no cloud \"c\"; there are: a, b"
    );
    let machine = machine.set(&[("OS_CLOUD", "a")]);
    assert_eq!(url(&machine.cloud(None)), "http://a:5000/v3");
    assert_eq!(url(&machine.cloud(Some("b"))), "http://b:5000/v3");
    assert_eq!(
        url(&FakeFilesystem::with(&[("clouds.yaml", &clouds(&["only"]))]).cloud(None)),
        "http://only:5000/v3"
    );
}

#[test]
fn the_environment_is_a_cloud_of_its_own_or_stands_above_the_file() {
    let variables = [
        ("OS_AUTH_URL", "http://env:5000"),
        ("OS_USERNAME", "eve"),
        ("OS_PASSWORD", "env-pw"),
        ("OS_TENANT_NAME", "old-word"),
        ("OS_USER_DOMAIN_NAME", "Corp"),
        ("OS_IDENTITY_API_VERSION", "3"),
        ("OS_REGION_NAME", "R2"),
        ("OS_ENDPOINT_TYPE", "internalURL"),
        ("OS_TEST_PATH", "nonsense"),
        ("OS_PROJECT_ID", ""),
    ];
    let machine = FakeFilesystem::with(&[("clouds.yaml", &clouds(&["a"]))]).set(&variables);
    let alone = machine.cloud(None);
    assert_eq!((url(&alone), password(&alone)), ("http://env:5000", "env-pw"));
    assert_eq!(alone.auth_url.place.to_string(), "OS_AUTH_URL");
    assert_eq!(alone.region.as_ref().map(|it| it.value.as_str()), Some("R2"));
    assert_eq!((alone.interface, alone.version), (Interface::Internal, Some(IdentityVersion::V3)));
    assert!(
        matches!(&alone.proof, AuthMethod::Password { user: User::Name { name, domain: Domain::Name(domain) }, .. }
            if name == "eve" && domain == "Corp")
    );
    assert!(matches!(&alone.scope, Scope::Project(Project::Name { name, .. }) if name == "old-word"));

    let machine = FakeFilesystem::with(&[("clouds.yaml", &clouds(&["a"]))]).set(&[
        ("OS_CLOUD", "a"),
        ("OS_PASSWORD", "env-pw"),
        ("OS_REGION_NAME", "R2"),
    ]);
    let above = machine.cloud(None);
    assert_eq!((url(&above), password(&above)), ("http://a:5000/v3", "env-pw"), "as `openstack` has it");
    assert_eq!(above.region.map(|it| it.value).as_deref(), Some("R2"));

    let machine = FakeFilesystem::with(&[("clouds.yaml", &clouds(&["a"]))]).set(&[("OS_REGION_NAME", "R2")]);
    assert_eq!(
        machine.cloud(None).region.map(|it| it.value).as_deref(),
        Some("R2"),
        "a region alone is no cloud"
    );
}

#[test]
fn a_secure_file_adds_the_secrets_and_counts_more() {
    let without = clouds(&["a"]).replace("      password: pw\n", "");
    let machine = FakeFilesystem::with(&[
        ("etc/openstack/clouds.yaml", &without),
        ("home/.config/openstack/secure.yaml", "clouds:\n  a:\n    auth:\n      password: from-secure\n"),
    ]);
    let reading = machine.read(Some("a")).expect("readable");
    assert_eq!(password(&reading.credentials), "from-secure");
    let files: Vec<String> =
        reading.files.iter().map(|it| machine.short(&it.display().to_string())).collect();
    assert_eq!(files, ["./etc/openstack/clouds.yaml", "./home/.config/openstack/secure.yaml"]);
    let missing: Vec<String> =
        reading.missing.iter().map(|it| machine.short(&it.display().to_string())).collect();
    for counts_more in ["./clouds.yaml", "./etc/xdg/openstack/clouds.json", "./secure.yml"] {
        assert!(missing.iter().any(|it| it == counts_more), "{counts_more}: {missing:?}");
    }
    assert!(!missing.iter().any(|it| it == "./etc/openstack/secure.yaml"), "it counts less: {missing:?}");
    let machine = FakeFilesystem::with(&[
        ("clouds.yaml", &clouds(&["a"])),
        ("secure.yaml", "clouds:\n  a:\n    auth:\n      password: from-secure\n"),
    ]);
    assert_eq!(password(&machine.cloud(None)), "from-secure");
}

#[test]
fn what_stands_beside_auth_counts_more_than_what_stands_in_it() {
    let text = clouds(&["a"]) + "    project_name: beside\n    region-name: R1\n    interface: internal\n";
    let credentials = FakeFilesystem::with(&[("clouds.yaml", &text)]).cloud(None);
    assert!(matches!(&credentials.scope, Scope::Project(Project::Name { name, .. }) if name == "beside"));
    assert_eq!(credentials.region.expect("a region").value, "R1", "dashes count as underscores");
    assert_eq!(credentials.interface, Interface::Internal);
}

#[test]
fn a_region_may_have_values_of_its_own() {
    let text =
        clouds(&["a"]) + "    regions:\n      - name: R1\n        values: {interface: admin}\n      - R2\n";
    let machine = FakeFilesystem::with(&[("clouds.yaml", &text)]);
    let first = machine.cloud(None);
    assert_eq!((first.region.expect("a region").value.as_str(), first.interface), ("R1", Interface::Admin));
    let second = machine.set(&[("OS_REGION_NAME", "R2")]).cloud(None);
    assert_eq!(
        (second.region.expect("a region").value.as_str(), second.interface),
        ("R2", Interface::Public)
    );
}

/// A cloud of these lines below `a:`, and what comes of it.
fn of(lines: &[&str]) -> Result<Credentials, String> {
    let text: String = ["clouds:", "  a:"].iter().chain(lines).map(|line| format!("{line}\n")).collect();
    let machine = FakeFilesystem::with(&[("clouds.yaml", &text)]);
    machine.read(None).map(|it| it.credentials).map_err(|error| machine.short(&error.to_string()))
}

#[test]
fn each_kind_of_credential_is_understood() {
    let url = "    auth_url: http://k/v3";
    let credential = of(&[
        url,
        "    auth_type: v3applicationcredential",
        "    application_credential_id: a1",
        "    application_credential_secret: 0123",
    ])
    .expect("fine");
    assert_eq!(password(&credential), "0123", "a secret that looks like a number is none");
    assert!(
        matches!(&credential.proof, AuthMethod::ApplicationCredential { which: ApplicationCredential::Id(id), .. } if id == "a1")
    );
    assert_eq!(credential.version, Some(IdentityVersion::V3));

    let by_name = of(&[
        url,
        "    application_credential_name: mine",
        "    application_credential_secret: s",
        "    user_id: u1",
    ])
    .expect("fine");
    assert!(matches!(
        &by_name.proof,
        AuthMethod::ApplicationCredential {
            which: ApplicationCredential::Name { user: User::Id(_), .. },
            ..
        }
    ));
    let token = of(&[url, "    auth_type: token", "    token: t1", "    project_id: p1"]).expect("fine");
    assert!(matches!((&token.proof, &token.scope), (AuthMethod::Token(_), Scope::Project(Project::Id(_)))));
    let trust = of(&[url, "    user_id: u1", "    password: p", "    trust_id: t1", "    project_id: p1"])
        .expect("fine");
    assert_eq!(trust.scope, Scope::Trust("t1".into()), "a trust has its project");
    let domain = of(&[url, "    username: u", "    password: p", "    domain_name: Corp"]).expect("fine");
    assert_eq!(domain.scope, Scope::Domain(Domain::Name("Corp".into())));
    let system = of(&[url, "    username: u", "    password: p", "    system_scope: all"]).expect("fine");
    assert_eq!(system.scope, Scope::System);
    let v2 =
        of(&[url, "    auth_type: v2password", "    username: u", "    password: p", "    tenant_name: t"]);
    assert_eq!(v2.expect("fine").version, Some(IdentityVersion::V2));
}

#[test]
fn domains_fall_back_to_the_one_for_everything_and_to_default() {
    let base = ["    auth_url: http://k", "    username: u", "    password: p", "    project_name: p"];
    for (more, user, project) in [
        (&[][..], Domain::default(), Domain::default()),
        (&["    domain_id: d"], Domain::Id("d".into()), Domain::Id("d".into())),
        (&["    default_domain: d"], Domain::Id("d".into()), Domain::Id("d".into())),
        (
            &["    domain_id: d", "    user_domain_name: U", "    project_domain_id: p"],
            Domain::Name("U".into()),
            Domain::Id("p".into()),
        ),
    ] {
        let lines: Vec<&str> = base.iter().chain(more).copied().collect();
        let credentials = of(&lines).expect("fine");
        assert!(
            matches!(&credentials.proof, AuthMethod::Password { user: User::Name { domain, .. }, .. } if *domain == user),
            "{more:?}"
        );
        assert!(
            matches!(&credentials.scope, Scope::Project(Project::Name { domain, .. }) if *domain == project),
            "{more:?}"
        );
    }
}

#[test]
fn a_mistake_is_told_with_file_line_and_key() {
    let fine = ["    auth_url: http://k", "    username: u", "    password: p", "    project_name: p"];
    let without = |index: usize| -> Vec<&str> {
        fine.iter().enumerate().filter(|(at, _)| *at != index).map(|(_, line)| *line).collect()
    };
    let with = |line: &'static str| -> Vec<&str> { fine.iter().copied().chain([line]).collect() };
    for (lines, told) in [
        (without(0), "cloud \"a\" of ./clouds.yaml has no auth_url; "),
        (without(1), "cloud \"a\" of ./clouds.yaml has no username; "),
        (without(2), "cloud \"a\" of ./clouds.yaml has no password; set it (OS_PASSWORD), "),
        (
            with("    auth_type: v3oidcpassword"),
            "./clouds.yaml:7: auth_type: \"v3oidcpassword\" is not supported: ",
        ),
        (
            with("    identity_api_version: 4"),
            "./clouds.yaml:7: identity_api_version: \"4\" is neither 3 nor 2",
        ),
        (
            with("    interface: outside"),
            "./clouds.yaml:7: interface: \"outside\" is none of public, internal, admin",
        ),
        (with("    verify: perhaps"), "./clouds.yaml:7: verify: \"perhaps\" is neither true nor false"),
        (
            with("    api_timeout: soon"),
            "./clouds.yaml:7: api_timeout: \"soon\" is not a duration, such as 30 (seconds), 1m30s, 500ms",
        ),
        (
            with("    key: k.pem"),
            "./clouds.yaml:7: key: cert, the client certificate for this key, is not set: set it too, or remove key",
        ),
        (with("    regions: R1"), "./clouds.yaml:7: regions: must be a list"),
        (
            with("    username: x"),
            "./clouds.yaml:7: key \"username\" already set in map, at line 4; the file has to be YAML",
        ),
        (with("   bad"), "./clouds.yaml:"),
        (
            vec!["    auth_url: keystone:5000", "    username: u", "    password: p"],
            "./clouds.yaml:3: auth_url: \"keystone:5000\" has to begin with http:// or https://",
        ),
        (
            vec![
                "    auth_url: http://k",
                "    application_credential_name: n",
                "    application_credential_secret: s",
            ],
            "cloud \"a\" of ./clouds.yaml has no user for its application credential; each user can have ",
        ),
    ] {
        let error = of(&lines).expect_err("a mistake");
        assert!(error.starts_with(&format!("read the credentials: {told}")), "{lines:?}: {error}");
    }
    let nothing = FakeFilesystem::new().error(None);
    assert!(
        nothing.starts_with("read the credentials: no credentials: there is no clouds.yaml; set OS_AUTH_URL"),
        "{nothing}"
    );
}

#[test]
fn what_is_not_used_is_told_and_does_no_harm() {
    let text =
        clouds(&["a"]) + "    volume_api_version: 3\n    profile: vexxhost\n    networks: [{name: x}]\n";
    let machine = FakeFilesystem::with(&[("clouds.yaml", &text)]);
    let mut warnings = machine.warnings(None);
    warnings.sort();
    assert_eq!(
        warnings,
        [
            "./clouds.yaml:10: networks is not used here",
            "./clouds.yaml:8: volume_api_version is not used here",
            "./clouds.yaml:9: profile: Seaway does not support vendor profiles: write auth_url and the other \
             options here",
        ]
    );
}

#[test]
fn endpoints_and_certificates_may_be_named_and_disbelief_is_loud() {
    let text = clouds(&["a"])
        + "    load_balancer_endpoint_override: http://lb:9876\n    neutron_endpoint_override: http://n\n    \
           cacert: ~/ca.pem\n    cert: cert.pem\n    verify: no\n    api_timeout: 7\n";
    let machine = FakeFilesystem::with(&[("clouds.yaml", &text)]);
    let credentials = machine.cloud(None);
    let own = |service| credentials.overrides.get(&service).map(|it| it.value.as_str());
    assert_eq!(
        (own(Service::LoadBalancer), own(Service::Network)),
        (Some("http://lb:9876"), Some("http://n"))
    );
    let ca = credentials.tls.ca.as_ref().expect("a CA").value.display().to_string();
    assert_eq!(machine.short(&ca), "./home/ca.pem");
    let (certificate, key) = credentials.tls.client.as_ref().expect("a certificate");
    assert_eq!(certificate.value, key.value, "one file may have both");
    assert_eq!(credentials.timeout.map(|it| it.as_secs()), Some(7));
    let warnings = machine.warnings(None);
    assert!(warnings.iter().any(|it| it.starts_with("./clouds.yaml:12: INSECURE: ")), "{warnings:?}");
}

#[test]
fn the_key_of_a_client_certificate_is_a_secret_too() {
    let text = clouds(&["a"]) + "    cert: cert.pem\n    key: key.pem\n";
    let machine = FakeFilesystem::with(&[("clouds.yaml", &text), ("cert.pem", "a"), ("key.pem", "b")]);
    let mode = |file: &str, mode| {
        fs::set_permissions(machine.path(file), fs::Permissions::from_mode(mode)).expect("set");
    };
    mode("cert.pem", 0o644);
    assert!(machine.warnings(None).is_empty(), "a certificate is for all to see");
    mode("key.pem", 0o644);
    assert_eq!(machine.warnings(None), ["others can read ./key.pem (mode 644): type: chmod 600 ./key.pem"]);
    mode("key.pem", 0o622);
    assert!(machine.error(None).contains("chmod go-w ./key.pem"), "{}", machine.error(None));
}

#[test]
fn files_that_others_can_read_are_warned_about_and_such_that_they_can_write_refused() {
    let machine = FakeFilesystem::with(&[
        ("clouds.yaml", &clouds(&["a"]).replace("      password: pw\n", "")),
        ("secure.yaml", "clouds: {a: {auth: {password: pw}}}\n"),
    ]);
    let set = |path: &str, mode| {
        fs::set_permissions(machine.path(path), fs::Permissions::from_mode(mode)).expect("set");
    };
    set("clouds.yaml", 0o644);
    assert!(machine.warnings(None).is_empty(), "there is no secret in that one");
    set("secure.yaml", 0o640);
    assert_eq!(
        machine.warnings(None),
        ["others can read ./secure.yaml (mode 640): type: chmod 600 ./secure.yaml"]
    );
    set("secure.yaml", 0o620);
    assert_eq!(
        machine.error(None),
        "read the credentials: others can write ./secure.yaml (mode 620); type: chmod go-w ./secure.yaml"
    );
}

#[test]
fn debug_texts_show_no_secret() {
    let machine = FakeFilesystem::with(&[("clouds.yaml", &clouds(&["a"]).replace("pw", "hunter2"))])
        .set(&[("OS_CLOUD", "a"), ("OS_TOKEN", "hunter2")]);
    let reading = machine.read(None).expect("readable");
    let shown = format!("{reading:?} {:?}", machine.around);
    assert!(!shown.contains("hunter2"), "{shown}");
}
