//! The line of a TCP connection that is not understood, or of a UDP flow: one when it ends, or is refused.

use std::{io::Write, net::SocketAddr, sync::Arc};

use seaway_model::L4;

use super::{AccessLogFormat, LogEntry, LogTimestamp, line};
use crate::running::{RefusalReason, RunningListener};

/// What became of a connection.
pub(crate) struct ConnectionLogLine<'a> {
    /// Who it was, as a trusted PROXY header says.
    pub(crate) client: SocketAddr,
    pub(crate) listener: &'a RunningListener,
    pub(crate) pool: &'a str,
    pub(crate) member: Option<SocketAddr>,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    /// In milliseconds: until the connection to the member was open, and in all.
    pub(crate) connect: Option<u64>,
    pub(crate) took: u64,
    pub(crate) ending: ConnectionEnd,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectionEnd {
    /// Both sides have finished, and this one first.
    Client,
    Member,
    /// No byte moved for too long. So end most flows.
    IdleTimeout,
    /// Its listener was closed or its member removed, and its time was over; or the process ended.
    Drained,
    ClientReset,
    MemberReset,
    /// It held memory, or a descriptor, that others needed.
    Evicted,
    Refused(RefusalReason),
}

/// One that was turned away before anything was known of it but where it came from.
pub(crate) struct RefusedClient {
    pub(crate) peer: SocketAddr,
    pub(crate) listener: Arc<RunningListener>,
    pub(crate) why: RefusalReason,
}

impl ConnectionEnd {
    /// Both sides see a failure, not an end.
    pub(crate) fn is_failure(self) -> bool {
        matches!(self, ConnectionEnd::ClientReset | ConnectionEnd::MemberReset | ConnectionEnd::Refused(_))
    }

    /// It was for us to end it: what is still on its way is lost, and both sides are to know that.
    pub(crate) fn is_ended_by_proxy(self) -> bool {
        matches!(self, ConnectionEnd::IdleTimeout | ConnectionEnd::Drained | ConnectionEnd::Evicted)
    }

    fn as_str(self) -> &'static str {
        match self {
            ConnectionEnd::Client => "client",
            ConnectionEnd::Member => "member",
            ConnectionEnd::IdleTimeout => "idle-timeout",
            ConnectionEnd::Drained => "drained",
            ConnectionEnd::ClientReset => "client-reset",
            ConnectionEnd::MemberReset => "member-reset",
            ConnectionEnd::Evicted => "evicted",
            ConnectionEnd::Refused(_) => "refused",
        }
    }

    fn reason(self) -> Option<&'static str> {
        match self {
            ConnectionEnd::Refused(why) => Some(why.as_str()),
            _ => None,
        }
    }
}

impl RefusedClient {
    pub(crate) fn line(&self) -> ConnectionLogLine<'_> {
        ConnectionLogLine {
            client: self.peer,
            listener: &self.listener,
            pool: "",
            member: None,
            sent: 0,
            received: 0,
            connect: None,
            took: 0,
            ending: ConnectionEnd::Refused(self.why),
        }
    }
}

impl ConnectionLogLine<'_> {
    /// Where Apache has the request, so that what reads its logs finds the fields where they always are.
    fn common(&self, stamp: &mut LogTimestamp, out: &mut Vec<u8>) {
        stamp.now();
        let client = self.client.ip().to_canonical();
        // A Vec takes all that is written to it.
        let _ =
            write!(out, "{client} - - [{}] \"{} {} ", stamp.common, self.listener.id.l4, self.listener.at);
        line::put_plain(out, self.listener.config().listener.name.as_bytes());
        let _ = match self.member {
            Some(member) => write!(out, " {member}"),
            None => write!(out, " -"),
        };
        let _ = write!(out, " end={}", self.ending.as_str());
        if let Some(reason) = self.ending.reason() {
            let _ = write!(out, " reason={reason}");
        }
        let _ = write!(out, " received={}", self.received);
        if let Some(connect) = self.connect {
            let _ = write!(out, " connect_ms={connect}");
        }
        let _ = write!(out, " ms={}\" - ", self.took);
        let _ = match self.sent {
            0 => write!(out, "-"),
            sent => write!(out, "{sent}"),
        };
    }

    fn json(&self, stamp: &mut LogTimestamp, out: &mut Vec<u8>) {
        let millis = stamp.now();
        let (client, port) = (self.client.ip().to_canonical(), self.client.port());
        let protocol = if self.listener.id.l4 == L4::Udp { "udp" } else { "tcp" };
        let _ = write!(
            out,
            "{{\"time\":\"{}.{millis:03}Z\",\"client\":\"{client}\",\"client_port\":{port},\"protocol\":\"{protocol}\",\"address\":\"{}\"",
            stamp.begun, self.listener.at
        );
        let config = self.listener.config();
        for (name, value) in [("listener", &*config.listener.name), ("pool", self.pool)] {
            if !value.is_empty() {
                let _ = write!(out, ",\"{name}\":\"");
                line::put_json(out, value.as_bytes());
                out.push(b'"');
            }
        }
        if let Some(member) = self.member {
            let _ = write!(out, ",\"member\":\"{member}\"");
        }
        let _ = write!(out, ",\"end\":\"{}\"", self.ending.as_str());
        if let Some(reason) = self.ending.reason() {
            let _ = write!(out, ",\"reason\":\"{reason}\"");
        }
        let _ = write!(out, ",\"sent\":{},\"received\":{}", self.sent, self.received);
        if let Some(connect) = self.connect {
            let _ = write!(out, ",\"connect_milliseconds\":{connect}");
        }
        let _ = write!(out, ",\"milliseconds\":{}}}", self.took);
    }
}

impl LogEntry for ConnectionLogLine<'_> {
    fn write(&self, form: AccessLogFormat, stamp: &mut LogTimestamp, out: &mut Vec<u8>) {
        match form {
            AccessLogFormat::Common => self.common(stamp, out),
            AccessLogFormat::Combined => {
                self.common(stamp, out);
                out.extend_from_slice(b" \"-\" \"-\"");
            }
            AccessLogFormat::Json => self.json(stamp, out),
        }
        out.push(b'\n');
    }
}
