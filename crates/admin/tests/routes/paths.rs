//! Every path, asked through a real socket.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use seaway_admin::{
    Admin, BindError, Binding, BoundSockets, View, api_server_metrics, logging::LogHandle,
    node_controller_metrics, view::Readiness,
};

use crate::{
    api_server,
    client::{ask, send},
    view,
};

/// Serves what the closure tells while the test asks.
pub(crate) fn serving(source: impl Fn() -> View + Send + Sync + 'static, test: impl FnOnce(SocketAddr)) {
    serving_with(|it| it, source, test);
}

pub(crate) fn serving_with(
    change: impl FnOnce(BoundSockets) -> BoundSockets,
    source: impl Fn() -> View + Send + Sync + 'static,
    test: impl FnOnce(SocketAddr),
) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let admin = runtime.block_on(async { serve(change, source) });
    test(admin.addresses()[0]);
    runtime.block_on(admin.stop());
}

fn serve(
    change: impl FnOnce(BoundSockets) -> BoundSockets,
    source: impl Fn() -> View + Send + Sync + 'static,
) -> Admin {
    let anywhere = Binding::Exactly(vec!["127.0.0.1:0".parse().unwrap()]);
    change(BoundSockets::bind(&anywhere).unwrap())
        .with_metrics_source(api_server_metrics(|| api_server::at(2)))
        .with_metrics_source(node_controller_metrics(|| api_server::node_controllers(2)))
        .serve(seaway_admin::immediate_source(move || Arc::new(source())), LogHandle::detached())
}

pub(crate) fn sample(test: impl FnOnce(SocketAddr)) {
    serving(|| view::at(1000), test);
}

fn rows(csv: &str) -> Vec<BTreeMap<String, String>> {
    let mut lines = csv.lines();
    let columns: Vec<&str> = lines.next().unwrap().trim_start_matches("# ").split(',').collect();
    lines
        .map(|line| {
            let cells = cells(line);
            assert_eq!(cells.len(), columns.len(), "{line}");
            columns.iter().map(|column| column.to_string()).zip(cells).collect()
        })
        .collect()
}

fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut quoted) = (vec![String::new()], false);
    for c in line.chars() {
        match c {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            c => cells.last_mut().unwrap().push(c),
        }
    }
    cells
}

/// What HAProxy 2.6.12 printed on Debian 12, copied from its output.
const HAPROXY_2_6: &str = "# pxname,svname,qcur,qmax,scur,smax,slim,stot,bin,bout,dreq,dresp,ereq,econ,eresp,\
wretr,wredis,status,weight,act,bck,chkfail,chkdown,lastchg,downtime,qlimit,pid,iid,sid,throttle,lbtot,tracked,\
type,rate,rate_lim,rate_max,check_status,check_code,check_duration,hrsp_1xx,hrsp_2xx,hrsp_3xx,hrsp_4xx,hrsp_5xx,\
hrsp_other,hanafail,req_rate,req_rate_max,req_tot,cli_abrt,srv_abrt,comp_in,comp_out,comp_byp,comp_rsp,lastsess,\
last_chk,last_agt,qtime,ctime,rtime,ttime,agent_status,agent_code,agent_duration,check_desc,agent_desc,check_rise,\
check_fall,check_health,agent_rise,agent_fall,agent_health,addr,cookie,mode,algo,conn_rate,conn_rate_max,conn_tot,\
intercepted,dcon,dses,wrew,connect,reuse,cache_lookups,cache_hits,srv_icur,src_ilim,qtime_max,ctime_max,rtime_max,\
ttime_max,eint,idle_conn_cur,safe_conn_cur,used_conn_cur,need_conn_est,uweight,agg_server_status,\
agg_server_check_status,agg_check_status,-,ssl_sess,ssl_reused_sess,ssl_failed_handshake,h2_headers_rcvd,\
h2_data_rcvd,h2_settings_rcvd,h2_rst_stream_rcvd,h2_goaway_rcvd,h2_detected_conn_protocol_errors,\
h2_detected_strm_protocol_errors,h2_rst_stream_resp,h2_goaway_resp,h2_open_connections,h2_backend_open_streams,\
h2_total_connections,h2_backend_total_streams,h1_open_connections,h1_open_streams,h1_total_connections,\
h1_total_streams,h1_bytes_in,h1_bytes_out,h1_spliced_bytes_in,h1_spliced_bytes_out,";

