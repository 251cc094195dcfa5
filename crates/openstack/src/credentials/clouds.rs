//! `clouds.yaml`, `secure.yaml` and `OS_…`, with the precedence of OpenStack's own client:
//!
//! ```text
//!     which cloud    the one asked for, else OS_CLOUD, else OS_… alone if any is set, else the only one there is
//!     which file     OS_CLIENT_CONFIG_FILE, ./clouds.yaml, ~/.config/openstack/, /etc/xdg/openstack/, /etc/openstack/;
//!                    the first that there is. The same for secure.yaml, by itself
//!     which value    OS_…  >  region  >  secure.yaml  >  clouds.yaml;  beside `auth:`  >  within it
//! ```

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use seaway_tree::{Entry, Node, Position, SyntaxError, Value};

use super::{
    LoadedCredentials, SourceLocation,
    environment::Environment,
    options::{Options, normalized_key, option_error},
    permissions,
    source::SourceFiles,
};
use crate::error::{Class, Error};

/// What selects a cloud or a file, and is no option of a cloud.
const SELECTORS: [&str; 5] =
    ["OS_CLOUD", "OS_CLOUD_NAME", "OS_REGION_NAME", "OS_CLIENT_CONFIG_FILE", "OS_CLIENT_SECURE_FILE"];

/// Prefixes of variables that belong to others (test frameworks of OpenStack).
const FOREIGN: [&str; 3] = ["OS_TEST", "OS_STD", "OS_LOG"];

pub(super) fn read(asked: Option<&str>, around: &Environment) -> Result<LoadedCredentials, Error> {
    let environment = environment(around);
    let wanted = asked.or_else(|| around.variable("OS_CLOUD"));
    let own_name = around.variable("OS_CLOUD_NAME").unwrap_or("envvars");
    match (wanted, environment) {
        (None, Some(environment)) => from_environment(environment, around),
        (Some(name), Some(environment)) if name == own_name => from_environment(environment, around),
        (wanted, environment) => {
            let mut found = CloudEntry::gather(wanted, around)?;
            if let Some(environment) = environment {
                found.options.merge(environment);
            }
            found.resolve(around)
        }
    }
}

/// As `use-clouds` of `cloud.conf` wants it: the file alone, and what is in `cloud.conf` on top of it.
pub(super) fn below(
    asked: Option<&str>,
    over: Options,
    around: &Environment,
) -> Result<(Options, SourceFiles, Vec<String>, String), Error> {
    let mut found = CloudEntry::gather(asked.or_else(|| around.variable("OS_CLOUD")), around)?;
    found.options.merge(over);
    Ok((found.options, found.files, found.warnings, found.whole))
}

fn from_environment(options: Options, around: &Environment) -> Result<LoadedCredentials, Error> {
    let resolved = options.resolve("the environment", around)?;
    LoadedCredentials::new(resolved, SourceFiles::default(), Vec::new(), "the environment")
}

/// None if the environment only selects.
fn environment(around: &Environment) -> Option<Options> {
    let ours = |name: &str| !FOREIGN.iter().any(|foreign| name.starts_with(foreign));
    let mut options = Options::default();
    let mut any = false;
    for (name, value) in around.openstack_variables().filter(|(name, _)| ours(name)) {
        any |= !SELECTORS.contains(&name);
        let key = name.strip_prefix("OS_").unwrap_or(name);
        if !SELECTORS.contains(&name) || name == "OS_REGION_NAME" {
            use secrecy::ExposeSecret;
            options.put_quietly(key, value.expose_secret(), SourceLocation(name.to_owned()));
        }
    }
    any.then_some(options)
}

/// One cloud of the files, before anybody asks what its keys mean.
struct CloudEntry {
    options: Options,
    files: SourceFiles,
    warnings: Vec<String>,
    whole: String,
}

