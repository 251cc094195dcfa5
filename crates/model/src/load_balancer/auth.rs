//! Who may ask: users with a name and a password (RFC 7617), and those to whom another Service agrees.

use std::{collections::BTreeMap, fmt, sync::Arc};

use super::PoolId;
use crate::name::{Name, ObjectRef};

/// Requests are served for these users alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BasicAuth {
    /// Who says so.
    pub of: ObjectRef,
    /// What browsers show when they ask for a password.
    pub realm: Name,
    /// `None`: they are not known, and no request is served.
    pub users: Option<Arc<Users>>,
    /// Members get `Authorization`, too.
    pub forwards: bool,
}

/// Requests are served only after another Service has agreed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardAuth {
    /// Who says so.
    pub of: ObjectRef,
    /// Whose members are asked: the Service and its port, and the pool that these are.
    pub service: Name,
    pub port: u16,
    pub pool: PoolId,
    /// What it is called, and for which path it is asked.
    pub host: Name,
    pub path: Name,
    /// Fields of its answer that members get, and that no client may say.
    pub headers: Vec<Name>,
}

/// By name. Neither names nor hashes are ever printed.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Users(pub BTreeMap<Box<[u8]>, PasswordHash>);

/// A hash of a password, with all that it is computed by.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum PasswordHash {
    /// `$2y$`, `$2b$`, `$2a$`: 2 to the power of `cost` rounds.
    Bcrypt { cost: u8, salt: [u8; 16], hash: [u8; 23] },
    /// `$5$`.
    Sha256Crypt { rounds: u32, salt: Box<[u8]>, hash: [u8; 32] },
    /// `$6$`.
    Sha512Crypt { rounds: u32, salt: Box<[u8]>, hash: [u8; 64] },
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Users({})", self.0.len())
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(…)")
    }
}
