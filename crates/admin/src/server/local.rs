//! Probes over a socket in a folder: pods that share the network of a machine share its ports, but not their folders. It is open
//! longer than the pages: a process whose successor has those still says that it lives.

use std::{
    fs, io,
    net::{Ipv4Addr, SocketAddr},
    os::unix::fs::{FileTypeExt, PermissionsExt},
    path::Path,
    sync::Arc,
    time::Duration,
};

use hyper_util::rt::TokioIo;
use tokio::{net::UnixListener, task::JoinSet, time};

use super::{SocketAccess, connection_slots::ConnectionSlots, routes::Routes, talk};

/// Of a process that ended before, a socket may be left. Nothing else is removed.
pub(super) fn listen(path: &Path) -> io::Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|it| it.file_type().is_socket()) {
        fs::remove_file(path)?;
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

pub(super) async fn accept(listener: UnixListener, routes: Arc<Routes>) {
    // Only processes of this machine come, and none of them has an address.
    let peer: SocketAddr = (Ipv4Addr::LOCALHOST, 0).into();
    let places = ConnectionSlots::new();
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        match listener.accept().await {
            Ok((stream, _)) => {
                let place = places.take(peer.ip());
                connections.spawn(talk(
                    TokioIo::new(stream),
                    peer,
                    SocketAccess::Probes,
                    Arc::clone(&routes),
                    place,
                ));
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections at the probe socket; trying again every second");
                time::sleep(Duration::from_secs(1)).await;
            }
        }
    }
}