impl CloudEntry {
    fn gather(wanted: Option<&str>, around: &Environment) -> Result<CloudEntry, Error> {
        let clouds = open("clouds", "OS_CLIENT_CONFIG_FILE", around)?;
        let secure = open("secure", "OS_CLIENT_SECURE_FILE", around)?;
        let Some(clouds) = clouds.or_else(|| secure.clone()) else { return Err(nothing(around, wanted)) };
        let secure = secure.filter(|secure| secure.path != clouds.path);
        let name = clouds.choose(wanted)?;
        let whole = format!("cloud {name:?} of {}", clouds.path.display());
        let mut found = CloudEntry {
            options: Options::default(),
            files: SourceFiles::default(),
            warnings: Vec::new(),
            whole,
        };

        let sources: Vec<(&File, &Node)> = [Some(&clouds), secure.as_ref()]
            .into_iter()
            .flatten()
            .filter_map(|file| Some((file, file.cloud(&name)?)))
            .collect();
        // What stands beside `auth:` counts more than what stands in it, in whichever file.
        for (file, cloud) in &sources {
            if let Some(auth) = child(cloud, "auth") {
                found.put_all(file, auth)?;
            }
        }
        for (file, cloud) in &sources {
            found.put_all(file, cloud)?;
        }
        let region = around.variable("OS_REGION_NAME");
        for (file, cloud) in &sources {
            if let Some(regions) = child(cloud, "regions") {
                found.put_region(file, regions, region)?;
            }
        }
        if let Some(region) = region {
            found.options.put("region_name", region, SourceLocation("OS_REGION_NAME".to_owned()));
        }
        for file in [Some(&clouds), secure.as_ref()].into_iter().flatten() {
            let secret = found.options.has_secret_of(&file.path.display().to_string());
            found.warnings.extend(permissions::check_permissions(&file.path, secret)?);
            found.files.used.push(file.path.clone());
        }
        for (name, variable, file) in [
            ("clouds", "OS_CLIENT_CONFIG_FILE", Some(&clouds)),
            ("secure", "OS_CLIENT_SECURE_FILE", secure.as_ref()),
        ] {
            let before = candidates(name, variable, around).into_iter();
            let before = before.take_while(|it| file.is_none_or(|file| *it != file.path));
            found.files.missing.extend(before.filter(|it| *it != clouds.path));
        }
        Ok(found)
    }

    fn put_all(&mut self, file: &File, map: &Node) -> Result<(), Error> {
        for entry in map.entries() {
            let key = normalized_key(&entry.key);
            let place = file.place(entry.at);
            match (&*key, &entry.value.value) {
                ("auth" | "regions", _) | (_, Value::Null) => {}
                ("profile" | "cloud", _) => self.warnings.push(format!(
                    "{place}: {key}: Seaway does not support vendor profiles: write auth_url and the other options here"
                )),
                (_, Value::Text(text)) => {
                    // An old client took several regions, divided by commas.
                    let text = if key == "region_name" { text.split(',').next().unwrap_or_default() } else { text };
                    self.options.put(&key, text, place);
                }
                ("region_name" | "interface", Value::List(items)) => {
                    if let Some(Node { value: Value::Text(first), .. }) = items.first() {
                        self.options.put(&key, first, place);
                    }
                }
                _ => {
                    self.warnings.push(format!("{place}: {key} is not used here"));
                }
            }
        }
        Ok(())
    }

    /// The one asked for, else the first; each a name, or a name with values of its own.
    fn put_region(&mut self, file: &File, regions: &Node, wanted: Option<&str>) -> Result<(), Error> {
        let Value::List(items) = &regions.value else {
            return Err(option_error(&file.place(regions.at), "regions", "must be a list"));
        };
        for item in items {
            let name = match &item.value {
                Value::Text(name) => name,
                _ => match child(item, "name").map(|name| &name.value) {
                    Some(Value::Text(name)) => name,
                    _ => {
                        return Err(option_error(
                            &file.place(item.at),
                            "regions",
                            "a region has to have a name",
                        ));
                    }
                },
            };
            if wanted.is_none_or(|wanted| wanted == name) {
                self.options.put("region_name", name, file.place(item.at));
                return child(item, "values").map_or(Ok(()), |values| {
                    child(values, "auth").map_or(Ok(()), |auth| self.put_all(file, auth))?;
                    self.put_all(file, values)
                });
            }
        }
        Ok(())
    }

    fn resolve(self, around: &Environment) -> Result<LoadedCredentials, Error> {
        let resolved = self.options.resolve(&self.whole, around)?;
        LoadedCredentials::new(resolved, self.files, self.warnings, &self.whole)
    }
}

/// The value of a key; `endpoint-type` and `endpoint_type` are one.
fn child<'a>(map: &'a Node, key: &str) -> Option<&'a Node> {
    map.entries().iter().find(|entry| normalized_key(&entry.key) == key).map(|entry| &entry.value)
}

fn place(file: &Path, at: Position) -> SourceLocation {
    SourceLocation(format!("{}:{}", file.display(), at.line))
}

/// Every scalar is text; an empty file is a null.
pub(super) fn parse(text: &str, file: &Path) -> Result<Node, Error> {
    let refused = |fault: SyntaxError| {
        let message = format!("{}: {}", place(file, fault.at), fault.message);
        Error::new(Class::Credentials, message).with_fix("the file has to be YAML")
    };
    let nothing = Node { at: Position { line: 1, column: 1 }, value: Value::Null };
    Ok(seaway_tree::parse_untyped(text).map_err(refused)?.unwrap_or(nothing))
}

#[derive(Clone)]
struct File {
    path: PathBuf,
    root: Node,
}

