use std::process::{Child, Command, ExitStatus, Stdio};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Runs a program to its end, and tells what it printed.
#[track_caller]
pub fn command(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.unwrap_or_else(|error| panic!("{program}: {error}"));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments:?}: {told}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// A process that ends with this value.
#[derive(Debug)]
pub struct Running(Child);

impl Running {
    #[track_caller]
    pub fn start(command: &mut Command) -> Running {
        let child = command.stdin(Stdio::null()).spawn();
        Running(child.unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    pub fn id(&self) -> u32 {
        self.0.id()
    }

    /// Its resident memory, in bytes.
    pub fn resident(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id())).unwrap_or_default();
        let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:")).unwrap_or_default();
        let kibibytes: u64 =
            line.trim().trim_end_matches(" kB").parse().expect("a process that runs has memory");
        kibibytes * 1024
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }

    /// Asks it to end, and waits until it has.
    pub fn stop(mut self) -> ExitStatus {
        let id = i32::try_from(self.0.id()).expect("process ids are small");
        kill(Pid::from_raw(id), Signal::SIGTERM).expect("it is not waited for yet, so its id is its own");
        self.0.wait().expect("it is a child")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
