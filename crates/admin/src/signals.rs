//! Signals, as the process understands them: the first SIGTERM or SIGINT begins a clean stop, the second is a person
//! who will not wait; SIGHUP reads the configuration again.

use std::io;

use tokio::signal::unix::{self, SignalKind};

/// What the process should do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Stop accepting, drain, exit 0.
    Stop,
    /// Exit at once.
    StopNow,
    Reload,
}

/// The kernel's signals as a stream. From here on they no longer end the process by themselves.
pub struct Signals {
    terminate: unix::Signal,
    interrupt: unix::Signal,
    hang_up: unix::Signal,
    stop_requests: StopRequests,
}

impl Signals {
    /// Needs a tokio runtime with I/O.
    pub fn listen() -> io::Result<Signals> {
        Ok(Signals {
            terminate: unix::signal(SignalKind::terminate())?,
            interrupt: unix::signal(SignalKind::interrupt())?,
            hang_up: unix::signal(SignalKind::hangup())?,
            stop_requests: StopRequests::default(),
        })
    }

    /// Waits for the next one. May be dropped and called again without losing any.
    pub async fn next(&mut self) -> Signal {
        loop {
            let heard = tokio::select! {
                biased;
                _ = self.terminate.recv() => ReceivedSignal::Stop,
                _ = self.interrupt.recv() => ReceivedSignal::Stop,
                _ = self.hang_up.recv() => ReceivedSignal::HangUp,
            };
            if let Some(signal) = self.stop_requests.handle(heard) {
                return signal;
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum ReceivedSignal {
    Stop,
    HangUp,
}

/// How often the process was asked to stop.
#[derive(Debug, Default)]
struct StopRequests {
    stopping: bool,
}

impl StopRequests {
    fn handle(&mut self, heard: ReceivedSignal) -> Option<Signal> {
        match heard {
            ReceivedSignal::Stop if self.stopping => Some(Signal::StopNow),
            ReceivedSignal::Stop => {
                self.stopping = true;
                Some(Signal::Stop)
            }
            // A process that is leaving has no use for a new configuration.
            ReceivedSignal::HangUp => (!self.stopping).then_some(Signal::Reload),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(heard: &[ReceivedSignal]) -> Vec<Signal> {
        let mut stop_requests = StopRequests::default();
        heard.iter().filter_map(|&heard| stop_requests.handle(heard)).collect()
    }

    #[test]
    fn the_second_stop_is_at_once() {
        use ReceivedSignal::{HangUp, Stop};
        assert_eq!(after(&[HangUp, Stop, Stop]), [Signal::Reload, Signal::Stop, Signal::StopNow]);
    }

    #[test]
    fn nothing_is_reloaded_while_stopping() {
        assert_eq!(after(&[ReceivedSignal::Stop, ReceivedSignal::HangUp]), [Signal::Stop]);
    }
}
