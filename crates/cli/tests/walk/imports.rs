//! What `seaway import` makes of a configuration answers as the program whose configuration it was: the same requests to both.

use std::{
    fs,
    net::{IpAddr, SocketAddr},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::{
    backends::Web,
    front_door::{Answer, ask},
    harness::{Folder, Seaway, Setup, own_address, path, run, stderr, stdout, until},
};

const PORT: u16 = 8080;

/// nginx or HAProxy, which ends with the test.
struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        // All of its processes are of its group.
        let group = nix::unistd::Pid::from_raw(self.0.id() as i32);
        let _ = nix::sys::signal::killpg(group, nix::sys::signal::Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

fn program(name: &str) -> Option<PathBuf> {
    let found =
        ["/usr/sbin", "/usr/bin", "/usr/local/sbin", "/usr/local/bin"].map(|it| Path::new(it).join(name));
    found.into_iter().find(|it| it.is_file())
}

/// Starts it in a folder with its configuration, and waits until it listens.
fn start(program: &Path, arguments: &[&str], at: SocketAddr) -> Other {
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
    let other = Other(command.spawn().expect("it starts"));
    until("it listens", || std::net::TcpStream::connect(at).is_ok());
    other
}

/// Seaway with what an import writes.
fn imported(kind: &str, text: &str, setup: Setup) -> Seaway {
    imported_at_door(kind, text, setup, "")
}

/// The same with more lines of `frontDoor`.
fn imported_at_door(kind: &str, text: &str, setup: Setup, door: &str) -> Seaway {
    let folder = Folder::new();
    let file = folder.0.path().join("configuration");
    fs::write(&file, text).expect("written");
    let written = folder.0.path().join("web");
    let done = run(&["import", kind, path(&file), "--into", path(&written)]);
    let config = folder.0.path().join("seaway.yaml");
    assert!(config.is_file(), "{}{}", stdout(&done), stderr(&done));
    let checked = run(&["check", path(&written), "--config", path(&config)]);
    assert!(checked.status.success(), "{}{}", stdout(&checked), stderr(&checked));
    for file in fs::read_dir(&written).expect("a folder").flatten() {
        let name = file.file_name().to_string_lossy().into_owned();
        setup.folder.write(&name, &fs::read_to_string(file.path()).expect("text"));
    }
    let text = fs::read_to_string(&config).expect("text");
    setup.config(&text.replace("frontDoor:\n", &format!("frontDoor:\n{door}"))).start()
}

/// What a client gets, and what the backend was asked for.
#[derive(Debug, PartialEq)]
struct ProxiedExchange {
    status: u16,
    body: String,
    location: Option<String>,
    /// The first line, and the Host.
    asked: Option<(String, String)>,
}

fn seen(at: SocketAddr, url: &str, more: &str, webs: &[&Web]) -> ProxiedExchange {
    let counts: Vec<usize> = webs.iter().map(|it| it.count()).collect();
    let answer: Answer = ask(at, "GET", url, more);
    let (host, _) = url.split_at(url.find('/').unwrap_or(url.len()));
    let asked = webs.iter().zip(counts).find(|(web, count)| web.count() > *count).map(|(web, _)| {
        let head = web.last_request();
        let line =
            head.lines().next().unwrap_or_default().split(" HTTP/").next().unwrap_or_default().to_owned();
        let host =
            head.lines().find_map(|it| it.split_once(": ").filter(|it| it.0.eq_ignore_ascii_case("host")));
        (line, host.map(|it| it.1.to_owned()).unwrap_or_default())
    });
    // Some say at which port, and who it is; some say neither.
    let location = answer.header("location").map(|it| {
        it.replace(&format!(":{PORT}"), "").trim_start_matches(&format!("http://{host}")).to_owned()
    });
    let body = if asked.is_some() { answer.body.clone() } else { String::new() };
    ProxiedExchange { status: answer.status, body, location, asked }
}

fn same(kind: &str, other: SocketAddr, seaway: &Seaway, urls: &[&str], more: &str, webs: &[&Web]) {
    for url in urls {
        let theirs = seen(other, url, more, webs);
        let ours = seen(seaway.at(PORT), url, more, webs);
        assert_eq!(ours, theirs, "{url}, of Seaway and of {kind}");
    }
}

fn nginx(at: IpAddr, folder: &Path, [shop, api, cart]: [&Web; 3]) -> String {
    let folder = folder.display();
    format!(
        "worker_processes 1;\npid {folder}/pid;\nerror_log {folder}/errors;\nevents {{ worker_connections 64; }}\nhttp {{\n\
         access_log off;\nclient_body_temp_path {folder}/body;\nproxy_temp_path {folder}/proxy;\nfastcgi_temp_path {folder}/fastcgi;\n\
         uwsgi_temp_path {folder}/uwsgi;\nscgi_temp_path {folder}/scgi;\n\
         upstream shop {{ least_conn; server {shop}; server 127.0.0.1:9 backup; }}\nproxy_set_header Host $host;\n\
         server {{\n listen {at}:{PORT} default_server;\n server_name shop.example;\n\
         location / {{ proxy_pass http://shop; }}\n\
         location /api/ {{ proxy_pass http://{api}/; }}\n\
         location /v2/ {{ proxy_pass http://{api}/version/2/; }}\n\
         location = /exact {{ proxy_pass http://{api}/found; }}\n\
         location ^~ /images/ {{ proxy_pass http://{cart}; }}\n\
         location ~ ^/item/[0-9]+$ {{ proxy_pass http://{cart}; }}\n\
         location ~* \\.(png|css)$ {{ proxy_pass http://{api}; }}\n\
         location = /old {{ return 301 /new; }}\n\
         location /moved {{ return 302 https://else.example$request_uri; }}\n\
         location /closed/ {{ deny all; proxy_pass http://shop; }}\n\
         location /office/ {{ allow 192.0.2.0/24; deny all; proxy_pass http://shop; }}\n\
         location /mine/ {{ allow 127.0.0.0/8; deny all; proxy_pass http://shop; }}\n\
         location ~ /\\.git {{ deny all; }}\n\
         location /secret {{ auth_basic a; auth_basic_user_file {folder}/users; proxy_pass http://shop; }}\n}}\n\
         server {{ listen {at}:{PORT}; server_name cart.example *.carts.example; location / {{ proxy_pass http://{cart}; }} location /a/ {{ rewrite ^/a/(.*)$ /b/$1 break; proxy_pass http://{cart}; }} }}\n\
         server {{ listen {at}:{PORT}; server_name www.shop.example; return 301 http://shop.example$request_uri; }}\n}}\n",
        shop = shop.at,
        api = api.at,
        cart = cart.at,
    )
}

#[test]
fn an_imported_nginx_conf_answers_as_nginx_does() {
    let Some(program) = program("nginx") else {
        return seaway_testkit::skip(Some("SEAWAY_NET_TESTS"), "there is no nginx");
    };
    let folder = tempfile::tempdir().expect("a folder");
    let (shop, api, cart) = (Web::start("shop"), Web::start("api"), Web::start("cart"));
    let webs = [&shop, &api, &cart];
    let theirs = SocketAddr::new(own_address().into(), PORT);
    let file = folder.path().join("nginx.conf");
    fs::write(&file, nginx(theirs.ip(), folder.path(), webs)).expect("written");
    fs::write(folder.path().join("users"), "a:b\n").expect("written");
    let _other =
        start(&program, &["-p", path(folder.path()), "-c", path(&file), "-g", "daemon off;"], theirs);
    let setup = Setup::new();
    let text = nginx(setup.ip.into(), folder.path(), webs);
    let seaway = imported("nginx", &text, setup);
    let paths = [
        "/",
        "/x?y=1",
        "/api/",
        "/api/a/b?c",
        "/v2/a",
        "/exact",
        "/exact/more",
        "/images/a.png",
        "/item/12",
        "/item/x",
        "/a.PNG",
        "/css/a.css",
        "/old",
        "/moved/a?b",
        "/closed/a",
        "/office/a",
        "/mine/a",
        "//office/a",
        "/%6Fffice/a",
        "/offic%65/a",
        "/.git/config",
        "/x/.git/config",
        "/apis",
        "/api",
        "/a/c",
    ];
    for host in ["shop.example", "unknown.example", "cart.example", "x.carts.example", "www.shop.example"] {
        let urls: Vec<String> = paths.iter().map(|it| format!("{host}{it}")).collect();
        let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
        same("nginx", theirs, &seaway, &urls, "", &webs);
    }
    // nginx asks for a password; without one, neither lets a request through.
    for path in ["/secret", "/secret/a", "/secrets", "//secret", "/s%65cret"] {
        let url = format!("shop.example{path}");
        assert_eq!(
            (seen(theirs, &url, "", &webs).status, seen(seaway.at(PORT), &url, "", &webs).status),
            (401, 403),
            "{url}"
        );
    }
}

fn haproxy(at: IpAddr, [shop, api, cart]: [&Web; 3]) -> String {
    format!(
        "defaults\n mode http\n timeout connect 5s\n timeout client 30s\n timeout server 30s\n\
         frontend web\n bind {at}:{PORT}\n\
         acl is_cart hdr(host) -i cart.example\n acl is_api path_beg /api/\n acl office src 192.0.2.0/24\n acl mine src 127.0.0.0/8\n\
         http-request deny if {{ path_beg /closed }}\n\
         http-request deny if {{ path_beg /office }} !office\n\
         http-request deny if {{ path_beg /mine }} !mine\n\
         http-request deny if {{ path_end .php }} is_cart\n\
         http-request deny if {{ hdr_sub(x-bot) -i evil }}\n\
         http-request redirect location /new code 301 if {{ path /old }}\n\
         redirect prefix http://shop.example code 302 if {{ hdr(host) -i www.shop.example }}\n\
         use_backend api if is_api\n\
         use_backend api if {{ hdr(x-version) 2 }}\n\
         use_backend cart if is_cart or {{ path_reg ^/item/[0-9]+$ }}\n\
         use_backend cart if {{ path_end .png .css }}\n\
         use_backend shop if {{ path_beg /api/v2 }}\n\
         default_backend shop\n\
         backend shop\n server shop {shop}\n server spare 127.0.0.1:9 backup\nbackend api\n server api {api}\nbackend cart\n server cart {cart}\n",
        shop = shop.at,
        api = api.at,
        cart = cart.at,
    )
}

#[test]
fn an_imported_haproxy_cfg_answers_as_haproxy_does() {
    let Some(program) = program("haproxy") else {
        return seaway_testkit::skip(Some("SEAWAY_NET_TESTS"), "there is no HAProxy");
    };
    let folder = tempfile::tempdir().expect("a folder");
    let (shop, api, cart) = (Web::start("shop"), Web::start("api"), Web::start("cart"));
    let webs = [&shop, &api, &cart];
    let theirs = SocketAddr::new(own_address().into(), PORT);
    let file = folder.path().join("haproxy.cfg");
    fs::write(&file, haproxy(theirs.ip(), webs)).expect("written");
    let _other = start(&program, &["-db", "-f", path(&file)], theirs);
    let setup = Setup::new();
    let text = haproxy(setup.ip.into(), webs);
    let seaway = imported("haproxy", &text, setup);
    let paths = [
        "/",
        "/x?y=1",
        "/api/",
        "/api/a",
        "/api/v2/x",
        "/apis",
        "/item/12",
        "/item/x",
        "/a.png",
        "/a.css?b",
        "/a.php",
        "/old",
        "/old/x",
        "/closed",
        "/closed/a",
        "/closedtoo",
        "/office/a",
        "/mine/a",
        "/mine",
        "/api/a.png",
    ];
    for more in ["", "X-Version: 2\r\n", "X-Bot: so evil\r\n", "X-Version: 2\r\nX-Bot: Evil\r\n"] {
        for host in ["shop.example", "cart.example", "CART.example", "www.shop.example"] {
            let urls: Vec<String> = paths.iter().map(|it| format!("{host}{it}")).collect();
            let urls: Vec<&str> = urls.iter().map(String::as_str).collect();
            same("HAProxy", theirs, &seaway, &urls, more, &webs);
        }
    }
}

#[test]
fn an_imported_ingress_is_served_by_host_and_path() {
    let (web, api) = (Web::start("web"), Web::start("api"));
    let sample = include_str!("../../src/import/samples/shop.yaml");
    let (of_web, of_api) = ("127.0.0.1:3000", "[{name: http, port: 3001}]");
    assert!(sample.contains(of_web) && sample.contains(of_api), "{sample}");
    let port = format!("[{{name: http, port: {}}}]", api.at.port());
    let text = sample.replace(of_web, &web.at.to_string()).replace(of_api, &port);
    let setup = Setup::new();
    let door = format!("  addresses: [\"{}\"]\n  port: {PORT}\n", setup.ip);
    let seaway = imported_at_door("ingress", &text, setup, &door);
    for (url, expected) in [
        ("shop.example/", "web"),
        ("shop.example/cart?x", "web"),
        ("shop.example/apis", "web"),
        ("shop.example/healthz", "web"),
        ("shop.example/api", "api"),
        ("shop.example/api/v1?y", "api"),
    ] {
        let answer = ask(seaway.at(PORT), "GET", url, "");
        assert_eq!((answer.status, answer.body.as_str()), (200, expected), "{url}");
    }
    assert!(api.last_request().starts_with("GET /api/v1?y HTTP/1.1\r\n"), "{}", api.last_request());
    // As with ingress-nginx, a Service is not at its name as well.
    for url in ["other.example/", "other.example/api", "any.example/web"] {
        assert_eq!(ask(seaway.at(PORT), "GET", url, "").status, 404, "{url}");
    }
    assert_eq!(seaway.problems(), []);
}
