//! Signing in and calling, against servers that do what a test says, down to the bytes; and objects of all kinds, against
//! the fake.

mod calls;
mod certificates;
mod changes;
mod cloud_conf;
mod counted;
mod credentials;
mod fuzz_seeds;
mod hurried;
mod keystone;
mod kinds;
mod logged;
mod proxies;
mod resources;
mod scripted;
mod secrets;
mod session;
mod sign_in;
mod tls;
mod trouble;
mod versions;

use std::{
    env,
    process::{Command, Output},
};

/// This program in a process of its own, asked for one test, for what belongs to a process.
pub(crate) fn again(test: &str, environment: &[(&str, &str)]) -> Output {
    let this = env::current_exe().expect("this program");
    Command::new(this)
        .args([test, "--exact", "--ignored", "--nocapture"])
        .envs(environment.iter().copied())
        .output()
        .expect("it runs")
}