#[test]
fn the_csv_has_the_columns_of_haproxy_2_6_at_all_of_its_paths() {
    sample(|at| {
        for path in ["/;csv", "/stats;csv", "/haproxy?stats;csv", "/;csv;norefresh"] {
            let answer = ask(at, path);
            assert_eq!((answer.status, answer.body.lines().next()), (200, Some(HAPROXY_2_6)), "{path}");
        }
    });
}

#[test]
fn the_csv_tells_of_frontends_servers_and_backends() {
    sample(|at| {
        let rows = rows(&ask(at, "/;csv").body);
        let row = |proxy: &str, server: &str| {
            let found = rows.iter().find(|row| row["pxname"] == proxy && row["svname"] == server);
            found.unwrap_or_else(|| panic!("no row {proxy} {server}"))
        };
        let frontend = row("default/shop:443", "FRONTEND");
        assert_eq!((&*frontend["type"], &*frontend["status"], &*frontend["mode"]), ("0", "OPEN", "tcp"));
        // Of both addresses.
        assert_eq!((&*frontend["stot"], &*frontend["dreq"], &*frontend["slim"]), ("1333", "6", "40000"));
        let down = row("default/shop:443", "[2001:db8:42:2::1a]:8443");
        assert_eq!((&*down["type"], &*down["status"], &*down["econ"]), ("2", "DOWN", "41"));
        assert_eq!((&*down["last_chk"], &*down["wredis"]), ("connection refused", "41"));
        assert!(down["lastchg"].parse::<u64>().is_ok_and(|seconds| seconds >= 312));
        let backend = row("default/shop:443", "BACKEND");
        assert_eq!((&*backend["type"], &*backend["act"], &*backend["algo"]), ("1", "2", "leastconn"));
        assert_eq!(row("infra/dns:53/udp", "10.42.0.21:5353")["status"], "no check");
        assert_eq!((&*backend["req_tot"], &*backend["hrsp_2xx"]), ("", ""), "requests are of HTTP alone");
        for (part, server, failed) in [
            ("80", "FRONTEND", "3"),
            ("default/web:80", "10.42.0.30:8080", "2"),
            ("default/web:80", "BACKEND", "2"),
        ] {
            let row = row(&format!("frontDoor:{part}"), server);
            let told = ["mode", "req_tot", "hrsp_2xx", "hrsp_4xx", "hrsp_5xx"].map(|column| &*row[column]);
            assert_eq!(told, ["http", "9000", "9000", "7", failed], "{server}");
        }
        let hostile = format!("default/{}:5432", view::HOSTILE.replace('"', ""));
        assert_eq!(row(&hostile, "FRONTEND")["status"], "STOP");
        let names: BTreeSet<_> = rows.iter().map(|row| (&row["pxname"], &row["svname"])).collect();
        assert_eq!(names.len(), rows.len(), "no two rows have one name");
    });
}

#[test]
fn state_is_the_view_with_rates_and_the_process() {
    serving(
        {
            let looks = AtomicU64::new(0);
            move || view::at(1_000_000 * looks.fetch_add(1, Ordering::Relaxed))
        },
        |at| {
            let state = || -> serde_json::Value { serde_json::from_str(&ask(at, "/state").body).unwrap() };
            let first = state();
            assert_eq!(first["services"][0]["listeners"][0]["rate"], serde_json::Value::Null);
            assert_eq!(first["readiness"]["state"], "ready");
            assert_eq!(first["services"][0]["pools"][0]["members"][2]["state"], "down");
            assert_eq!(first["problems"][0]["place"]["line"], 14);
            assert!(first["process"]["residentBytes"].as_u64() > Some(1_000_000));
            let second = until(|| {
                let state = state();
                state["services"][0]["listeners"][0]["rate"]["connections"].as_f64()
            });
            assert!(second > 100_000.0, "{second}");
        },
    );
}

