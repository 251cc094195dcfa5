//! Ports of the machines, and clients who say that they are somebody else.

use std::{
    io::ErrorKind,
    net::{IpAddr, SocketAddr, TcpStream},
    time::Duration,
};

use seaway_testkit::topology::Namespace;
use socket2::{Domain, Socket, Type};

use crate::cluster::{MACHINE, Shared};

/// In whose place nobody has to stand: the kubelet, which is there.
const KUBELET: u16 = 10_250;

/// Every Node that has the shop's address answers at its own ports at its own addresses alone.
pub(crate) fn hold(shared: &Shared) {
    let nodes = [(&shared.scene.outside, 0), (&shared.beside, 1)];
    for (from, at) in nodes {
        let own: IpAddr = shared.scene.nodes[at].addresses()[0].parse().expect("an address");
        for port in MACHINE.into_iter().chain([KUBELET]) {
            let machine = opens(from, SocketAddr::new(own, port));
            assert!(machine.is_ok(), "port {port} of Node {own}: {machine:?}");
            let shop = opens(from, SocketAddr::new(shared.shop.ip(), port)).map_err(|it| it.kind());
            let told = format!("port {port} of the shop's address at Node {own}");
            assert_eq!(shop.err(), Some(ErrorKind::ConnectionRefused), "{told}");
        }
    }
}

fn opens(from: &Namespace, at: SocketAddr) -> std::io::Result<TcpStream> {
    from.run(|| TcpStream::connect_timeout(&at, Duration::from_secs(5)))
}

/// Packets that say they come from the shop's own address, from another Node, or from the machine itself lead to no connection.
pub(crate) fn forges(shared: &Shared) {
    let other: IpAddr = shared.scene.nodes[1].addresses()[0].parse().expect("an address");
    let forged = |source: IpAddr| {
        shared.scene.outside.run(|| {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
            socket.set_ip_transparent_v4(true)?;
            socket.bind(&SocketAddr::new(source, 0).into())?;
            socket.connect_timeout(&shared.shop.into(), Duration::from_millis(700))
        })
    };
    for source in [shared.shop.ip(), other] {
        let came = forged(source);
        let kind = came.as_ref().err().map(std::io::Error::kind);
        assert_eq!(kind, Some(ErrorKind::TimedOut), "from {source}: {came:?}");
    }
}
