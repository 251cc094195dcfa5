//! What each version of HAProxy can do.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    V2_6,
    V3_0,
    V3_2,
    V3_4,
}

/// What differs between the versions, as far as we use it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abilities {
    /// Servers added while it runs may set a cookie.
    pub cookie_of_added_servers: bool,
    /// Backends can be added while it runs; where not, spare ones are made beforehand.
    pub add_backend: bool,
    /// `option forwarded` (RFC 7239).
    pub forwarded: bool,
}

impl Version {
    pub const ALL: [Version; 4] = [Version::V2_6, Version::V3_0, Version::V3_2, Version::V3_4];

    /// The oldest that is known to do all that a version in between needs: 2.8 is served as 2.6. `None` below 2.6.
    pub fn of(major: u16, minor: u16) -> Option<Version> {
        Some(match (major, minor) {
            (major, minor) if (major, minor) < (2, 6) => return None,
            (2, _) => Version::V2_6,
            (3, 0 | 1) => Version::V3_0,
            (3, 2 | 3) => Version::V3_2,
            _ => Version::V3_4,
        })
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Version::V2_6 => "2.6",
            Version::V3_0 => "3.0",
            Version::V3_2 => "3.2",
            Version::V3_4 => "3.4",
        }
    }

    pub fn abilities(self) -> Abilities {
        Abilities {
            cookie_of_added_servers: self >= Version::V3_0,
            add_backend: self >= Version::V3_4,
            forwarded: self >= Version::V3_0,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}
