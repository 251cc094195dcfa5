use std::io;
use std::net::IpAddr;

use nix::errno::Errno;

/// Why the kernel did not do, or not tell, what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The user's to mend, by one of the commands that it prints.
    #[error(
        "{doing} needs the Linux capability NET_ADMIN; as root, either allow it with\n  \
         setcap cap_net_admin,cap_net_bind_service+ep seaway\nor do it by hand with\n  {}",
        commands.join("\n  ")
    )]
    NotPermitted { doing: String, commands: Vec<String> },
    /// The user's to mend: the kernel takes no IPv6 addresses there.
    #[error("{doing} needs IPv6 on lo; as root: sysctl -w net.ipv6.conf.lo.disable_ipv6=0")]
    NoIpv6 { doing: String },
    #[error("{doing} failed")]
    Failed {
        doing: String,
        #[source]
        source: io::Error,
    },
    /// A kernel that speaks otherwise than documented: retrying does not help.
    #[error("{doing}: the kernel's answer cannot be read")]
    Unreadable { doing: String },
}

impl Error {
    pub(crate) fn failed(doing: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error::Failed { doing: doing.into(), source: source.into() }
    }

    /// Like `failed`, except for answers that make no sense.
    pub(crate) fn unanswered(doing: impl Into<String>, source: io::Error) -> Error {
        if source.kind() == io::ErrorKind::InvalidData {
            Error::Unreadable { doing: doing.into() }
        } else {
            Error::failed(doing, source)
        }
    }

    /// Like `failed`, except for reasons that the user can mend.
    pub(crate) fn about_address(doing: &str, ip: IpAddr, source: io::Error, commands: Vec<String>) -> Error {
        let doing = format!("{doing} {ip}");
        match source.raw_os_error().map(Errno::from_raw) {
            Some(Errno::EPERM) => Error::NotPermitted { doing, commands },
            // IPv6 switched off for an interface; or not in the kernel, or not started, at all.
            Some(Errno::EACCES | Errno::EOPNOTSUPP | Errno::ENODEV) if ip.is_ipv6() => {
                Error::NoIpv6 { doing }
            }
            _ => Error::failed(doing, source),
        }
    }
}
