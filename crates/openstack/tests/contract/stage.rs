//! Where a script is played: a cloud with a project for it alone, real or fake.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::script::Step;

/// Versions, as the scripts' paths take them for granted.
const ROOTS: [(&str, &str); 5] = [
    ("identity", "/v3"),
    ("network", "/v2.0"),
    ("load-balancer", "/v2"),
    ("compute", "/v2.1"),
    ("key-manager", "/v1"),
];

pub(crate) struct Stage {
    pub(crate) http: reqwest::Client,
    /// Where services are, without their versions.
    services: BTreeMap<String, String>,
    pub(crate) tokens: BTreeMap<String, String>,
    /// What scripts may name without having kept it.
    pub(crate) known: BTreeMap<String, String>,
    pub(crate) operator: Box<dyn Operator>,
    /// Between two looks at something that changes.
    pub(crate) pause: Duration,
    /// For states that come late: none with a cloud that has no agents.
    pub(crate) patience: Duration,
    /// For how long what is ready stays as it is.
    pub(crate) rest: Duration,
    /// What differed for a while, as is known of it.
    pub(crate) known_differences: BTreeSet<String>,
}

/// What no API can do, and an operator can.
pub(crate) trait Operator: Send + Sync {
    /// All that is pending in this project becomes what it was to become.
    fn settle(&self, project: &str) -> Result<()>;
    /// `loadbalancer`, `pool`, …: this one is in ERROR.
    fn break_down(&self, kind: &str, id: &str) -> Result<()>;
}

/// What new players may do.
const ROLES: [&str; 3] = ["member", "creator", "load-balancer_member"];
const PASSWORD: &str = "a password of the play";
/// What a cloud with caches may need to take notice of a new user.
const PATIENCE: Duration = Duration::from_secs(120);

impl Stage {
    /// With a new project, and a new user in it, both of this name.
    pub(crate) async fn open(
        auth_url: &str,
        name: &str,
        operator: Box<dyn Operator>,
        pause: Duration,
    ) -> Result<Stage> {
        // One connection a request: a stale one would look like trouble of the cloud.
        let http =
            reqwest::Client::builder().pool_max_idle_per_host(0).timeout(Duration::from_secs(180)).build()?;
        let mut stage = Stage {
            http,
            services: BTreeMap::new(),
            tokens: BTreeMap::new(),
            known: BTreeMap::new(),
            operator,
            pause,
            patience: Duration::ZERO,
            rest: Duration::ZERO,
            known_differences: BTreeSet::new(),
        };
        let token = stage.sign_in(auth_url, "admin", "admin", "adminpw").await?;
        for service in token["catalog"].as_array().context("a catalog")? {
            let kind = service["type"].as_str().context("a type")?;
            let endpoints = service["endpoints"].as_array().context("endpoints")?;
            let public = endpoints.iter().find(|it| it["interface"] == "public").context("a public one")?;
            let url = public["url"].as_str().context("an url")?;
            let version = ROOTS.iter().find(|(it, _)| *it == kind).map_or("", |(_, version)| version);
            stage.services.insert(kind.to_owned(), url.trim_end_matches(version).to_owned());
        }
        stage.enlist(name).await?;
        let other = stage.sign_in(auth_url, "other", "alt", "demopw").await?;
        for (known, place) in [("other-user", "/user/id"), ("other-project", "/project/id")] {
            let id = other.pointer(place).and_then(Value::as_str).context("an id")?;
            stage.known.insert(known.to_owned(), id.to_owned());
        }
        let image = stage.image().await?;
        stage.known.insert("image".to_owned(), image);
        let begun = Instant::now();
        while let Err(error) = stage.sign_in(auth_url, "member", name, PASSWORD).await {
            ensure!(begun.elapsed() < PATIENCE, error);
            tokio::time::sleep(stage.pause).await;
        }
        for (known, value) in [("name", name), ("password", PASSWORD)] {
            stage.known.insert(known.to_owned(), value.to_owned());
        }
        let rcgen::CertifiedKey { cert, signing_key } =
            rcgen::generate_simple_self_signed(["shop".to_owned()])?;
        for (known, pem) in [("certificate-pem", cert.pem()), ("key-pem", signing_key.serialize_pem())] {
            stage.known.insert(known.to_owned(), pem.replace("\r", "").replace('\n', "\\n"));
        }
        Ok(stage)
    }

