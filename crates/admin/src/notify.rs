//! Notes to the service manager (sd_notify(3)): datagrams to the socket that `NOTIFY_SOCKET` names.

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::{
        linux::net::SocketAddrExt,
        unix::{
            ffi::OsStrExt,
            net::{SocketAddr, UnixDatagram},
        },
    },
};

use nix::time::{ClockId, clock_gettime};

/// Says nothing when nobody asked to be told. A note that cannot be delivered is logged and forgotten: the service
/// manager being away must not stop what is served.
#[derive(Clone, Debug, Default)]
pub struct Notifier {
    socket: Option<OsString>,
}

impl Notifier {
    pub fn from_env() -> Notifier {
        Notifier { socket: env::var_os("NOTIFY_SOCKET").filter(|socket| !socket.is_empty()) }
    }

    /// To this socket: a path, or a name that begins with `@`.
    pub fn to_socket(socket: impl Into<OsString>) -> Notifier {
        Notifier { socket: Some(socket.into()) }
    }

    /// Also ends a reload.
    pub fn ready(&self, status: &str) {
        self.note(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    pub fn reloading(&self) {
        // systemd compares it with the moment at which it asked, to tell this reload from an older one.
        match clock_gettime(ClockId::CLOCK_MONOTONIC) {
            Ok(now) => {
                let microseconds =
                    now.tv_sec().saturating_mul(1_000_000).saturating_add(now.tv_nsec() / 1_000);
                self.note(&format!("RELOADING=1\nMONOTONIC_USEC={microseconds}"));
            }
            Err(error) => {
                tracing::warn!(%error, "systemd is not notified of the reload, which continues: the monotonic clock cannot be read")
            }
        }
    }

    pub fn stopping(&self, status: &str) {
        self.note(&format!("STOPPING=1\nSTATUS={}", one_line(status)));
    }

    /// After a hand-over the unit follows another process.
    pub fn set_main_process(&self, id: u32) {
        self.note(&format!("MAINPID={id}"));
    }

    pub fn status(&self, status: &str) {
        self.note(&format!("STATUS={}", one_line(status)));
    }

    fn note(&self, text: &str) {
        let Some(socket) = &self.socket else { return };
        if let Err(error) = send(socket, text) {
            tracing::warn!(%error, socket = %socket.display(), "systemd cannot be notified");
        }
    }
}

fn send(socket: &OsStr, text: &str) -> io::Result<()> {
    let bytes = socket.as_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(socket)?,
    };
    let from = UnixDatagram::unbound()?;
    // Its queue being full must not hold us up.
    from.set_nonblocking(true)?;
    from.send_to_addr(text.as_bytes(), &address).map(drop)
}

/// A line break would begin another assignment.
fn one_line(status: &str) -> String {
    status.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn received(listener: &UnixDatagram) -> String {
        listener.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let mut buffer = [0; 512];
        let length = listener.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn a_socket_in_a_folder_hears_that_we_are_ready() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let listener = UnixDatagram::bind(&path).unwrap();
        Notifier::to_socket(&path).ready("serving\nSTOPPING=1");
        assert_eq!(received(&listener), "READY=1\nSTATUS=serving STOPPING=1");
    }

    #[test]
    fn an_abstract_socket_hears_of_reload_and_stop() {
        let name = format!("seaway-notify-{}-{:?}", std::process::id(), std::thread::current().id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let listener = UnixDatagram::bind_addr(&address).unwrap();
        let notifier = Notifier::to_socket(format!("@{name}"));
        notifier.reloading();
        let text = received(&listener);
        let at: u64 = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap().parse().unwrap();
        assert!(at > 0);
        notifier.stopping("draining");
        assert_eq!(received(&listener), "STOPPING=1\nSTATUS=draining");
    }

    #[test]
    fn nobody_listening_is_survived() {
        Notifier::default().ready("serving");
        Notifier::to_socket("/nowhere/at/all").ready("serving");
        Notifier::to_socket("@".to_owned() + &"x".repeat(200)).ready("serving");
    }
}
