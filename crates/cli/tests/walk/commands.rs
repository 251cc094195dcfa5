//! Commands that touch nothing: plan, check, explain, config, help.

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    ops::Range,
    os::unix::fs::PermissionsExt,
    process::Stdio,
};

use seaway_testkit::topology::Running;

use crate::{
    backends::{Backend, Web, manifest},
    harness::{Folder, PATIENCE, Setup, path, run, seaway, stderr, stdout, until},
};

fn endpoint() -> SocketAddr {
    "127.0.0.1:9".parse().expect("an address")
}

#[test]
fn check_is_silent_about_good_manifests_and_exits_with_1_for_bad_ones() {
    let folder = Folder::new();
    folder.write("shop.yaml", &manifest("shop", 8080, &[], &[endpoint()]));
    let good = run(&["check", path(&folder.manifests())]);
    assert!(good.status.success(), "{}{}", stdout(&good), stderr(&good));

    folder.write(
        "bad.yaml",
        "apiVersion: v1\nkind: Service\nmetadata:\n  name: Bad_Name\nspec:\n  ports:\n  - port: 0\n",
    );
    folder.write("worse.yaml", "kind: [Service\n");
    let bad = run(&["check", path(&folder.manifests())]);
    assert_eq!(bad.status.code(), Some(1));
    let told = stdout(&bad);
    assert!(told.contains("bad.yaml:4:"), "{told}");
    assert!(told.contains("bad.yaml:7:"), "{told}");
    assert!(told.contains("worse.yaml:"), "{told}");
    assert!(!told.contains("shop.yaml"), "{told}");
}

#[test]
fn check_reads_one_file_and_standard_input_and_the_folder_may_stand_without_a_flag() {
    let folder = Folder::new();
    folder.write("shop.yaml", &manifest("shop", 8080, &[], &[endpoint()]));
    folder.write("bad.yaml", "kind: [Service\n");
    let file = |name: &str| folder.manifests().join(name);
    let good = run(&["check", path(&file("shop.yaml"))]);
    assert!(good.status.success(), "{}{}", stdout(&good), stderr(&good));
    let bad = run(&["check", path(&file("bad.yaml"))]);
    assert_eq!(bad.status.code(), Some(1));
    assert!(stdout(&bad).starts_with(&format!("{}:", file("bad.yaml").display())), "{}", stdout(&bad));

    let piped = |name: &str| {
        let text = std::fs::File::open(file(name)).expect("it was written");
        seaway().args(["check", "-"]).stdin(text).output().expect("it runs")
    };
    let good = piped("shop.yaml");
    assert!(
        good.status.success() && stderr(&good).contains("standard input: no problems"),
        "{}",
        stderr(&good)
    );
    let bad = piped("bad.yaml");
    assert_eq!(bad.status.code(), Some(1));
    let told = stdout(&bad);
    assert!(told.starts_with("standard input:1:7: Manifest standard input:"), "{told}");

    std::fs::remove_file(file("bad.yaml")).expect("it was there");
    let dir = folder.manifests();
    let same = |one: &[&str], other: &[&str]| assert_eq!(stdout(&run(one)), stdout(&run(other)));
    same(&["plan", path(&dir)], &["plan", "--manifests", path(&dir)]);
    same(&["explain", "shop", path(&dir)], &["explain", "shop", "--manifests", path(&dir)]);
    assert!(stdout(&run(&["plan", path(&dir)])).contains("default/shop"));
    let nowhere = run(&["plan"]);
    assert!(stderr(&nowhere).contains("write the folder after the command"), "{}", stderr(&nowhere));
}

