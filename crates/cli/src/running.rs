//! The process that serves a folder, asked by its status page how members stand.

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream},
    path::Path,
    time::Duration,
};

use seaway_admin::{
    View,
    view::{MemberState, MemberView},
};
use seaway_files::{ServerInfo, state};
use seaway_model::PoolId;
use seaway_plan::{ServiceKey, explain::MemberStatuses};

const CONNECT: Duration = Duration::from_secs(1);
const ANSWER: Duration = Duration::from_secs(10);
/// Of the largest folder; another process at this port may send without end.
const MOST_BYTES: u64 = 256 << 20;

/// What the process that has this state folder says, if it serves this folder now; else why nothing is known.
pub(crate) fn ask_running_process(state: &Path, manifests: &Path) -> Result<(SocketAddr, View), String> {
    let server = stored_server(state)?;
    if server.manifests != state::absolute(manifests) {
        return Err(format!(
            "the process with the state folder {} serves {}",
            state.display(),
            server.manifests
        ));
    }
    ask(&server)
}

/// The same, whatever it serves.
pub(crate) fn ask_by_state_folder(state: &Path) -> Result<(ServerInfo, View), String> {
    let server = stored_server(state)?;
    let (_, view) = ask(&server)?;
    Ok((server, view))
}

fn stored_server(state: &Path) -> Result<ServerInfo, String> {
    let none = || format!("no running process uses the state folder {} (--state-dir)", state.display());
    state::stored_server(state).ok_or_else(none)
}

fn ask(server: &ServerInfo) -> Result<(SocketAddr, View), String> {
    let answers = server.status_page.iter().filter_map(|at| Some((*at, view(reached(*at))?)));
    let mut own = answers.filter(|(_, view)| is_of(view, server));
    own.next().ok_or_else(|| {
        let at: Vec<String> = server.status_page.iter().map(|it| format!("http://{it}/")).collect();
        match at.as_slice() {
            [] => "the last process that served this folder had no status page".to_owned(),
            all => format!(
                "the last process that served this folder does not answer at its status page, {}",
                all.join(", ")
            ),
        }
    })
}

/// Those of the machine that Services are served at.
pub(crate) fn addresses(view: &View) -> Vec<IpAddr> {
    let listeners = view.services.iter().flat_map(|it| &it.listeners);
    let specified = listeners.map(|it| it.address).filter(|it| !it.is_unspecified());
    specified.collect::<BTreeSet<IpAddr>>().into_iter().collect()
}

/// A later process, or another program, may have the port now.
fn is_of(view: &View, server: &ServerInfo) -> bool {
    view.started == server.started
}

/// Where a socket for all addresses is reached on this machine.
fn reached(at: SocketAddr) -> SocketAddr {
    match at.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => (Ipv4Addr::LOCALHOST, at.port()).into(),
        IpAddr::V6(ip) if ip.is_unspecified() => (Ipv6Addr::LOCALHOST, at.port()).into(),
        _ => at,
    }
}

/// HTTP/1.0: the answer ends with the connection, and is not in chunks.
fn view(at: SocketAddr) -> Option<View> {
    let mut stream = TcpStream::connect_timeout(&at, CONNECT).ok()?;
    stream.set_read_timeout(Some(ANSWER)).ok()?;
    stream.set_write_timeout(Some(ANSWER)).ok()?;
    write!(stream, "GET /state HTTP/1.0\r\nHost: localhost\r\n\r\n").ok()?;
    let mut answer = Vec::new();
    stream.take(MOST_BYTES).read_to_end(&mut answer).ok()?;
    let end = answer.windows(4).position(|it| it == b"\r\n\r\n")?;
    serde_json::from_slice(answer.get(end + 4..)?).ok()
}

/// Of the members of one Service: in its own pools, and in those that the front door has for it.
pub(crate) fn standings(view: &View, key: &ServiceKey) -> MemberStatuses {
    let at_door = format!("{}/{}:", key.namespace, key.name);
    let mut all = MemberStatuses::new();
    for service in &view.services {
        let is_its = *service.namespace == *key.namespace && *service.name == *key.name;
        for pool in service.pools.iter().filter(|it| is_its || it.id.starts_with(&at_door)) {
            for member in &pool.members {
                if let Ok(at) = member.address.parse() {
                    all.insert((PoolId(pool.id.as_str().into()), at), member_state_text(member));
                }
            }
        }
    }
    all
}

fn member_state_text(member: &MemberView) -> String {
    let state = match member.state {
        MemberState::Unchecked => "in use, not checked",
        state => state.as_str(),
    };
    match member.state {
        MemberState::Down | MemberState::Ejected if !member.last_error.is_empty() => {
            format!("{state}: {}", member.last_error)
        }
        MemberState::Draining => format!("{state}, with {} connections", member.sessions.current),
        // `seaway drain` sets it, too, whatever the manifests say.
        _ if member.weight == 0 => {
            format!(
                "{state}, with weight 0: it gets no new clients and has {} connections",
                member.sessions.current
            )
        }
        _ => state.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use seaway_model::Time;

    use super::*;

    #[test]
    fn nobody_is_asked_who_serves_another_folder_and_no_stranger_is_believed() {
        let dir = tempfile::tempdir().expect("a folder");
        let why = ask_running_process(dir.path(), dir.path()).expect_err("nothing is there");
        assert!(why.contains("no running process"), "{why}");
        let server = |manifests: &str, at: &str| {
            let text = format!(
                r#"{{"server": {{"manifests": {manifests:?}, "started": 7, "statusPage": ["{at}"]}}, "services": {{}}}}"#
            );
            std::fs::write(dir.path().join("status.json"), text).expect("is written");
        };
        server("/another/folder", "127.0.0.1:1");
        let why = ask_running_process(dir.path(), dir.path()).expect_err("it serves another");
        assert!(why.ends_with("serves /another/folder"), "{why}");

        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("is bound");
        let at = listener.local_addr().expect("is bound").to_string();
        let said = std::thread::spawn(move || {
            for started in [8, 7] {
                let (mut client, _) = listener.accept().expect("somebody comes");
                let mut head = [0; 1024];
                let _ = client.read(&mut head).expect("it asks");
                let view = View { started: Time(started), ..View::default() };
                let view = serde_json::to_string(&view).expect("is JSON");
                write!(client, "HTTP/1.0 200 OK\r\n\r\n{view}").expect("is told");
            }
        });
        server(&state::absolute(dir.path()), &at);
        let why = ask_running_process(dir.path(), dir.path()).expect_err("another began");
        assert!(why.contains("does not answer at its status page") && why.contains(&at), "{why}");
        let (asked, _) = ask_running_process(dir.path(), dir.path()).expect("it is the one");
        assert_eq!(asked.to_string(), at);
        said.join().expect("it has told");
    }
}
