//! The fields of a request for the access log, copied on its way: its head makes room for what comes after it before
//! the response is known.

use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use seaway_wire::http::KnownHeader;

use super::{
    request_head::version_of, scratch::Scratch, serve::DownstreamClient, transport::HttpTransport,
    trusted_client,
};
use crate::{
    access::{AccessLogSink, RequestLogLine},
    running::{RunningMember, RunningPool},
};

#[derive(Default)]
pub(super) struct AccessRecord {
    /// `None`: this request is not logged.
    sink: Option<Arc<AccessLogSink>>,
    began: u64,
    client: Option<IpAddr>,
    /// Method, target, host, referer and agent, one after another.
    text: Vec<u8>,
    ends: [usize; 5],
    version: &'static str,
    secure: bool,
    status: u16,
    sent: u64,
    received: u64,
    member: Option<(Arc<RunningPool>, SocketAddr)>,
}

impl AccessRecord {
    pub(super) fn set_client(&mut self, client: IpAddr) {
        self.client = Some(client);
    }

    pub(super) fn set_response(&mut self, status: u16, sent: impl FnOnce() -> usize) {
        if self.sink.is_some() {
            (self.status, self.sent) = (status, sent() as u64);
        }
    }

    pub(super) fn set_member(&mut self, pool: &Arc<RunningPool>, member: &RunningMember) {
        if self.sink.is_some() {
            self.member = Some((pool.clone(), member.at));
        }
    }

    pub(super) fn set_bytes(&mut self, received: u64, sent: u64) {
        (self.received, self.sent) = (received, sent);
    }
}

impl DownstreamClient {
    /// A head has come, `whole` or one that is refused.
    pub(super) fn begin_record(&self, scratch: &mut Scratch, whole: bool) {
        scratch.id.clear();
        let Some(sink) = self.context.shared.access.sink() else { return };
        if !sink.settings.takes(|| self.context.cursors().draw()) {
            return;
        }
        let Scratch { record, request, asked, .. } = scratch;
        record.sink = Some(sink);
        record.began = self.context.now();
        (record.client, record.member, record.status) = (None, None, 0);
        record.set_bytes(0, 0);
        record.text.clear();
        record.ends = [0; 5];
        (record.version, record.secure) = ("", self.downstream.told.scheme() == "https");
        if !whole {
            return;
        }
        let head = asked.filled();
        record.version = version_of(request, matches!(self.end, HttpTransport::H2Stream(_)));
        record.secure = trusted_client::asks_securely(&self.downstream.told, head, request);
        let field = |name: &[u8]| {
            let mut fields = request.fields.iter().filter(|field| field.known == KnownHeader::Other);
            fields.find(|field| field.name.of(head).eq_ignore_ascii_case(name)).map(|field| field.value)
        };
        let target = match request.path_and_query() {
            none if none.is_empty() => request.authority,
            target => target,
        };
        let parts = [
            request.method_name,
            target,
            request.authority,
            field(b"referer").unwrap_or_default(),
            field(b"user-agent").unwrap_or_default(),
        ];
        for (part, end) in parts.into_iter().zip(&mut record.ends) {
            record.text.extend_from_slice(part.of(head));
            *end = record.text.len();
        }
    }

    /// The request is over, however it ended.
    pub(super) fn finish_record(&self, scratch: &mut Scratch) {
        let Scratch { record, id, .. } = scratch;
        let Some(sink) = record.sink.take() else { return };
        let [method, target, host, referer, agent] = record.ends;
        let part = |from: usize, to: usize| record.text.get(from..to).unwrap_or_default();
        let listener = self.downstream.listener.config();
        let line = RequestLogLine {
            client: record.client.unwrap_or(self.downstream.peer.ip()).to_canonical(),
            method: part(0, method),
            target: part(method, target),
            version: record.version,
            host: part(target, host),
            referer: part(host, referer),
            agent: part(referer, agent),
            id,
            status: record.status,
            sent: record.sent,
            received: record.received,
            took: self.context.now().saturating_sub(record.began),
            scheme: if record.secure { "https" } else { "http" },
            listener: &listener.listener.name,
            pool: record.member.as_ref().map_or("", |(pool, _)| &pool.id.0),
            member: record.member.as_ref().map(|(_, at)| *at),
        };
        self.context.log(&sink, &line);
        record.member = None;
    }
}