#[test]
fn check_names_what_is_written_and_counts_for_nothing() {
    let folder = Folder::new();
    let told = || {
        let checked = run(&["check", path(&folder.manifests())]);
        assert_eq!(checked.status.code(), Some(1), "{}", stderr(&checked));
        stdout(&checked)
    };
    assert!(told().contains("this folder has no manifests: names of manifests end in .yaml, .yml or .json"));

    let shop = "apiVersion: v1\nkind: Service\nmetadata: {name: shop}\nspec:\n  ports: [{port: 80, targetport: 9}]\n";
    folder.write("shop.yaml", shop);
    folder.write("web.yaml", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web}\n");
    folder.write("list.yaml", "backends: [a]\n");
    folder.write("kustomization.yaml", "resources: [shop.yaml]\n");
    folder.write("other.yml.txt", shop);
    folder.write("aside.yaml.bak", shop);
    let text = told();
    for part in [
        "unknown field, which is ignored (did you mean \"targetPort\"?)",
        "web.yaml:2:7: Manifest web.yaml: kind: Ingress web is not served here: write an HTTPRoute",
        "list.yaml:1:1: Manifest list.yaml: not a Kubernetes object",
        "Manifest other.yml.txt: this file is not read: names of manifests end in .yaml, .yml or .json",
    ] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    assert!(!text.contains("kustomization") && !text.contains("aside"), "{text}");
}

#[test]
fn check_tells_what_the_plan_would_notice() {
    let folder = Folder::new();
    folder.write("shop.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: shop}\nspec:\n  type: LoadBalancer\n  selector: {app: shop}\n  ports: [{port: 8080}]\n");
    let output = run(&["check", path(&folder.manifests())]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("kind: EndpointSlice"), "{}", stdout(&output));
}

