//! A server that many run: `python3 -m http.server`, which reads no body of a GET.

use std::{
    io::{BufRead, BufReader},
    net::SocketAddr,
    process::{Child, Command, Stdio},
};

use crate::desync::{Client, HALF, Scene, no_harm, sized, tries};

struct Python {
    child: Child,
    at: SocketAddr,
    _folder: tempfile::TempDir,
}

impl Drop for Python {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `None`: there is no such Python here.
fn python() -> Option<Python> {
    let folder = tempfile::tempdir().unwrap();
    for name in ["attack", "victim"] {
        std::fs::write(folder.path().join(name), format!("/{name}")).unwrap();
    }
    let mut command = Command::new("python3");
    command.args(["-u", "-m", "http.server", "--bind", "127.0.0.1", "--protocol", "HTTP/1.1", "0"]);
    command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().ok()?;
    // "Serving HTTP on 127.0.0.1 port 40000 (http://127.0.0.1:40000/) ..."
    let mut line = String::new();
    let _ = BufReader::new(child.stdout.take()?).read_line(&mut line);
    let port = line.split_once(" port ").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    let Some(port) = port else {
        let _ = child.kill();
        let _ = child.wait();
        return None;
    };
    Some(Python { child, at: SocketAddr::from(([127, 0, 0, 1], port)), _folder: folder })
}

#[test]
fn no_client_of_a_stock_server_gets_another_one_s_answer() {
    let Some(python) = python() else {
        return seaway_testkit::skip(
            None,
            "there is no python3 whose http.server knows --protocol (3.11 does)",
        );
    };
    let mut scene = Scene::new("CL.0 at python3 -m http.server", python.at);
    for method in ["GET", "HEAD"].iter().cycle().take(tries()) {
        Client::new(scene.at).ask(&sized(method, HALF));
        scene.try_target("/victim");
    }
    no_harm([scene.judge()]);
}