impl File {
    fn place(&self, at: Position) -> SourceLocation {
        place(&self.path, at)
    }

    fn clouds(&self) -> &[Entry] {
        child(&self.root, "clouds").map(Node::entries).unwrap_or_default()
    }

    fn cloud(&self, name: &str) -> Option<&Node> {
        self.clouds().iter().find(|entry| entry.key == name).map(|entry| &entry.value)
    }

    fn choose(&self, wanted: Option<&str>) -> Result<String, Error> {
        let names: Vec<&str> = self.clouds().iter().map(|entry| entry.key.as_str()).collect();
        let (path, listed) = (self.path.display(), names.join(", "));
        match (wanted, names.as_slice()) {
            (Some(wanted), names) if names.contains(&wanted) => Ok(wanted.to_owned()),
            (None, [only]) => Ok((*only).to_owned()),
            (_, []) => Err(Error::new(Class::Credentials, format!("{path} has no clouds"))
                .with_fix("write each cloud below `clouds:`, with its name as the key")),
            (Some(wanted), _) => {
                Err(Error::new(Class::Credentials, format!("{path} has no cloud {wanted:?}"))
                    .with_fix(format!("there are: {listed}")))
            }
            (None, _) => Err(Error::new(Class::Credentials, format!("{path} has several clouds"))
                .with_fix(format!("set OS_CLOUD to one of: {listed}"))),
        }
    }
}

/// The first that is there and may be read. Broken ones are an error: what stands in another file is not what was
/// meant.
fn open(name: &str, variable: &str, around: &Environment) -> Result<Option<File>, Error> {
    for path in candidates(name, variable, around) {
        match fs::read_to_string(&path) {
            Ok(text) => {
                let root = parse(&text, &path)?;
                return Ok(Some(File { path, root }));
            }
            Err(error) if passed_over(&error) => {}
            Err(source) => {
                let message = format!("{} cannot be read", path.display());
                return Err(Error::new(Class::Credentials, message).with_source(source));
            }
        }
    }
    Ok(None)
}

fn passed_over(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied
    )
}

fn candidates(name: &str, variable: &str, around: &Environment) -> Vec<PathBuf> {
    let own = around.variable(variable).map(|path| around.expand_path(path));
    own.into_iter()
        .chain(
            folders(around).iter().flat_map(|folder| {
                ["yaml", "yml", "json"].map(|ending| folder.join(format!("{name}.{ending}")))
            }),
        )
        .collect()
}

fn folders(around: &Environment) -> Vec<PathBuf> {
    let config = around.variable("XDG_CONFIG_HOME").map(PathBuf::from);
    let dot_config = around.home.as_deref().map(|home| home.join(".config"));
    let mut folders = vec![around.current_folder.clone()];
    folders.extend([config, dot_config].into_iter().flatten().map(|folder| folder.join("openstack")));
    folders.extend(["xdg/openstack", "openstack"].map(|folder| around.etc.join(Path::new(folder))));
    folders
}

fn nothing(around: &Environment, wanted: Option<&str>) -> Error {
    let looked: Vec<String> = candidates("clouds", "OS_CLIENT_CONFIG_FILE", around)
        .iter()
        .map(|it| it.display().to_string())
        .collect();
    let looked: Vec<String> =
        looked.into_iter().filter(|path| !path.ends_with(".yml") && !path.ends_with(".json")).collect();
    let what = wanted.map_or_else(|| "no credentials".to_owned(), |name| format!("no cloud {name:?}"));
    Error::new(Class::Credentials, format!("{what}: there is no clouds.yaml")).with_fix(format!(
        "set OS_AUTH_URL and the other OS_ variables, or write one of these files: {}",
        looked.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_yaml_is_told_by_line() {
        let error = |text: &str| parse(text, Path::new("clouds.yaml")).expect_err("is no YAML").to_string();
        assert!(error("a: 1\nb: [\n").starts_with("clouds.yaml:3: "), "{}", error("a: 1\nb: [\n"));
        assert_eq!(
            error("a: 1\na: 2\n"),
            "clouds.yaml:2: key \"a\" already set in map, at line 1; the file has to be YAML"
        );
    }

    #[test]
    fn dashes_count_as_underscores_and_merged_keys_count_less() {
        let root = parse("x: &x {a-b: 1, c: 2}\ny:\n  <<: *x\n  c: 03\n", Path::new("clouds.yaml"));
        let root = root.expect("is YAML");
        let y = child(&root, "y").expect("is there");
        let text = |key: &str| child(y, key).map(|it| it.value.clone());
        assert_eq!(text("a_b"), Some(Value::Text("1".to_owned())));
        assert_eq!(text("c"), Some(Value::Text("03".to_owned())));
    }
}
