//! `seaway probe`: a kubelet's probe by exec. It asks the process of the same pod over a socket that no other pod has.

use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result};

use crate::{
    args::{Probe, ProbeKind},
    output,
};

/// Less than the `timeoutSeconds` of the probes, so that the reason is heard.
const ANSWERS_WITHIN: Duration = Duration::from_secs(4);
const MOST_BYTES: u64 = 64 << 10;

pub(crate) fn run(arguments: &Probe) -> Result<ExitCode> {
    let path = match arguments.what {
        ProbeKind::Live => "/live",
        ProbeKind::Ready => "/ready",
    };
    let socket = &arguments.socket;
    let (is_so, why) = ask(socket, path).with_context(|| {
        format!("no process answers at {}: it is still starting, or has ended", socket.display())
    })?;
    output::line(why.trim_end());
    Ok(if is_so { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// HTTP/1.0: the answer ends with the connection.
fn ask(socket: &Path, path: &str) -> io::Result<(bool, String)> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(ANSWERS_WITHIN))?;
    stream.set_write_timeout(Some(ANSWERS_WITHIN))?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(MOST_BYTES).read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
    Ok((head.split(' ').nth(1) == Some("200"), body.to_owned()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use seaway_admin::{Binding, BoundSockets, View, immediate_source, logging::LogHandle, view::Readiness};

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_process_says_over_a_socket_of_its_own_whether_it_lives_and_is_ready_also_once_its_pages_are_closed()
     {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("probes.sock");
        let asked = |path: &'static str| {
            let socket = socket.clone();
            tokio::task::spawn_blocking(move || ask(&socket, path))
        };
        assert!(asked("/live").await.unwrap().is_err(), "there is no process");
        // One that was killed has left it.
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        assert!(asked("/live").await.unwrap().is_err(), "none is there any more");
        let bound = BoundSockets::bind(&Binding::Exactly(vec!["127.0.0.1:0".parse().unwrap()])).unwrap();
        let bound = bound.with_probe_socket(&socket).unwrap();
        assert_eq!(socket.metadata().unwrap().permissions().mode() & 0o777, 0o600);
        let why = "another process of this host serves";
        let view = View { readiness: Readiness::Waiting { why: why.to_owned() }, ..View::default() };
        let view = std::sync::Arc::new(view);
        let mut admin = bound.serve(immediate_source(move || view.clone()), LogHandle::detached());
        assert_eq!(asked("/live").await.unwrap().unwrap(), (true, "live\n".to_owned()));
        let (is_ready, said) = asked("/ready").await.unwrap().unwrap();
        assert!(!is_ready && said.contains(why), "{said}");
        assert!(!asked("/state").await.unwrap().unwrap().0, "and nothing else");
        admin.close_pages().await;
        assert!(asked("/live").await.unwrap().unwrap().0);
        admin.stop().await;
        assert!(asked("/live").await.unwrap().is_err());
    }
}
