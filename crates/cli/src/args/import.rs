//! Of `seaway import`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub(crate) struct Import {
    #[command(subcommand)]
    pub(crate) source: ImportSource,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ImportSource {
    /// From Kubernetes' service-loadbalancer: its flags and its loadbalancer.json
    ///
    /// Prints a seaway.yaml. A setting without a counterpart becomes a comment that says what to do instead.
    ///
    ///     seaway import service-loadbalancer --tcp-services=mysql:3306 --balance-algorithm=leastconn > seaway.yaml
    ///     seaway import service-loadbalancer --config loadbalancer.json --http-port=8080
    #[command(verbatim_doc_comment)]
    ServiceLoadbalancer(ImportServiceLoadbalancer),
    /// From nginx: its nginx.conf, with the files that it includes
    ///
    /// Prints manifests and a seaway.yaml, and reports on standard error what is not translated, with file and line. What
    /// protects (allow, auth_basic, limit_req, …) and cannot be translated closes its location: requests get 403. Exits
    /// with 1 if something is not translated.
    ///
    ///     seaway import nginx /etc/nginx/nginx.conf
    ///     seaway import nginx /etc/nginx/nginx.conf --into web
    #[command(verbatim_doc_comment)]
    Nginx(ImportFile),
    /// From HAProxy: its haproxy.cfg
    ///
    /// Prints manifests and a seaway.yaml, and reports on standard error what is not translated, with file and line. What
    /// protects (http-request deny, auth, stick tables, …) and cannot be translated closes its routes: requests get 403.
    /// Exits with 1 if something is not translated.
    ///
    ///     seaway import haproxy /etc/haproxy/haproxy.cfg --into web
    #[command(verbatim_doc_comment)]
    Haproxy(ImportFile),
    /// From Ingress objects of Kubernetes, with the Services in the same file
    ///
    /// Prints HTTPRoutes, Services with annotations, and a seaway.yaml, and reports on standard error what is not translated,
    /// with file and line. What protects (whitelist-source-range, auth-url, …) and cannot be translated closes its routes:
    /// requests get 403. Exits with 1 if something is not translated.
    ///
    ///     kubectl get ingress,service -A -o yaml > all.yaml
    ///     seaway import ingress all.yaml --into web
    #[command(verbatim_doc_comment)]
    Ingress(ImportFile),
}

#[derive(Debug, Args)]
pub(crate) struct ImportFile {
    /// The file to read
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Write the manifests into this folder, and seaway.yaml beside it, instead of printing them; no file is overwritten
    #[arg(long, value_name = "DIR")]
    pub(crate) into: Option<PathBuf>,
    /// Report only what is not translated
    #[arg(long, short)]
    pub(crate) quiet: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ImportServiceLoadbalancer {
    /// The loadbalancer.json
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// The flags, unchanged
    #[arg(value_name = "FLAGS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) flags: Vec<String>,
}