    pub(crate) fn differs(&mut self, step: &Step, how: &str) {
        self.known_differences.insert(format!("{}: {how}", step.sent.join(" ")));
    }

    /// What servers start from.
    async fn image(&self) -> Result<String> {
        let token = self.tokens.get("admin").context("an admin")?;
        let url = self.url("compute", "/images?name=test-image")?;
        let found: Value = self.http.get(url).header("x-auth-token", token).send().await?.json().await?;
        Ok(found["images"][0]["id"].as_str().context("an image")?.to_owned())
    }

    async fn enlist(&mut self, name: &str) -> Result<()> {
        let project = self
            .admin("POST", "/projects", json!({"project": {"name": name, "domain_id": "default"}}))
            .await?;
        let project = project["project"]["id"].as_str().context("a project")?;
        let user = json!({"user": {"name": name, "password": PASSWORD, "domain_id": "default"}});
        let user = self.admin("POST", "/users", user).await?;
        let user = user["user"]["id"].as_str().context("a user")?;
        let roles = self.admin("GET", "/roles", Value::Null).await?;
        for role in roles["roles"].as_array().context("roles")? {
            if ROLES.iter().any(|it| role["name"] == *it) {
                let role = role["id"].as_str().context("a role")?;
                let grant = format!("/projects/{project}/users/{user}/roles/{role}");
                self.admin("PUT", &grant, Value::Null).await?;
            }
        }
        self.known.insert("project".to_owned(), project.to_owned());
        self.known.insert("user".to_owned(), user.to_owned());
        Ok(())
    }

    pub(crate) async fn admin(&self, method: &str, path: &str, body: Value) -> Result<Value> {
        let url = self.url("identity", path)?;
        let token = self.tokens.get("admin").context("an admin")?;
        let mut request = self.http.request(method.parse()?, url).header("x-auth-token", token);
        if !body.is_null() {
            request = request.json(&body);
        }
        let reply = request.send().await?;
        let (status, text) = (reply.status(), reply.text().await?);
        ensure!(status.is_success(), "{method} {path}: {status} {text}");
        Ok(serde_json::from_str(&text).unwrap_or_default())
    }

    async fn sign_in(&mut self, auth_url: &str, who: &str, name: &str, password: &str) -> Result<Value> {
        let domain = json!({"id": "default"});
        let user = json!({"name": name, "password": password, "domain": domain});
        let auth = json!({"auth": {
            "identity": {"methods": ["password"], "password": {"user": user}},
            "scope": {"project": {"name": name, "domain": domain}},
        }});
        let reply = self.http.post(format!("{auth_url}/auth/tokens")).json(&auth).send().await?;
        ensure!(reply.status().as_u16() == 201, "{name} cannot sign in: {}", reply.status());
        let token = reply.headers().get("x-subject-token").context("a token")?.to_str()?.to_owned();
        self.tokens.insert(who.to_owned(), token);
        Ok(reply.json::<Value>().await?["token"].take())
    }

    /// The address of a path; one that begins with `..` is not below the version.
    pub(crate) fn url(&self, service: &str, path: &str) -> Result<String> {
        let root = self.services.get(service).with_context(|| format!("no service {service}"))?;
        let version = ROOTS.iter().find(|(it, _)| *it == service).map_or("", |(_, version)| version);
        Ok(match path.strip_prefix("..") {
            Some(path) => format!("{root}{path}"),
            None => format!("{root}{version}{path}"),
        })
    }

    /// Each service's address, with the word that stands for it.
    pub(crate) fn roots(&self) -> Vec<(String, String)> {
        let mut roots: Vec<_> =
            self.services.iter().map(|(kind, url)| (url.clone(), format!("<{kind}>"))).collect();
        roots.sort_by_key(|(url, _)| std::cmp::Reverse(url.len()));
        roots
    }
}
