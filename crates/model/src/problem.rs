//! Something that the user must know: what, where, and what to do about it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::name::{Name, ObjectRef};

/// Where it stands (object and field), a stable reason, a sentence, and the mend.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    pub object: ObjectRef,
    /// A path as kubectl prints it: `spec.ports[0].port`. Empty for the object as a whole.
    #[serde(default, skip_serializing_if = "str::is_empty")]
    pub field: Name,
    pub reason: Reason,
    pub message: String,
    /// What to do; may be several lines (a manifest to write, a command to run).
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub fix: String,
    /// File, line and column, where a source knows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<SourcePlace>,
}

/// Where in a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SourcePlace {
    pub file: Name,
    /// From 1; 0 where only the file is known.
    pub line: u32,
    pub column: u32,
}

/// Stable, bounded: a metric's label, an Event's reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Reason {
    /// A file or document that does not parse.
    Unreadable,
    /// A field that an API server would refuse.
    Invalid,
    /// A field that nobody knows, or a kind that is not served; the rest counts.
    Ignored,
    /// The same object written twice.
    Duplicate,
    /// An annotation whose value is not understood; the default is used.
    BadAnnotation,
    /// A Service with a selector and nobody to fill its slices.
    NoEndpoints,
    /// No port of that name or number at its endpoints.
    NoSuchPort,
    /// No Service of that name.
    NoSuchService,
    /// No pool may give an address.
    NoPool,
    /// Every address of the pools that may is taken.
    PoolExhausted,
    /// More than one namespace, or one Service, may have.
    LimitReached,
    /// The pool of an address cannot be seen; the address stays.
    PoolMissing,
    /// The pool of an address excludes it now; the address ends after a while.
    AddressExcluded,
    /// The requested address is in no pool that this Service may use.
    AddressOutsidePools,
    /// The requested address is somebody else's.
    AddressTaken,
    /// The port is taken on that address by another Service.
    PortConflict,
    /// The port is one that the machines need, and the address one of theirs.
    PortReserved,
    /// No host may serve, as all are Nodes that are excluded from load balancers.
    HostsExcluded,
    /// A path or a host name that leads to somebody else already.
    RouteConflict,
    /// A process that is not ours listens there.
    PortInUse,
    /// What an object holds is no certificate, or its key is another's.
    BadCertificate,
    /// A certificate that has expired, will soon, or is not in force yet.
    CertificateExpiry,
    /// A certificate that is asked for under a name that it does not have.
    CertificateName,
    /// No Secret of that name.
    NoSuchSecret,
    /// Pools overlap.
    PoolOverlap,
    /// A capability, a sysctl, a descriptor limit is missing.
    NotPermitted,
    /// Something this place cannot do.
    Unsupported,
    /// A DNS name without an answer.
    NameUnresolved,
    /// Members that fail the probes of a cloud's load balancer.
    MembersDown,
    /// Nothing is done for it, as it asks.
    Paused,
    /// What a cloud has for it is left as it is: no setting chooses that cloud any more.
    Released,
    /// A cloud has something of ours, and nobody saw its owner's deletion: it is left as it is.
    Orphan,
    /// More deletions than usual that no Service's deletion asked for: they stop for a while.
    DeletionLimit,
    /// A cloud does not give so much.
    QuotaExceeded,
    /// State could not be written.
    StateUnwritable,
    /// The API server does not answer, or not with what was asked for.
    Unreachable,
    /// A kind of objects that the cluster does not have.
    NotInstalled,
    /// A member that is one of our own listeners.
    Loop,
    /// What this place lets nobody do, or not this namespace.
    NotAllowed,
    /// Somebody else writes what is ours to write.
    OtherController,
    /// Written by rules that are newer than ours.
    NewerPlan,
    Failed,
}

impl Reason {
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Unreadable => "Unreadable",
            Reason::Invalid => "Invalid",
            Reason::Ignored => "Ignored",
            Reason::Duplicate => "Duplicate",
            Reason::BadAnnotation => "BadAnnotation",
            Reason::NoEndpoints => "NoEndpoints",
            Reason::NoSuchPort => "NoSuchPort",
            Reason::NoSuchService => "NoSuchService",
            Reason::NoPool => "NoPool",
            Reason::PoolExhausted => "PoolExhausted",
            Reason::LimitReached => "LimitReached",
            Reason::PoolMissing => "PoolMissing",
            Reason::AddressExcluded => "AddressExcluded",
            Reason::AddressOutsidePools => "AddressOutsidePools",
            Reason::AddressTaken => "AddressTaken",
            Reason::PortConflict => "PortConflict",
            Reason::PortReserved => "PortReserved",
            Reason::HostsExcluded => "HostsExcluded",
            Reason::RouteConflict => "RouteConflict",
            Reason::PortInUse => "PortInUse",
            Reason::BadCertificate => "BadCertificate",
            Reason::CertificateExpiry => "CertificateExpiry",
            Reason::CertificateName => "CertificateName",
            Reason::NoSuchSecret => "NoSuchSecret",
            Reason::PoolOverlap => "PoolOverlap",
            Reason::NotPermitted => "NotPermitted",
            Reason::Unsupported => "Unsupported",
            Reason::NameUnresolved => "NameUnresolved",
            Reason::MembersDown => "MembersDown",
            Reason::Paused => "Paused",
            Reason::Released => "Released",
            Reason::Orphan => "Orphan",
            Reason::DeletionLimit => "DeletionLimit",
            Reason::QuotaExceeded => "QuotaExceeded",
            Reason::StateUnwritable => "StateUnwritable",
            Reason::Unreachable => "Unreachable",
            Reason::NotInstalled => "NotInstalled",
            Reason::Loop => "Loop",
            Reason::NotAllowed => "NotAllowed",
            Reason::OtherController => "OtherController",
            Reason::NewerPlan => "NewerPlan",
            Reason::Failed => "Failed",
        }
    }
}

impl Problem {
    pub fn new(object: ObjectRef, reason: Reason, message: impl Into<String>) -> Problem {
        Problem {
            object,
            field: Name::default(),
            reason,
            message: message.into(),
            fix: String::new(),
            place: None,
        }
    }

    /// What is wrong and what to do about it, in one line.
    pub fn line(&self) -> String {
        let fix = if self.fix.is_empty() { String::new() } else { format!(" {}", self.fix) };
        format!("{self}{fix}").replace('\n', " ")
    }

    #[must_use]
    pub fn at(mut self, field: impl Into<Name>) -> Problem {
        self.field = field.into();
        self
    }

    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Problem {
        self.fix = fix.into();
        self
    }

    #[must_use]
    pub fn in_file(mut self, file: impl Into<Name>, line: u32, column: u32) -> Problem {
        self.place = Some(SourcePlace { file: file.into(), line, column });
        self
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// `shop.yaml:12:9: Service default/shop: spec.ports[0].port: … (fix)`
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            match place.line {
                0 => write!(f, "{}: ", place.file)?,
                line => write!(f, "{}:{line}:{}: ", place.file, place.column)?,
            }
        }
        write!(f, "{}: ", self.object)?;
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        f.write_str(&self.message)
    }
}
