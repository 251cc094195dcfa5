//! The numbers that a run yields, and their units.

/// A number that a run yields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Microseconds that core 0 was busy, for each request: the headline.
    BusyPerRequest,
    /// Microseconds that the contender's own tasks ran, for each request: the cross-check.
    TaskPerRequest,
    /// Percent of the time that core 0 was busy.
    Load,
    RequestsPerSecond,
    /// Microseconds from when a request was due to its last byte.
    LatencyHalf,
    LatencyP99,
    LatencyP999,
    /// The highest rate of requests with a p99 of at most 10 ms, and percent that core 0 was busy with it.
    HighestRate,
    HighestLoad,
    /// KiB of the contender's own memory for each connection.
    MemoryPerConnection,
    /// Milliseconds.
    UntilReady,
    UntilChanged,
    /// MiB.
    Resident,
    /// Percent of one core while nothing happens.
    CpuAtRest,
    /// HTTP requests to a cloud.
    Calls,
    /// MiB, the most that was resident at once.
    Peak,
    /// Milliseconds that a command ran on a core, and until it had ended.
    CpuTime,
    UntilDone,
    /// Of a cluster that is full of Services. Seconds until all are told their addresses; CPU that the controller and the
    /// host took for it.
    Installed,
    InstallCpu,
    InstallHostCpu,
    /// Requests that change something, for each Service: by then, and until nothing more is to be told.
    InstallWrites,
    AllTold,
    AllWrites,
    /// A controller that starts again: seconds, MiB, and requests that change something.
    Restarted,
    RestartCpu,
    RestartPeak,
    RestartWrites,
    HostRestarted,
    HostRestartCpu,
    HostRestartWrites,
    HostPeak,
    /// Milliseconds from when the writing of an endpoint was acknowledged until a new connection reaches it.
    EndpointHalf,
    EndpointP99,
    /// One Service more: milliseconds until it is told its address, requests that change something, and milliseconds of CPU of
    /// the controller, of each host, and of the API server.
    ServiceTold,
    ServiceWrites,
    ServiceCpu,
    ServiceHostCpu,
    ServiceApiCpu,
    /// A minute in which nothing happens: seconds of CPU, requests that change something other than a Lease, and those
    /// that renew one.
    MinuteCpu,
    MinuteHostCpu,
    MinuteApiCpu,
    MinuteWrites,
    MinuteLeases,
    /// What the heartbeats of Nodes mark, and what they cost both processes.
    HeartbeatUnits,
    HeartbeatCpu,
}

