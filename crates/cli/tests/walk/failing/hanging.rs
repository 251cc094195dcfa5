//! Threads of a running process are made to hang, from outside: nothing in it has to be written for that.

use std::{
    fs,
    io::{BufRead, BufReader, PipeWriter, Read, Write},
    net::{IpAddr, Ipv4Addr, SocketAddr},
    os::unix::process::ExitStatusExt,
    process::Child,
    thread,
};

use nix::{
    libc::SYS_pause,
    sys::{
        ptrace,
        signal::Signal,
        wait::{WaitPidFlag, waitpid},
    },
    unistd::Pid,
};

use crate::{
    harness::{Folder, Seaway, Setup, get, seaway, until},
    namespace::in_a_network_of_its_own,
};

/// `syscall`, of x86-64.
const CALL: i64 = 0x050f;

/// Has threads of that name wait for a signal, and none comes. They are in a system call when they wait, and begin another.
fn hang(process: u32, name: &str) {
    let threads = || {
        let all = fs::read_dir(format!("/proc/{process}/task")).expect("it runs").flatten();
        let its = all.filter(|it| {
            fs::read_to_string(it.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name)
        });
        let numbers = its.filter_map(|it| it.file_name().to_str()?.parse().ok());
        numbers.map(Pid::from_raw).collect::<Vec<_>>()
    };
    let all = threads();
    assert!(!all.is_empty(), "{process} has no thread {name}");
    for thread in all {
        until(&format!("{name} waits"), || has_paused(thread));
    }
}

/// Where it is in no system call, it is left as it is.
fn has_paused(thread: Pid) -> bool {
    ptrace::attach(thread).expect("a child is traced");
    waitpid(thread, Some(WaitPidFlag::__WALL)).expect("it stops");
    let mut registers = ptrace::getregs(thread).expect("it has stopped");
    let at = registers.rip - 2;
    let is_in_call = ptrace::read(thread, at as ptrace::AddressType).is_ok_and(|it| it & 0xffff == CALL);
    if is_in_call {
        // The call that was cut short is not begun again.
        (registers.rip, registers.rax, registers.orig_rax) = (at, SYS_pause as u64, u64::MAX);
        ptrace::setregs(thread, registers).expect("it has stopped");
    }
    ptrace::detach(thread, None).expect("it is ours");
    is_in_call
}

fn until_it_has_said(seaway: &Seaway, what: &str) {
    until(&format!("it has said that {what}"), || {
        seaway.log().contains(&format!("{what}; the process exits so that the supervisor restarts it"))
    });
}

#[test]
fn a_process_of_which_any_thread_hangs_ends_and_says_which() {
    let parts = [
        ("worker-0", "worker 0 of the data plane hangs"),
        ("prober", "the prober hangs"),
        ("manifests", "the watch of the folder of manifests hangs"),
        ("control", "the runtime of the control plane hangs"),
    ];
    let mut all = parts.map(|(name, told)| (Setup::new().start(), name, told));
    for (seaway, name, _) in &all {
        hang(seaway.child.id(), name);
    }
    for (seaway, _, told) in &mut all {
        assert_eq!(seaway.wait().code(), Some(1), "{}", seaway.log());
        until_it_has_said(seaway, told);
    }
}

/// Ends with its test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Its prober hangs while nobody takes what it logs: until it ends there are two seconds in which that can be seen.
fn is_not_live_and_aborts(mut process: Process, at: SocketAddr, mut log: PipeWriter) {
    // There is no room for another line.
    thread::spawn(move || log.write_all(&[b'\n'; 1 << 20]));
    hang(process.0.id(), "prober");
    let mut why = String::new();
    until("it is not live", || {
        let answer = get(at, "/live").ok().filter(|(status, _)| *status == 503);
        answer.map(|(_, told)| why = told).is_some()
    });
    assert_eq!(why.trim_end(), "the prober hangs");
    let ended = process.0.wait().expect("it is ours");
    assert_eq!(ended.signal(), Some(Signal::SIGABRT as i32), "{ended}");
}

#[test]
fn a_process_of_which_a_thread_hangs_is_not_live_and_ends_where_it_cannot_say_why() {
    let folder = Folder::new();
    let config = folder.config("admin: {listen: [\"127.0.0.1:0\"]}\nfrontDoor: {enabled: false}\n");
    let (log, written) = std::io::pipe().expect("a pipe");
    let mut command = seaway();
    command.arg("run").arg("--config").arg(config).arg("--manifests").arg(folder.manifests());
    command.arg("--state-dir").arg(folder.state()).stderr(written.try_clone().expect("the same pipe"));
    let process = Process(command.spawn().expect("seaway starts"));
    let mut lines = BufReader::new(log).lines().map_while(Result::ok);
    let at = lines.find_map(|line| {
        let (_, at) = line.split_once("status page at http://")?;
        at.split('/').next()?.parse().ok()
    });
    let at = at.expect("it says where its status page is");
    until("it is ready", || get(at, "/ready").is_ok_and(|(status, _)| status == 200));
    is_not_live_and_aborts(process, at, written);
    drop(lines);
}

const AT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1_936);

/// Of a cluster whose API server is away.
const NOBODY: &str = "
clusters: [{name: it, cluster: {server: \"https://127.0.0.1:1\"}}]
users: [{name: me, user: {token: none}}]
contexts: [{name: here, context: {cluster: it, user: me}}]
current-context: here
";

#[test]
fn a_part_of_a_cluster_of_which_a_thread_hangs_is_not_live_and_ends() {
    in_a_network_of_its_own(a_node_and_a_controller_hang);
}

fn a_node_and_a_controller_hang() {
    let folder = Folder::new();
    // It logs nothing until it has to.
    let config =
        folder.config("{defaultDriver: native, log: {level: error}, admin: {listen: [\"127.0.0.1:1936\"]}}");
    let kubeconfig = folder.0.path().join("kubeconfig");
    fs::write(&kubeconfig, NOBODY).expect("written");
    let start = |part: &str, log: &PipeWriter| {
        let mut command = seaway();
        command.arg(part).arg("--kubeconfig").arg(&kubeconfig).arg("--config").arg(&config);
        command.args(["--namespace", "default", "--host", "a"]);
        if part == "node" {
            command.arg("--snapshot").arg(folder.0.path().join("snapshot"));
        }
        let process =
            Process(command.stderr(log.try_clone().expect("the same pipe")).spawn().expect("it starts"));
        until("it lives", || get(AT, "/live").is_ok_and(|(status, _)| status == 200));
        process
    };
    let (unread, log) = std::io::pipe().expect("a pipe");
    is_not_live_and_aborts(start("node", &log), AT, log);
    drop(unread);

    let (mut log, written) = std::io::pipe().expect("a pipe");
    let mut controller = start("controller", &written);
    drop(written);
    hang(controller.0.id(), "control");
    let mut said = String::new();
    log.read_to_string(&mut said).expect("it ends with the process");
    assert!(said.contains("the runtime of the control plane hangs; the process exits"), "{said}");
    assert_eq!(controller.0.wait().expect("it is ours").code(), Some(1), "{said}");
}
