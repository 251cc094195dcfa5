use std::io;
use std::net::IpAddr;

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
    #[error("{doing} failed")]
    Refused {
        doing: String,
        #[source]
        source: io::Error,
    },
    /// A kernel that speaks otherwise than documented: retrying does not help.
    #[error("{doing}: the kernel's answer cannot be read")]
    Unreadable { doing: String },
}

impl Error {
    pub(crate) fn refused(doing: impl Into<String>, source: impl Into<io::Error>) -> Error {
        Error::Refused { doing: doing.into(), source: source.into() }
    }

    /// Like `refused`, except where a missing capability is the reason.
    pub(crate) fn about_address(doing: &str, ip: IpAddr, source: io::Error, command: String) -> Error {
        let doing = format!("{doing} {ip}");
        if source.kind() == io::ErrorKind::PermissionDenied {
            let commands = vec![command];
            Error::NotPermitted { doing, commands }
        } else {
            Error::refused(doing, source)
        }
    }
}