impl Metric {
    /// Name and unit, as a table shows them.
    pub fn label(self) -> &'static str {
        match self {
            Self::BusyPerRequest => "core 0 busy, µs/request",
            Self::TaskPerRequest => "own tasks, µs/request",
            Self::Load => "core 0 busy, %",
            Self::RequestsPerSecond => "requests/s",
            Self::LatencyHalf => "p50, µs",
            Self::LatencyP99 => "p99, µs",
            Self::LatencyP999 => "p99.9, µs",
            Self::HighestRate => "saturation, requests/s",
            Self::HighestLoad => "core 0 busy at saturation, %",
            Self::MemoryPerConnection => "memory, KiB/connection",
            Self::UntilReady => "ready after, ms",
            Self::UntilChanged => "change applied after, ms",
            Self::Resident => "resident, MiB",
            Self::CpuAtRest => "CPU at rest, %",
            Self::Calls => "calls",
            Self::Peak => "peak memory, MiB",
            Self::CpuTime => "CPU, ms",
            Self::UntilDone => "done after, ms",
            Self::Installed => "first install, s",
            Self::InstallCpu => "its CPU, controller, s",
            Self::InstallHostCpu => "its CPU, host, s",
            Self::InstallWrites => "its writes for each Service",
            Self::AllTold => "events told after, s",
            Self::AllWrites => "writes by then for each Service",
            Self::Restarted => "controller again ready after, s",
            Self::RestartCpu => "its CPU, s",
            Self::RestartPeak => "its peak memory, MiB",
            Self::RestartWrites => "its writes",
            Self::HostRestarted => "host again ready after, s",
            Self::HostRestartCpu => "host's CPU of it, s",
            Self::HostRestartWrites => "writes of it, of both",
            Self::HostPeak => "host's peak memory, MiB",
            Self::EndpointHalf => "endpoint change, p50, ms",
            Self::EndpointP99 => "endpoint change, p99, ms",
            Self::ServiceTold => "new Service told after, p50, ms",
            Self::ServiceWrites => "its writes",
            Self::ServiceCpu => "its CPU, controller, ms",
            Self::ServiceHostCpu => "its CPU, each host, ms",
            Self::ServiceApiCpu => "its CPU, API server, ms",
            Self::MinuteApiCpu => "idle minute, CPU of the API server, s",
            Self::MinuteCpu => "idle minute, CPU of the controller, s",
            Self::MinuteHostCpu => "idle minute, CPU of a host, s",
            Self::MinuteWrites => "idle minute, writes but Leases",
            Self::MinuteLeases => "idle minute, writes of Leases",
            Self::HeartbeatUnits => "1,000 heartbeats, Units marked",
            Self::HeartbeatCpu => "1,000 heartbeats, CPU, s",
        }
    }

    /// Unit and decimals, as a line of progress shows them.
    pub fn short(self) -> (&'static str, usize) {
        match self {
            Self::BusyPerRequest => ("µs busy", 2),
            Self::TaskPerRequest => ("µs task", 2),
            Self::Load => ("% load", 0),
            Self::RequestsPerSecond => ("/s", 0),
            Self::LatencyHalf => ("µs p50", 0),
            Self::LatencyP99 => ("µs p99", 0),
            Self::LatencyP999 => ("µs p99.9", 0),
            Self::HighestRate => ("/s at most", 0),
            Self::HighestLoad => ("% then", 0),
            Self::MemoryPerConnection => ("KiB each", 2),
            Self::UntilReady => ("ms to ready", 0),
            Self::UntilChanged => ("ms to change", 1),
            Self::Resident => ("MiB resident", 1),
            Self::CpuAtRest => ("% at rest", 3),
            Self::Calls => ("calls", 0),
            Self::Peak => ("MiB peak", 1),
            Self::CpuTime => ("ms CPU", 0),
            Self::UntilDone => ("ms to end", 0),
            Self::Installed => ("s to install", 1),
            Self::InstallCpu => ("s CPU", 2),
            Self::InstallHostCpu => ("s CPU (host)", 2),
            Self::InstallWrites => ("writes each", 2),
            Self::AllTold => ("s to tell all", 1),
            Self::AllWrites => ("writes each", 2),
            Self::Restarted => ("s to restart", 2),
            Self::RestartCpu => ("s CPU", 2),
            Self::RestartPeak => ("MiB peak", 1),
            Self::RestartWrites => ("writes", 0),
            Self::HostRestarted => ("s to restart (host)", 2),
            Self::HostRestartCpu => ("s CPU (host)", 2),
            Self::HostRestartWrites => ("writes (of it)", 0),
            Self::HostPeak => ("MiB peak (host)", 1),
            Self::EndpointHalf => ("ms p50", 1),
            Self::EndpointP99 => ("ms p99", 1),
            Self::ServiceTold => ("ms to tell", 0),
            Self::ServiceWrites => ("writes each", 2),
            Self::ServiceCpu => ("ms CPU each", 2),
            Self::ServiceHostCpu => ("ms (host)", 2),
            Self::ServiceApiCpu => ("ms (API server)", 2),
            Self::MinuteApiCpu => ("s (API server)", 2),
            Self::MinuteCpu => ("s CPU in an idle minute", 3),
            Self::MinuteHostCpu => ("s (host)", 3),
            Self::MinuteWrites => ("writes", 0),
            Self::MinuteLeases => ("of Leases", 0),
            Self::HeartbeatUnits => ("marked by heartbeats", 0),
            Self::HeartbeatCpu => ("s CPU", 3),
        }
    }
}