#[test]
fn state_is_filtered_and_limited_when_asked() {
    sample(|at| {
        let names = |path: &str| -> Vec<String> {
            let state: serde_json::Value = serde_json::from_str(&ask(at, path).body).unwrap();
            let services = state["services"].as_array().unwrap().iter();
            services.map(|service| service["owner"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(names("/state").len(), 4);
        assert_eq!(names("/state?q=infra%2FDNS"), ["Service infra/dns"]);
        assert_eq!(names("/state?q=10.42.3.2"), ["Service default/shop"]);
        // The one that is not served goes first.
        assert_eq!(names("/state?limit=1"), [format!("Service default/{}", view::HOSTILE)]);
    });
}

#[test]
fn ready_says_why_not_until_it_is() {
    for (readiness, status, text) in [
        (Readiness::Starting, 503, "starting"),
        (Readiness::Waiting { why: "2 of 3 listeners are bound".into() }, 503, "2 of 3 listeners are bound"),
        (Readiness::Ready, 200, "ready"),
        (Readiness::Stopping, 503, "stopping"),
    ] {
        serving(
            move || View { readiness: readiness.clone(), ..View::default() },
            |at| {
                let answer = ask(at, "/ready");
                assert_eq!(answer.status, status);
                assert!(answer.body.contains(text), "{}", answer.body);
                assert_eq!(ask(at, "/live").status, 200);
            },
        );
    }
}

#[test]
fn the_log_level_is_shown_and_set_but_not_for_a_web_page() {
    sample(|at| {
        assert_eq!(ask(at, "/log").body, "info\n");
        let set = send(at, "PUT", "/log", "", "warn,seaway_proxy=debug\n");
        assert_eq!((set.status, &*set.body), (200, "warn,seaway_proxy=debug\n"));
        assert_eq!(ask(at, "/log").body, "warn,seaway_proxy=debug\n");
        let misspelt = send(at, "PUT", "/log", "", "debgu");
        assert_eq!(misspelt.status, 400);
        assert!(misspelt.body.contains("'debgu' is not a log level"), "{}", misspelt.body);
        let foreign = send(at, "PUT", "/log", "Origin: http://evil.example\r\n", "trace");
        assert_eq!(foreign.status, 403);
        let long = send(at, "PUT", "/log", "", &"x".repeat(5000));
        assert_eq!(long.status, 400);
        assert_eq!(ask(at, "/log").body, "warn,seaway_proxy=debug\n");
    });
}

#[test]
fn unknown_paths_and_methods_are_answered_with_what_there_is() {
    sample(|at| {
        for path in ["/nothing", "/state;csv", "/haproxyx", "//", "/live/"] {
            let answer = ask(at, path);
            assert_eq!(answer.status, 404, "{path}");
            assert!(answer.body.contains("/metrics   for Prometheus"), "{}", answer.body);
        }
        for (method, path, allow) in
            [("POST", "/state", "GET, HEAD"), ("DELETE", "/log", "GET, HEAD, PUT"), ("PUT", "/", "GET, HEAD")]
        {
            let answer = send(at, method, path, "", "");
            assert_eq!((answer.status, answer.header("allow")), (405, Some(allow)), "{method} {path}");
        }
        let head = send(at, "HEAD", "/", "", "");
        assert_eq!((head.status, &*head.body), (200, ""));
        assert!(head.header("content-length").unwrap().parse::<usize>().unwrap() > 1000);
    });
}

#[test]
fn every_answer_carries_the_security_headers() {
    sample(|at| {
        for path in ["/", "/state", "/;csv", "/metrics", "/live", "/ready", "/log", "/nothing"] {
            let answer = ask(at, path);
            assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
            assert_eq!(answer.header("cache-control"), Some("no-store"), "{path}");
            let policy = answer.header("content-security-policy").expect(path);
            assert!(policy.starts_with("default-src 'none'"), "{path}: {policy}");
            assert!(!policy.contains("unsafe"), "{path}: {policy}");
        }
    });
}

#[test]
fn an_address_in_use_is_named() {
    sample(|at| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let error = runtime.block_on(async { BoundSockets::bind(&Binding::Exactly(vec![at])) }).unwrap_err();
        assert!(matches!(error, BindError::InUse(address) if address == at), "{error:?}");
        assert!(error.to_string().contains(&at.to_string()), "{error}");
    });
}

#[test]
fn both_families_may_be_bound_to_everything_on_one_port() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let _context = runtime.enter();
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return seaway_testkit::skip(None, "this machine has no ::1");
    }
    until(|| {
        // Another test may take the port in between; then another one is tried.
        let port = std::net::TcpListener::bind("0.0.0.0:0").unwrap().local_addr().unwrap().port();
        let both = vec![
            SocketAddr::new("0.0.0.0".parse().unwrap(), port),
            SocketAddr::new("::".parse().unwrap(), port),
        ];
        BoundSockets::bind(&Binding::Exactly(both)).ok()
    });
}

