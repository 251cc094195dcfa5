//! A web server of a few lines: it says its name.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

use anyhow::{Context, Result};

/// Starts this program as a backend and waits for the address it tells.
pub(super) fn start(name: &str, port: u16) -> Result<(Child, SocketAddr)> {
    let mut child = Command::new(super::own_binary()?)
        .args(["demo", "--backend", name, "--port", &port.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("a backend cannot be started")?;
    let told = child.stdout.take().context("a backend's output is piped")?;
    let mut line = String::new();
    BufReader::new(told).read_line(&mut line)?;
    let at = line
        .trim()
        .parse()
        .with_context(|| format!("backend {name} said {line:?} instead of its address"))?;
    Ok((child, at))
}

/// Be a backend until standard input ends: then the demo is gone.
pub(crate) fn serve(name: &str, port: u16) -> Result<()> {
    let listener =
        TcpListener::bind(("127.0.0.1", port)).with_context(|| format!("port {port} is not free"))?;
    crate::output::line(&listener.local_addr()?.to_string());
    thread::spawn(|| {
        let mut nothing = Vec::new();
        // Whether it ends or fails: whoever started us is not there any more.
        let _ = std::io::stdin().read_to_end(&mut nothing);
        std::process::exit(0);
    });
    for stream in listener.incoming() {
        let name = name.to_owned();
        // A client that hangs up is its own affair.
        thread::spawn(move || stream.and_then(|stream| answer(stream, &name)));
    }
    Ok(())
}

fn answer(mut stream: TcpStream, name: &str) -> std::io::Result<()> {
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let mut head = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    while head.read_line(&mut line)? > 2 {
        line.clear();
    }
    let body = format!("Hello from {name}\n");
    write!(
        stream,
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )
}
