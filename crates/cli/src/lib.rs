//! All of the one binary: wiring, nothing else. `main.rs` calls [`main`].
//!
//! ```text
//!   args ─► settings ─► run      folder ─► engine ─► host; admin beside them        run.rs, control.rs
//!                    ├► controller, node: the same with a cluster                        member.rs
//!                    ├► node --prepare: settings of the machine                         prepare.rs
//!                    ├► probe: asks a controller or a node of the same pod              probe.rs
//!                    └► plan, check, explain: the same folder, or a cloud, planned and not done  look.rs
//!        ├► init, schema: the first manifest, and what editors know of all             init.rs, schema.rs
//!        ├► import: another load balancer's configuration as manifests                  import.rs
//!        ├► kubectl status, explain, drain: a cluster looked at once                   kubectl.rs
//!        ├► crds: what a Kubernetes cluster has to know and to allow                     crates/cluster
//!        └► openstack check, show: a cloud looked at with the user's credentials     openstack.rs
//! ```

mod announcing;
mod args;
mod control;
mod demo;
#[cfg(test)]
mod deploy;
pub mod fuzz;
mod import;
mod init;
mod kubectl;
mod look;
mod member;
mod openstack;
mod operate;
mod output;
#[cfg(test)]
mod pages;
mod prepare;
mod probe;
mod reasons;
mod rights;
mod run;
mod running;
mod schema;
mod settings;
mod version;
mod watchdog;

use std::{path::PathBuf, process::ExitCode};

use clap::{CommandFactory, Parser};

use crate::args::{Cli, Command, ConfigArgs, SchemaKind, kubectl::Plugin};

pub fn main() -> ExitCode {
    if is_plugin() {
        return told(kubectl::run(&Plugin::parse().kubectl));
    }
    let done = match Cli::parse().command {
        Command::Run(arguments) => run::run(&arguments),
        Command::Controller(arguments) => {
            let arguments = args::ProcessArgs { cloud: arguments.cloud, ..arguments.member };
            member::run(&arguments, member::Part::Controller)
        }
        Command::Node(arguments) if arguments.prepare => prepare::run(),
        Command::Node(mut arguments) => {
            arguments.member.snapshot = arguments.snapshot.take();
            arguments.member.handover = arguments.handover.take();
            member::run(&arguments.member, member::Part::Node)
        }
        Command::Probe(arguments) => probe::run(&arguments),
        Command::Status(arguments) => operate::status(&arguments),
        Command::Drain(arguments) => operate::drain(&arguments),
        Command::Weight(arguments) => operate::weight(&arguments),
        Command::Reset(arguments) => operate::reset(&arguments),
        Command::Reload(arguments) => operate::reload(&arguments),
        Command::Plan(arguments) => look::plan(&arguments),
        Command::Check(arguments) => look::check::check(&arguments),
        Command::Explain(arguments) => look::explain(&arguments),
        Command::Init(arguments) => init::run(&arguments),
        Command::Config(arguments) => config(&arguments),
        Command::Schema { which } => {
            let schema = match which {
                SchemaKind::Manifests => schema::manifests::schema(),
                SchemaKind::Config => schema::config::schema(),
            };
            serde_json::to_string_pretty(&schema).map_err(Into::into).map(|text| {
                output::line(&text);
                ExitCode::SUCCESS
            })
        }
        Command::Demo(arguments) => match &arguments.backend {
            Some(name) => demo::serve_backend(name, arguments.port),
            None => demo::run(&arguments),
        }
        .map(|()| ExitCode::SUCCESS),
        Command::Import(arguments) => import::run(&arguments),
        Command::Crds => {
            output::line(seaway_cluster::crds::definitions().trim_end());
            output::line("---");
            output::line(seaway_cluster::crds::roles().trim_end());
            Ok(ExitCode::SUCCESS)
        }
        Command::Kubectl(arguments) => kubectl::run(&arguments),
        Command::OpenStack(arguments) => openstack::run(&arguments),
        Command::Reasons { names } => reasons::run(&names),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "seaway", &mut text);
            output::bytes(&text);
            Ok(ExitCode::SUCCESS)
        }
        Command::Man => {
            let mut text = Vec::new();
            clap_mangen::Man::new(Cli::command()).render(&mut text).map(|()| {
                output::bytes(&text);
                ExitCode::SUCCESS
            })
        }
        .map_err(Into::into),
    };
    told(done)
}

/// kubectl calls whatever is called so.
fn is_plugin() -> bool {
    let called = std::env::args_os().next().map(PathBuf::from);
    called.is_some_and(|it| it.file_name().is_some_and(|name| name == "kubectl-seaway"))
}

fn told(done: anyhow::Result<ExitCode>) -> ExitCode {
    done.unwrap_or_else(|error| {
        output::error(&format!("seaway: {}", seaway_engine::chain(error.as_ref())));
        ExitCode::FAILURE
    })
}

fn config(arguments: &ConfigArgs) -> anyhow::Result<ExitCode> {
    let Some(file) = &arguments.check else {
        output::line(settings::EXAMPLE.trim_end());
        return Ok(ExitCode::SUCCESS);
    };
    look::check::check_config(file)
}
