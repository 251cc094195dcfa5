mod lines;
mod public;

use std::{collections::BTreeSet, fs, path::Path};

use super::*;
use crate::look;

/// A name and a text, and lines that no directive is in.
pub(super) fn text(name: &str, text: &str) -> Text {
    Text { name: name.into(), text: text.to_owned() }
}

pub(super) fn imported(kind: &str, of: &str) -> (Folder, Report) {
    in_folder(kind, of, Path::new("/etc/seaway-import-test/file"))
}

fn in_folder(kind: &str, of: &str, file: &Path) -> (Folder, Report) {
    let text = text("file", of);
    let imported = match kind {
        "nginx" => nginx::read_text(file, &text, LARGEST),
        "haproxy" => haproxy::read_text(file, &text),
        _ => ingress::read_text(&text),
    };
    written(imported.unwrap_or_else(|error| panic!("{error:#}\n{of}")))
}

/// All that is printed.
pub(super) fn printed(kind: &str, of: &str) -> String {
    imported(kind, of).0.printed()
}

const SAMPLES: [(&str, &str); 9] = [
    ("nginx", include_str!("samples/nextcloud.conf")),
    ("nginx", include_str!("samples/gitea.conf")),
    ("nginx", include_str!("samples/jenkins.conf")),
    ("nginx", include_str!("samples/stream.conf")),
    ("haproxy", include_str!("samples/web.cfg")),
    ("haproxy", include_str!("samples/tcp.cfg")),
    ("haproxy", include_str!("samples/tls.cfg")),
    ("ingress", include_str!("samples/shop.yaml")),
    ("ingress", include_str!("samples/annotations.yaml")),
];

/// A certificate with its key, in one file and in two.
fn certificates(folder: &Path) {
    let pair = rcgen::generate_simple_self_signed(["shop.example".to_owned()]).expect("a certificate");
    let (cert, key) = (pair.cert.pem(), pair.signing_key.serialize_pem());
    for (name, text) in [("cert.pem", &cert), ("key.pem", &key), ("both.pem", &format!("{cert}{key}"))] {
        fs::write(folder.join(name), text).expect("written");
    }
}

/// Problems of the folder that an import writes, as `seaway check` has them.
fn problems(folder: &Folder, at: &Path) -> Vec<seaway_model::Problem> {
    let dir = at.join("web");
    folder.write(&dir).expect("written");
    let config = at.join("seaway.yaml");
    let config = folder.config.is_some().then_some(config.as_path());
    look::mistakes_in(&dir, config).expect("it is planned")
}

#[test]
fn what_is_written_passes_seaway_check_and_every_line_comes_to_something() {
    for (number, (kind, of)) in SAMPLES.iter().enumerate() {
        let at = tempfile::tempdir().expect("a folder");
        certificates(at.path());
        let (folder, report) = in_folder(kind, of, &at.path().join("file"));
        assert_eq!(problems(&folder, at.path()), Vec::new(), "sample {number}:\n{}", folder.printed());
        assert!(!folder.manifests.is_empty(), "sample {number}");
        let known: BTreeSet<u32> = report.accounted().into_iter().map(|it| it.1).collect();
        for (line, text) in lines::directives(kind, of) {
            assert!(known.contains(&line), "sample {number}, line {line}: {text} is passed over");
        }
    }
}

/// What closes is more than the samples have.
#[test]
fn closed_routes_pass_seaway_check() {
    const TO: &str = "proxy_pass http://10.0.0.1:1; proxy_set_header Host $host;";
    let nginx = format!(
        "server {{ listen 80 default_server; location / {{ {TO} }} location ~ a$|b$ {{ deny all; }} location /f {{ root /srv; }} }} \
         server {{ listen 80; server_name localhost; if ($http_x) {{ return 403; }} location / {{ {TO} }} }}"
    );
    let haproxy = "defaults a\n mode http\ndefaults b from a\nfrontend f\n bind :80\n http-request deny if { hdr(x-a) 1 }\n \
                   use_backend x if { path_beg /secret- } !{ src 10.0.0.0/8 }\n use_backend x if { path_reg -i ^/ad }\n \
                   use_backend y if { path /admin }\n default_backend y\nbackend x\n http-request auth\n server a 10.0.0.1:1\n\
                   backend y\n server b 10.0.0.2:1\n";
    for (kind, of) in [("nginx", nginx.as_str()), ("haproxy", haproxy)] {
        let at = tempfile::tempdir().expect("a folder");
        let (folder, _) = in_folder(kind, of, &at.path().join("file"));
        assert_eq!(problems(&folder, at.path()), Vec::new(), "{}", folder.printed());
        assert!(folder.printed().contains("Closed, requests get 403"), "{}", folder.printed());
    }
}