#[test]
fn plan_prints_addresses_ports_and_members_as_a_table_and_as_json() {
    let folder = Folder::new();
    folder.write("shop.yaml", &manifest("shop", 8080, &[], &[endpoint()]));
    folder.write("pool.yaml", "apiVersion: seaway.dev/v1alpha1\nkind: AddressPool\nmetadata: {name: public}\nspec:\n  addresses: [192.0.2.10-192.0.2.20]\n");
    let table =
        run(&["plan", "--manifests", path(&folder.manifests()), "--state-dir", path(&folder.state())]);
    let text = stdout(&table);
    assert!(table.status.success(), "{}", stderr(&table));
    for part in ["default/shop", "192.0.2.10", "8080/TCP", "public"] {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    let json = run(&[
        "plan",
        "--manifests",
        path(&folder.manifests()),
        "-o",
        "json",
        "--state-dir",
        path(&folder.state()),
    ]);
    let value: serde_json::Value = serde_json::from_str(&stdout(&json)).expect("it is JSON");
    assert_eq!(value["services"][0]["addresses"][0], "192.0.2.10");
    assert_eq!(value["services"][0]["pools"][0]["members"][0]["address"], "127.0.0.1:9");
    assert!(!folder.state().exists(), "a plan writes nothing");
}

#[test]
fn explain_tells_why_this_address_and_these_members() {
    let folder = Folder::new();
    folder.write("shop.yaml", &manifest("shop", 8080, &[], &[endpoint()]));
    let output = run(&["explain", "shop", "--manifests", path(&folder.manifests())]);
    let text = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    assert!(text.contains("127.0.0.1:9  listed as ready"), "{text}");
    let unknown = run(&["explain", "shpo", "--manifests", path(&folder.manifests())]);
    assert!(!unknown.status.success());
    assert!(stderr(&unknown).contains("did you mean default/shop?"), "{}", stderr(&unknown));
    folder.write(
        "web.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {ports: [{port: 0}]}\n",
    );
    let broken = stderr(&run(&["explain", "web", "--manifests", path(&folder.manifests())]));
    assert!(broken.contains("web.yaml:4:17: Service default/web: spec.ports[0].port"), "{broken}");
}

#[test]
fn init_writes_a_first_folder_that_check_accepts_and_overwrites_nothing() {
    let folder = Folder::new();
    let at = |name: &str| folder.0.path().join(name);
    let init = |dir: &str, flags: &[&str]| run(&[&["init", path(&at(dir))], flags].concat());
    let tcp = ["--port", "8081", "--backends", "127.0.0.1:3000 weight=2, 127.0.0.1:3001 backup"];
    let http = ["--host", "shop.example/api", "--backends", "127.0.0.1:3000", "--port", "8082"];
    for (dir, flags, listed, next) in [
        ("tcp", &tcp[..], "8081/TCP", "curl http://127.0.0.1:8081/"),
        ("one/http", &http[..], "shop.example/api", "curl -H 'Host: shop.example' http://127.0.0.1:8082/api"),
    ] {
        let output = init(dir, flags);
        assert!(output.status.success(), "{}", stderr(&output));
        let command = format!("seaway run {} --address 127.0.0.1", path(&at(dir)));
        assert!(stdout(&output).contains(&command) && stdout(&output).contains(next), "{}", stdout(&output));
        let checked = run(&["check", path(&at(dir))]);
        assert!(checked.status.success(), "{}{}", stdout(&checked), stderr(&checked));
        let planned = stdout(&run(&["plan", path(&at(dir)), "--address", "127.0.0.1"]));
        assert!(planned.contains(listed) && planned.contains("127.0.0.1"), "{planned}");
        let file = at(dir).join(if dir == "tcp" { "tcp.yaml" } else { "http.yaml" });
        let text = std::fs::read_to_string(&file).expect("it is written");
        assert!(text.starts_with("# yaml-language-server: $schema=.seaway-schema.json\n"), "{text}");
        let schema = std::fs::read(at(dir).join(".seaway-schema.json")).expect("it is written");
        serde_json::from_slice::<serde_json::Value>(&schema).expect("it is JSON");
        std::fs::write(&file, "mine").expect("written");
        let again = init(dir, flags);
        assert!(
            !again.status.success() && stderr(&again).contains("is not overwritten"),
            "{}",
            stderr(&again)
        );
        assert_eq!(std::fs::read_to_string(&file).expect("it is there"), "mine");
    }
    let text = std::fs::read_to_string(at("one/seaway.yaml")).expect("it is written");
    let schema = text.lines().next().and_then(|it| it.split_once("$schema=")).expect("it names one").1;
    assert!(at("one").join(schema).exists(), "{text}");
    let config = run(&["config", "--check", path(&at("one/seaway.yaml"))]);
    assert!(config.status.success(), "{}", stdout(&config));
    let wrong = init("wrong", &["--backends", "127.0.0.1:300x"]);
    assert!(!wrong.status.success() && !at("wrong").exists());
    assert!(stderr(&wrong).contains("the port must be a number from 1 to 65535"), "{}", stderr(&wrong));
    let silent = init("wrong", &[]);
    assert!(!silent.status.success() && stderr(&silent).contains("--backends"), "{}", stderr(&silent));
}

#[test]
fn schemas_are_json_for_editors() {
    for (which, title) in
        [("manifests", "Manifests of a folder that Seaway serves"), ("config", "seaway.yaml")]
    {
        let schema: serde_json::Value =
            serde_json::from_str(&stdout(&run(&["schema", which]))).expect("it is JSON");
        assert_eq!(schema["title"], title);
        assert_eq!(schema["$schema"], "http://json-schema.org/draft-07/schema#");
    }
}

#[test]
fn explain_asks_the_process_that_serves_the_folder_how_members_stand() {
    let (one, gone) = (Backend::start("one"), Backend::start("gone"));
    let shop = manifest("shop", 8080, &[], &[one.at, gone.at]);
    let seaway = Setup::new().write("shop.yaml", &shop).start();
    let folder = seaway.folder.clone();
    let (manifests, state) = (folder.manifests(), folder.state());
    let explain = || {
        let output = run(&["explain", "shop", path(&manifests), "--state-dir", path(&state)]);
        assert!(output.status.success(), "{}", stderr(&output));
        stdout(&output)
    };
    let line = |at: SocketAddr, now: &str| format!("  {at}  listed as ready; now {now}");
    let at = gone.at;
    drop(gone);
    until("one is up and the other down", || {
        let text = explain();
        text.contains(&line(one.at, "up\n")) && text.contains(&line(at, "down: "))
    });
    assert!(explain().contains(&format!("serves this folder: http://{}/", seaway.admin())), "{}", explain());
    // No flag and no configuration says where it serves: the process does.
    let ip = seaway.ip.to_string();
    assert!(explain().contains(&ip), "{ip} {}", explain());
    drop(seaway);
    let text = explain();
    assert!(text.contains(&format!("  {at}  listed as ready\n")), "{text}");
    assert!(
        text.contains("folder answers: the last process that served this folder does not answer"),
        "{text}"
    );
}

#[test]
fn the_example_configuration_is_accepted_and_a_wrong_one_is_refused_with_its_line() {
    let folder = Folder::new();
    let example = stdout(&run(&["config", "--example"]));
    let file = folder.config(&example);
    let good = run(&["config", "--check", path(&file)]);
    assert!(good.status.success() && stdout(&good) == "no problems\n", "{}", stdout(&good));
    for (text, part) in [
        (
            "log: {level: verbose}\n",
            "seaway.yaml:1:7: log.level: Invalid value: \"verbose\": must be off, error",
        ),
        (
            "frontDoor: {certificates: [{cert: none.pem, key: none.key}]}\n",
            "none.pem cannot be read: No such file",
        ),
    ] {
        let wrong = run(&["config", "--check", path(&folder.config(text))]);
        assert_eq!(wrong.status.code(), Some(1), "{text}");
        assert!(stdout(&wrong).contains(part), "{}", stdout(&wrong));
    }
    let file = folder.config("log:\n  levle: info\n");
    let wrong = run(&["config", "--check", path(&file)]);
    assert_eq!(wrong.status.code(), Some(1));
    let told = stdout(&wrong) + &stderr(&wrong);
    assert!(told.contains("seaway.yaml:2:3: log.levle: unknown field (did you mean \"level\"?)"), "{told}");
}

#[test]
fn a_folder_that_is_not_there_is_named() {
    let output = run(&["check", "/nowhere/at/all"]);
    assert!(!output.status.success());
    assert!(stderr(&output).contains("/nowhere/at/all"), "{}", stderr(&output));
}

#[test]
fn help_version_completions_and_manual_are_there() {
    let help = stdout(&run(&["--help"]));
    assert!(help.contains("seaway demo") && help.contains("seaway check"), "{help}");
    assert!(stdout(&run(&["--version"])).contains('('), "the commit is told");
    assert!(stdout(&run(&["completions", "bash"])).contains("complete"));
    assert!(stdout(&run(&["man"])).contains(".TH"));
}

#[test]
fn flags_of_the_old_bank_become_a_configuration_that_is_accepted() {
    let folder = Folder::new();
    let json = folder.0.path().join("loadbalancer.json");
    std::fs::write(&json, r#"{"name": "haproxy", "reloadCmd": "./haproxy_reload", "algorithm": "source"}"#)
        .expect("written");
    let page = folder.0.path().join("gone.html");
    std::fs::write(&page, "gone").expect("written");
    let page = format!("--error-page=file://{}", path(&page));
    let output = run(&[
        "import",
        "service-loadbalancer",
        "--config",
        path(&json),
        "--tcp-services=mysql:3306,nginxsvc:443",
        "--use-kubernetes-cluster-service=false",
        "--http-port",
        "8080",
        &page,
        "--default-return-code=410",
    ]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = stdout(&output);
    for part in
        ["port: 8080", "- mysql:3306", "balance: source-hash", "code: 410", "Seaway connects to no cluster"]
    {
        assert!(text.contains(part), "{part} is missing:\n{text}");
    }
    let checked = run(&["config", "--check", path(&folder.config(&text))]);
    assert!(checked.status.success(), "{}", stdout(&checked));
    let wrong = run(&["import", "service-loadbalancer", "--tcp-services=mysql"]);
    assert!(!wrong.status.success() && stderr(&wrong).contains("mysql:3306"), "{}", stderr(&wrong));
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    for arguments in [&["completions", "bash"][..], &["completions", "fish"], &["man"], &["crds"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ended =
            seaway().args(arguments).stdout(writer).stderr(Stdio::piped()).output().expect("seaway starts");
        assert!(ended.status.success() && ended.stderr.is_empty(), "{arguments:?}: {}", stderr(&ended));
    }
}

#[test]
fn a_reason_is_explained_and_an_unknown_one_is_refused() {
    let told = run(&["reasons", "portconflict", "Served"]);
    let text = stdout(&told);
    assert!(text.contains("  PortConflict\n    Another Service has this port"), "{text}");
    assert!(text.contains("    What to do: Choose another port") && text.contains("  Served\n"), "{text}");
    let all = stdout(&run(&["reasons"]));
    assert!(
        all.contains("Problems:\n\n  Unreadable\n") && all.contains("Events:\n\n  AddressPublished\n"),
        "{all}"
    );
    let unknown = run(&["reasons", "Nonsense"]);
    assert!(!unknown.status.success());
    let text = String::from_utf8_lossy(&unknown.stderr).into_owned();
    assert!(text.contains("no reason is called \"Nonsense\"") && text.contains("`seaway reasons`"), "{text}");
}

#[test]
fn check_reads_files_with_the_rights_of_run_and_run_wants_a_folder() {
    let folder = Folder::new();
    folder.write("shop.yaml", &manifest("shop", 8080, &[], &[endpoint()]));
    let file = folder.manifests().join("shop.yaml");
    let served = run(&["run", path(&file), "--state-dir", path(&folder.state())]);
    let told = stderr(&served);
    assert!(!served.status.success() && told.lines().count() == 1, "nothing is logged before: {told}");
    assert!(told.contains("shop.yaml is a file: seaway run serves and watches a folder"), "{told}");
    // As root, too: whoever serves has given up the right to read every file.
    let mode = |mode| std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).expect("set");
    mode(0o000);
    let checked = run(&["check", path(&folder.manifests())]);
    let told = stdout(&checked);
    assert_eq!(checked.status.code(), Some(1), "{told}");
    assert!(told.contains("shop.yaml: cannot be read: Permission denied"), "{told}");
    assert!(told.contains("Let the account that runs Seaway read the file"), "{told}");
    mode(0o600);
    assert!(run(&["check", path(&folder.manifests())]).status.success());
}

/// One that is free now; no other test uses these.
fn free_port(mut within: Range<u16>) -> u16 {
    within.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).expect("a port is free")
}

#[test]
fn what_init_writes_is_served_at_localhost_by_the_command_that_it_prints() {
    let folder = Folder::new();
    let (port, status) = (free_port(22_000..22_500), free_port(22_500..23_000));
    let (one, two) = (Web::start("one"), Web::start("two"));
    let web = folder.0.path().join("web");
    let backends = format!("{},{}", one.at, two.at);
    let written = run(&["init", path(&web), "--port", &port.to_string(), "--backends", &backends]);
    assert!(written.status.success(), "{}", stderr(&written));
    let next = format!("seaway run {} --address 127.0.0.1", path(&web));
    assert!(stdout(&written).contains(&next), "{}", stdout(&written));
    let _served = Running::start(
        seaway()
            .args(["run", path(&web), "--address", "127.0.0.1"])
            .args(["--state-dir", path(&folder.state()), "--status-port", &status.to_string()])
            .stdout(Stdio::null())
            .stderr(Stdio::null()),
    );
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(("localhost", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    let both = BTreeSet::from(["one".to_owned(), "two".to_owned()]);
    let mut answered = BTreeSet::new();
    until("both answer", || {
        answered.extend(ask().ok().and_then(|it| it.lines().last().map(str::to_owned)));
        answered == both
    });
}

#[test]
fn the_status_page_is_at_the_port_that_a_flag_names() {
    let port = free_port(21_000..22_000);
    let folder = Folder::new();
    let mut child = seaway()
        .args(["run", path(&folder.manifests()), "--state-dir", path(&folder.state())])
        .args(["--address", "127.0.0.1", "--status-port", &port.to_string()])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("it starts");
    let answers = || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok();
    until("the status page is there", || answers() || child.try_wait().expect("a child").is_some());
    let is_there = answers();
    child.kill().expect("it runs");
    child.wait().expect("it ends");
    assert!(is_there);
}
