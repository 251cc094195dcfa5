use std::{
    io::{Read, Write},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use super::{
    super::{MemoryBudget, MemoryLimits},
    *,
};

const MIB: u64 = 1 << 20;

/// Groups as files in a folder: `(path, limit, usage, memory.stat)`, version 2.
fn world(own: &str, written: &[(&str, &str, &str, &str)]) -> (tempfile::TempDir, Cgroups) {
    let folder = tempfile::tempdir().expect("a folder");
    for (path, limit, usage, stat) in written {
        let group = folder.path().join(path);
        fs::create_dir_all(&group).expect("a folder");
        for (name, text) in [("memory.max", limit), ("memory.current", usage), ("memory.stat", stat)] {
            fs::write(group.join(name), text).expect("a file");
        }
    }
    let groups = Cgroups::of(&format!("0::/{own}\n"), folder.path());
    (folder, groups)
}

fn bytes(mib: u64) -> String {
    format!("{}\n", mib * MIB)
}

fn cached(inactive: u64, active: u64, slab: u64) -> String {
    format!(
        "anon 1\nfile 2\nshmem 7\ninactive_file {}\nactive_file {}\nslab_reclaimable {}\nslab_unreclaimable 9\n",
        inactive * MIB,
        active * MIB,
        slab * MIB
    )
}

#[test]
fn what_is_held_is_what_the_kernel_cannot_take_back() {
    let v1 = "cache 9\ninactive_file 1\nactive_file 2\ntotal_inactive_file 100\ntotal_active_file 200\n";
    for (usage, stat, expected) in [
        ("1000\n", "anon 5\ninactive_file 100\nactive_file 200\n", Some(700)),
        (
            "1000\n",
            "inactive_file 100\nactive_file 200\nslab_reclaimable 50\nslab_unreclaimable 60\n",
            Some(650),
        ),
        ("1000\n", v1, Some(700)),
        // They are not read at the same time.
        ("100\n", "inactive_file 100\nactive_file 200\n", Some(0)),
        ("1000\n", "inactive_file 100\n", None),
        ("1000\n", "inactive_file_x 100\nactive_file 200\n", None),
        ("1000\n", "inactive_file many\nactive_file 200\n", None),
        ("\n", "inactive_file 100\nactive_file 200\n", None),
    ] {
        assert_eq!(held(usage, stat).ok(), expected, "{usage:?} {stat:?}");
    }
}

#[test]
fn what_is_no_limit_is_none() {
    for (text, expected) in
        [("max\n", None), ("1048576\n", Some(1 << 20)), ("9223372036854771712\n", None), ("", None)]
    {
        assert_eq!(limit(text), expected, "{text:?}");
    }
}

#[test]
fn a_group_near_its_limit_is_short_by_what_cannot_go() {
    let nothing = cached(0, 0, 0);
    for (limit, usage, stat, expected) in [
        (bytes(100), bytes(89), &nothing, MemoryPressure::None),
        (bytes(100), bytes(91), &nothing, MemoryPressure::Near),
        (bytes(100), bytes(96), &nothing, MemoryPressure::AtHand),
        (bytes(100), bytes(100), &cached(5, 6, 0), MemoryPressure::None),
        (bytes(100), bytes(100), &cached(3, 3, 0), MemoryPressure::Near),
        (bytes(100), bytes(100), &cached(0, 0, 11), MemoryPressure::None),
        ("max\n".into(), bytes(1_000), &nothing, MemoryPressure::None),
        ("0\n".into(), bytes(1), &nothing, MemoryPressure::AtHand),
        // What cannot be read bounds nothing.
        (bytes(100), bytes(96), &String::new(), MemoryPressure::None),
        (bytes(100), "many".into(), &nothing, MemoryPressure::None),
    ] {
        let (_folder, groups) = world("pod/seaway", &[("pod/seaway", &limit, &usage, stat)]);
        assert_eq!(groups.shortage(), expected, "{limit} {usage} {stat}");
    }
}

#[test]
fn a_group_above_is_short_only_by_what_this_process_can_give_back() {
    let nothing = cached(0, 0, 0);
    let ours = cached(20, 0, 0);
    for (own, stat, expected) in [
        (48, &nothing, MemoryPressure::Near),
        (30, &nothing, MemoryPressure::None),
        (60, &ours, MemoryPressure::None),
        (70, &ours, MemoryPressure::Near),
    ] {
        let own = bytes(own);
        let above = bytes(92);
        let all =
            [("pod/seaway", "max\n", own.as_str(), stat.as_str()), ("pod", "104857600\n", &above, &nothing)];
        let (_folder, groups) = world("pod/seaway", &all);
        assert_eq!(groups.shortage(), expected, "{own} {stat}");
    }
}

#[test]
fn files_that_are_not_there_or_go_bound_nothing() {
    assert_eq!(Cgroups::of("", Path::new("/nowhere")).shortage(), MemoryPressure::None);
    let (limit, usage, stat) = (bytes(100), bytes(96), cached(0, 0, 0));
    let (folder, groups) = world("a", &[("a", &limit, &usage, &stat)]);
    assert_eq!(groups.shortage(), MemoryPressure::AtHand);
    fs::remove_file(folder.path().join("a/memory.current")).expect("it goes");
    assert_eq!(groups.shortage(), MemoryPressure::None);
    assert!(groups.is_reported.load(Relaxed));
}

#[test]
fn the_group_comes_before_those_above_it() {
    let root = Path::new("/sys/fs/cgroup");
    let of = |written: &str| groups(written, root).into_iter().map(|it| it.limit).collect::<Vec<_>>();
    let expected = ["pod/seaway/memory.max", "pod/memory.max", "memory.max", "memory/memory.limit_in_bytes"];
    assert_eq!(of("0::/pod/seaway\n"), expected.map(|it| root.join(it)));
    let expected = ["memory/d/memory.limit_in_bytes", "memory.max", "memory/memory.limit_in_bytes"];
    assert_eq!(of("5:cpu,cpuacct:/a\n4:hugetlb,memory:/d\n"), expected.map(|it| root.join(it)));
}

/// A group of the kernel, and a process in it that holds memory until it is let go.
struct Held {
    folder: PathBuf,
    child: Child,
}

impl Held {
    /// `Err`: why there are no groups to be made here.
    fn new(limit: u64, held: u64) -> Result<Held, String> {
        let root = Path::new("/sys/fs/cgroup");
        let (base, file) = match root.join("memory").is_dir() {
            true => (root.join("memory"), "memory.limit_in_bytes"),
            false => (root.to_owned(), "memory.max"),
        };
        let folder = base.join(format!("seaway-test-{}", std::process::id()));
        let no_group =
            |error: io::Error| format!("no control group can be made in {}: {error}", base.display());
        fs::create_dir(&folder).map_err(no_group)?;
        if let Err(error) = fs::write(folder.join(file), limit.to_string()) {
            let _ = fs::remove_dir(&folder);
            return Err(no_group(error));
        }
        // It comes to the group before it takes memory.
        let script = "echo 0 > \"$0/cgroup.procs\" && exec \"$@\"";
        let program = std::env::current_exe().expect("this program");
        let test = "memory::cgroups::tests::holds_memory_until_its_input_ends";
        let mut command = Command::new("sh");
        command.args(["-c", script]).arg(&folder).arg(program).args([test, "--exact", "--ignored"]);
        command.env(HOLDS, held.to_string()).stdin(Stdio::piped()).stdout(Stdio::null());
        Ok(Held { folder, child: command.spawn().expect("a shell") })
    }

    fn groups(&self) -> Cgroups {
        let written = fs::read_to_string(format!("/proc/{}/cgroup", self.child.id())).expect("it runs");
        Cgroups::of(&written, Path::new("/sys/fs/cgroup"))
    }

    fn let_go(&mut self) {
        let mut stdin = self.child.stdin.take().expect("it is taken once");
        stdin.write_all(b"\n").expect("it is read");
        drop(stdin);
        assert!(self.child.wait().expect("a child").success());
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
        // The kernel lets go of the last process a moment after it has ended.
        let until = Instant::now() + Duration::from_secs(10);
        while fs::remove_dir(&self.folder).is_err() && Instant::now() < until {
            thread::yield_now();
        }
    }
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < end, "{what}");
        thread::yield_now();
    }
}