#[test]
fn nothing_is_overwritten() {
    let at = tempfile::tempdir().expect("a folder");
    let (folder, _) = imported("haproxy", SAMPLES[4].1);
    folder.write(&at.path().join("web")).expect("written");
    let before = fs::read_to_string(at.path().join("seaway.yaml")).expect("it is there");
    let again = folder.write(&at.path().join("web")).expect_err("it is there already");
    assert!(again.to_string().contains("is not overwritten; nothing is written"), "{again}");
    let other = folder.write(&at.path().join("other")).expect_err("seaway.yaml is there already");
    assert!(other.to_string().contains("seaway.yaml exists already") && !at.path().join("other").exists());
    assert_eq!(fs::read_to_string(at.path().join("seaway.yaml")).expect("it is there"), before);
}

#[test]
fn secrets_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let at = tempfile::tempdir().expect("a folder");
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: t}\ndata: {tls.key: a2V5}\n";
    let service = "apiVersion: v1\nkind: Service\nmetadata: {name: s}\nspec: {ports: [{port: 80}]}\n";
    let mode =
        |name: &str| at.path().join(name).metadata().expect("it is there").permissions().mode() & 0o777;
    let (folder, _) = imported("ingress", &format!("{service}---\n{secret}"));
    folder.write(&at.path().join("all/web")).expect("written");
    assert_eq!((mode("all/web/secret-t.yaml"), mode("all/web")), (0o600, 0o700));
    let (folder, _) = imported("ingress", service);
    folder.write(&at.path().join("open")).expect("written");
    assert_ne!(mode("open/service-s.yaml"), 0o600);
}

#[test]
fn what_cannot_be_read_is_refused_with_its_place() {
    let deep = "http {".repeat(40);
    for (kind, of, why) in [
        ("nginx", "server { listen 80", "file:1: listen: the file ends before"),
        ("nginx", "a;\n}", "file:2: \"}\" is not expected here"),
        ("nginx", "a 'b", "file:1: a quote that does not end"),
        ("nginx", deep.as_str(), "nested deeper than 32 levels"),
        ("haproxy", "bind :80", "file:1: bind: a section such as"),
        ("haproxy", "global\n.if 1", "file:2: .if: conditions of the preprocessor (.if) are not read"),
        ("haproxy", "global\n a 'b", "file:2: a quote that does not end"),
        ("ingress", "a: [", "file"),
    ] {
        let text = text("file", of);
        let nowhere = Path::new("/nonexistent/file");
        let error = match kind {
            "nginx" => nginx::read_text(nowhere, &text, 0).err(),
            "haproxy" => haproxy::read_text(nowhere, &text).err(),
            _ => ingress::read_text(&text).err(),
        };
        let told = error.map(|it| format!("{it:#}")).unwrap_or_default();
        assert!(told.contains(why), "{of}: {told}");
    }
}

#[test]
fn a_file_that_is_too_large_is_refused() {
    let at = tempfile::tempdir().expect("a folder");
    let (main, more) = (at.path().join("nginx.conf"), at.path().join("more.conf"));
    fs::write(&main, "include more.conf;\n").expect("written");
    fs::write(&more, "#".repeat((LARGEST + 1) as usize)).expect("written");
    let error = nginx::read(&main).err().expect("it is too large");
    assert!(format!("{error:#}").contains("at most 4194304 bytes"), "{error:#}");
    // A file that includes itself ends, too.
    fs::write(&more, "include more.conf;\n").expect("written");
    let error = nginx::read(&main).err().expect("it has no end");
    assert!(format!("{error:#}").contains("nested deeper than 32 levels"), "{error:#}");
}
