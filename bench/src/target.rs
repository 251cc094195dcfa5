//! What must be reached.

use std::fmt;

use crate::contender::Contender;
use crate::metric::Metric;

/// A limit of a figure: times a peer's, or by itself.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Target {
    pub metric: Metric,
    pub against: Option<Against>,
    pub bound: Bound,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Against {
    Peer(Contender),
    /// HAProxy or nginx, whichever was better in the same round.
    BetterPeer,
}

#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    AtMost(f64),
    AtLeast(f64),
}

impl Target {
    /// By itself.
    pub fn alone(metric: Metric, at_most: f64) -> Self {
        Self { metric, against: None, bound: Bound::AtMost(at_most) }
    }

    /// Beside one peer.
    pub fn beside(metric: Metric, peer: Contender, at_most: f64) -> Self {
        Self { metric, against: Some(Against::Peer(peer)), bound: Bound::AtMost(at_most) }
    }

    /// CPU and p99 at the rate of the case, beside the better of the two peers.
    pub fn at_rate() -> Vec<Self> {
        Self::at_rate_beside(Against::BetterPeer)
    }

    /// The same, and the highest rate.
    pub fn at_any_rate() -> Vec<Self> {
        Self::at_any_rate_beside(Against::BetterPeer)
    }

    pub fn at_any_rate_beside(against: Against) -> Vec<Self> {
        let mut targets = Self::at_rate_beside(against);
        targets.push(Self::highest_rate_beside(against));
        targets
    }

    /// The highest rate alone: what a request costs cannot be told where the load shares a core with a worker.
    pub fn saturated() -> Vec<Self> {
        vec![Self::highest_rate_beside(Against::BetterPeer)]
    }

    fn highest_rate_beside(against: Against) -> Self {
        Self { metric: Metric::HighestRate, against: Some(against), bound: Bound::AtLeast(1.2) }
    }

    fn at_rate_beside(against: Against) -> Vec<Self> {
        let at_most = |metric, limit| Self { metric, against: Some(against), bound: Bound::AtMost(limit) };
        vec![at_most(Metric::BusyPerRequest, 0.8), at_most(Metric::LatencyP99, 1.0)]
    }
}

impl Bound {
    /// Whether all of what lies between the two is within it.
    pub fn holds(self, low: f64, high: f64) -> bool {
        match self {
            Self::AtMost(limit) => high <= limit,
            Self::AtLeast(limit) => low >= limit,
        }
    }

    /// Whether nothing of it is.
    pub fn is_missed(self, low: f64, high: f64) -> bool {
        match self {
            Self::AtMost(limit) => low > limit,
            Self::AtLeast(limit) => high < limit,
        }
    }

    /// The better one of two figures.
    pub fn better(self, one: f64, other: f64) -> f64 {
        match self {
            Self::AtMost(_) => one.min(other),
            Self::AtLeast(_) => one.max(other),
        }
    }
}

impl Against {
    pub fn contenders(self) -> Vec<Contender> {
        match self {
            Self::Peer(contender) => vec![contender],
            Self::BetterPeer => vec![Contender::Haproxy, Contender::Nginx],
        }
    }
}

impl fmt::Display for Against {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer(contender) => contender.fmt(f),
            Self::BetterPeer => f.write_str("the better peer"),
        }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bound {
            Bound::AtMost(limit) => write!(f, "≤ {limit}")?,
            Bound::AtLeast(limit) => write!(f, "≥ {limit}")?,
        }
        self.against.map_or(Ok(()), |peer| write!(f, " × {peer}"))
    }
}
