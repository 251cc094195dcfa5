//! Compressed responses, as programs that are in use read them.

use std::{
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Command, Output},
    thread,
};

use crate::{front_door::with_door, manifests::Service};

const DOOR: u16 = 8080;
const OWN: u16 = 8081;

fn page() -> String {
    (0..2_000).map(|it| format!("<p>paragraph {it}</p>\n")).collect()
}

/// Answers with a page, or with a picture. It ends with the test.
fn member() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("is bound");
    let answer = |mut stream: TcpStream| -> Option<()> {
        let lines = BufReader::new(stream.try_clone().ok()?).lines();
        let head: Vec<String> = lines.map_while(Result::ok).take_while(|it| !it.is_empty()).collect();
        let kind = if head.first()?.contains("picture") { "image/png" } else { "text/html; charset=utf-8" };
        let page = page();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nETag: \"a\"\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            page.len()
        );
        stream.write_all((head + &page).as_bytes()).ok()
    };
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // Who leaves early gets no answer.
            let _ = answer(stream);
        }
    });
    at
}

fn curl(arguments: &[&str]) -> Output {
    let output = Command::new("curl").args(["-sS", "--noproxy", "*", "-m", "20"]).args(arguments).output();
    let output = output.expect("curl runs");
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

#[test]
fn text_is_compressed_where_its_service_asks_for_it_and_any_client_reads_it() {
    let at = member();
    let own = Service::tcp("own", OWN).with("protocol", "http").with("compress", "gzip").to(at);
    let route = "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: route}\n\
                 spec: {rules: [{matches: [{path: {value: /by-route}}], backendRefs: [{name: shop, port: 80}]}]}\n";
    let seaway = with_door("")
        .write("own.yaml", &own.text())
        .write("shop.yaml", &Service::web("shop").with("compress", "gzip").to(at).text())
        .write("plain.yaml", &Service::web("plain").to(at).text())
        .write("route.yaml", route)
        .start();
    assert_eq!(seaway.problems(), []);
    let page = page();
    let urls = [(OWN, "/"), (DOOR, "/shop/"), (DOOR, "/by-route")];
    for (port, path) in urls {
        for version in ["--http1.1", "--http2-prior-knowledge"] {
            let url = format!("http://{}{path}", seaway.at(port));
            let read = curl(&[version, "--compressed", &url]);
            assert!(read.stdout == page.as_bytes(), "{version} {url}: another page");
            let asked =
                ["-H", "Accept-Encoding: gzip", "-D", "-", "-o", "/dev/null", "-w", "%{size_download}"];
            let told = curl(&[&[version][..], &asked, &[&url]].concat()).stdout;
            let told = String::from_utf8_lossy(&told).to_lowercase();
            assert!(told.contains("\r\ncontent-encoding: gzip\r\n"), "{version} {url}: {told}");
            assert!(told.contains("\r\nvary: accept-encoding\r\n") && told.contains("\r\netag: w/\"a\"\r\n"));
            assert!(!told.contains("content-length"), "{version} {url}: {told}");
            let size: usize = told.lines().last().and_then(|it| it.parse().ok()).expect("a size");
            assert!(size * 4 < page.len(), "{version} {url}: {size} of {}", page.len());
        }
        let url = format!("http://{}{path}", seaway.at(port));
        // By an implementation that verifies length and checksum.
        let script = "import gzip, urllib.request as r, sys; \
                      q = r.Request(sys.argv[1], headers={'Accept-Encoding': 'gzip'}); \
                      r.install_opener(r.build_opener(r.ProxyHandler({}))); \
                      sys.stdout.buffer.write(gzip.decompress(r.urlopen(q, timeout=20).read()))";
        let read = Command::new("python3").args(["-c", script, &url]).output().expect("python3 runs");
        assert!(read.stdout == page.as_bytes(), "{url}: {}", String::from_utf8_lossy(&read.stderr));
    }
    // Everything else is as it was.
    for (port, path, more) in [
        (DOOR, "/plain/", "X: y"),
        (DOOR, "/shop/picture", "X: y"),
        (OWN, "/", "Cookie: a=b"),
        (OWN, "/", "Authorization: Basic YTpi"),
        (OWN, "/", "Range: bytes=0-9"),
    ] {
        let url = format!("http://{}{path}", seaway.at(port));
        let told = curl(&["-H", "Accept-Encoding: gzip", "-H", more, "-D", "-", &url]).stdout;
        let told = String::from_utf8_lossy(&told).to_lowercase();
        let is_plain = !told.contains("content-encoding") && told.contains("content-length: ");
        assert!(is_plain && told.ends_with(&page), "{url} {more}: {}", &told[..300]);
    }
}