const HOLDS: &str = "SEAWAY_TEST_HOLDS";

#[test]
#[ignore = "run by another test, in a control group"]
fn holds_memory_until_its_input_ends() {
    let bytes = std::env::var(HOLDS).expect("who runs it says how much").parse().expect("a number");
    let held = std::hint::black_box(vec![1_u8; bytes]);
    io::stdin().read_to_end(&mut Vec::new()).expect("it is read");
    assert_eq!(held.len(), bytes);
}

/// 244,000,000 bytes are 91 of 100, and this program needs less than what is left.
#[test]
fn newcomers_are_refused_while_a_group_of_the_kernel_is_nearly_full() {
    let mut process = match Held::new(256 * MIB, 244_000_000) {
        Ok(process) => process,
        Err(why) => return seaway_testkit::skip(None, &why),
    };
    let own = process.folder.file_name().expect("a name").to_owned();
    until("it comes to its group", || {
        process.groups().groups.first().is_some_and(|it| it.usage.iter().any(|part| *part == *own))
    });
    let budget = MemoryBudget { groups: process.groups(), ..MemoryBudget::new(MemoryLimits::default()) };
    let mut now = 0;
    let mut is_used_up = || {
        now += 1_000;
        budget.look_at_groups(now);
        budget.is_used_up()
    };
    until("it is nearly full", &mut is_used_up);
    assert_eq!(budget.used(), 0, "all of it is held by another process");
    process.let_go();
    until("there is room again", || !is_used_up());
}