#[test]
fn a_stopped_page_leaves_its_address_to_a_successor() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    runtime.block_on(async {
        // Below those that the kernel gives away, or somebody else might be given it.
        let mut free = (10_000..30_000).map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let first = free.find_map(|at| BoundSockets::bind(&Binding::Exactly(vec![at])).ok()).unwrap();
        let admin =
            first.serve(seaway_admin::immediate_source(|| Arc::new(View::default())), LogHandle::detached());
        let at = admin.addresses()[0];
        admin.stop().await;
        BoundSockets::bind(&Binding::Exactly(vec![at])).unwrap();
    });
}

#[test]
fn a_peer_that_never_ends_its_head_is_cut_off() {
    sample(|at| {
        let start = Instant::now();
        let mut slow = TcpStream::connect(at).unwrap();
        slow.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n").unwrap();
        slow.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let mut rest = Vec::new();
        _ = slow.read_to_end(&mut rest);
        let took = start.elapsed();
        assert!(took >= Duration::from_secs(4) && took < Duration::from_secs(15), "{took:?}");
    });
}

#[test]
fn a_head_that_is_too_large_is_refused() {
    sample(|at| {
        let answer = send(at, "GET", "/live", &format!("X-Long: {}\r\n", "x".repeat(15_000)), "");
        assert_eq!(answer.status, 200, "what fits is served");
        let mut stream = TcpStream::connect(at).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        // It is refused before all of it is read, so the end may not be taken any more.
        _ = stream.write_all(format!("GET / HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(200_000)).as_bytes());
        let mut answer = Vec::new();
        _ = stream.read_to_end(&mut answer);
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
    });
}

#[test]
fn idle_connections_cannot_keep_others_out_for_long() {
    sample(|at| {
        let _idle: Vec<TcpStream> = (0..150).map(|_| TcpStream::connect(at).unwrap()).collect();
        assert_eq!(ask(at, "/live").status, 200);
    });
}

fn until<T>(mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "it never came");
        std::thread::yield_now();
    }
}

#[test]
fn an_address_for_reading_tells_everything_and_changes_nothing() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let admin = runtime.block_on(async {
        let loopback = Binding::Exactly(vec!["127.0.0.1:0".parse().unwrap()]);
        let bound = BoundSockets::bind(&loopback)
            .unwrap()
            .with_read_only_listener("127.0.0.2".parse().unwrap())
            .unwrap();
        bound.serve(seaway_admin::immediate_source(|| Arc::new(view::at(1000))), LogHandle::detached())
    });
    let [own, pod] = admin.addresses() else { panic!("{:?}", admin.addresses()) };
    assert_eq!((own.port(), pod.ip().to_string()), (pod.port(), "127.0.0.2".to_owned()));
    for path in ["/", "/state", "/;csv", "/metrics", "/live", "/ready", "/log"] {
        assert_eq!(ask(*pod, path).status, 200, "{path}");
        for method in ["PUT", "POST", "PATCH", "DELETE"] {
            // Though the one who asks is this machine.
            let refused = send(*pod, method, path, "", "trace");
            assert_eq!(
                (refused.status, refused.header("allow")),
                (405, Some("GET, HEAD")),
                "{method} {path}"
            );
            assert!(refused.body.contains("localhost"), "{}", refused.body);
        }
    }
    assert_eq!(ask(*pod, "/log").body, "info\n");
    assert_eq!(send(*own, "PUT", "/log", "", "debug").status, 200);
    assert_eq!(ask(*pod, "/log").body, "debug\n");
    runtime.block_on(admin.stop());
}

#[test]
fn an_address_that_is_listened_at_already_is_enough() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        for (listens, also) in [("127.0.0.1:0", "127.0.0.1"), ("0.0.0.0:0", "127.0.0.2")] {
            let bound = BoundSockets::bind(&Binding::Exactly(vec![listens.parse().unwrap()])).unwrap();
            assert_eq!(
                bound.with_read_only_listener(also.parse().unwrap()).unwrap().addresses().len(),
                1,
                "{listens}"
            );
        }
    });
}
