//! A client's connection to a contender: bytes as they are.

use std::io;
use std::net::SocketAddrV4;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use crate::sys;

pub struct Wire {
    fd: OwnedFd,
}

impl Wire {
    /// Begins to connect; it is writable once it has.
    pub fn connect(to: SocketAddrV4) -> io::Result<Self> {
        Ok(Self { fd: sys::tcp_connect(to)? })
    }

    pub fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match sys::send(&self.fd, bytes)? {
            sent if sent == bytes.len() => Ok(()),
            // Questions are far smaller than a socket's buffer.
            sent => Err(io::Error::other(format!("only {sent} bytes of a question fitted the socket"))),
        }
    }

    pub fn recv(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        sys::recv(&self.fd, buffer)
    }

    /// Takes up to `len` bytes and looks at none.
    pub fn recv_and_drop(&mut self, len: usize) -> io::Result<usize> {
        sys::recv_and_drop(&self.fd, len)
    }
}

impl AsRawFd for Wire {
    fn as_raw_fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }
}
