//! The part of the configuration that planning reads, resolved: every default is filled in.

use std::{net::IpAddr, time::Duration};

use crate::{
    fact::TargetPort,
    load_balancer::{Balance, HealthCheck, L4, Limits, Passive, Timeouts},
    name::Name,
};

#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `spec.loadBalancerClass` values that are ours, beside Services that name none.
    pub classes: Vec<Name>,
    /// Services without a class are ours.
    pub classless: bool,
    /// `tcpServices` and `udpServices`, in their order.
    pub exposed: Vec<Exposed>,
    pub defaults: Defaults,
}

/// One port of a Service on the host's own addresses, asked for by the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exposed {
    /// `tcpServices[0]`.
    pub key: Name,
    pub l4: L4,
    pub namespace: Name,
    pub service: Name,
    /// The Service's port, by number or by name.
    pub port: TargetPort,
    /// Where to listen, if not on the Service's own port.
    pub listen: Option<u16>,
    /// On this address only; otherwise on all of the host's.
    pub address: Option<IpAddr>,
}

/// What a Service gets that says nothing else.
#[derive(Clone, Debug, PartialEq)]
pub struct Defaults {
    pub balance: Balance,
    pub health: Option<HealthCheck>,
    pub passive: Option<Passive>,
    pub slow_start: Option<Duration>,
    pub panic_threshold: u8,
    pub timeouts: Timeouts,
    pub limits: Limits,
}

impl Default for Config {
    /// As for a folder: health checks on.
    fn default() -> Config {
        Config {
            classes: vec![Name::from("seaway.dev/native")],
            classless: true,
            exposed: Vec::new(),
            defaults: Defaults {
                balance: Balance::RoundRobin,
                health: Some(HealthCheck::default()),
                passive: Some(Passive::default()),
                slow_start: None,
                panic_threshold: 0,
                timeouts: Timeouts::default(),
                limits: Limits::default(),
            },
        }
    }
}
