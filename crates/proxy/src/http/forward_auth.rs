//! Forward authentication: a request is served only after another Service has agreed to it.
//!
//! That Service gets the head of the request, as a request of its own without a body. If it answers 2xx, fields of its answer go on
//! to the member; any other answer is the client's. Without an answer nothing is served.

// What is read here is somebody else's.
#![cfg_attr(not(test), warn(clippy::indexing_slicing, clippy::arithmetic_side_effects, clippy::expect_used))]

use std::sync::Arc;

use seaway_model::load_balancer::{ConnectionReuse, ForwardAuth, Rule};
use seaway_wire::http::{BodyFraming, KnownHeader, Method};

use super::{
    credentials,
    exchange::{ExchangeState, KeepAlive, consume_head, refuse},
    queue::{self, QueueDeadline},
    relay::relay,
    request_head::{AddedHeaders, put},
    reuse::NextUse,
    rules::NoResponseChanges,
    scratch::Scratch,
    serve::DownstreamClient,
    upstream_request::{UpstreamError, UpstreamResponse, choose, request_on_own_connection},
};
use crate::{
    reach::note_failure,
    running::{ForwardAuthPool, RefusalReason, RunningMember, RunningPool, SelectionRequest},
};

/// Why forward auth did not allow a request.
pub(super) enum ForwardAuthFailure {
    /// The authorizing Service answered so; the client gets that answer.
    Denied(Box<Scratch>, UpstreamResponse, Arc<RunningPool>, Arc<RunningMember>),
    Unreachable,
    /// The client has left.
    ClientGone,
}

/// In milliseconds: to connect, and until the answer begins.
const PATIENCE: u64 = 5_000;
/// Members that are asked, until one answers.
const ATTEMPTS: usize = 2;

/// Lines for the member, after all have allowed the request.
pub(super) async fn ask(
    client: &DownstreamClient,
    scratch: &Scratch,
    state: ExchangeState<'_>,
    all: &[ForwardAuthPool],
) -> Result<Vec<u8>, ForwardAuthFailure> {
    let added = AddedHeaders {
        told: &client.downstream.told,
        certificate: client.downstream.certificate(state.is_verified),
        options: state.options,
        id: &scratch.id,
        version: "1.1",
        loop_marker: &client.context.shared.loop_marker,
        closes: true,
    };
    // All that the rule names are asked.
    if all.len() != state.rule.asks.len() {
        return Err(ForwardAuthFailure::Unreachable);
    }
    let mut lines = Vec::new();
    for asked in all {
        let mut own = client.context.scratch();
        own.upward.begin(BodyFraming::None, false);
        own.upward.was_joined();
        put_question(&mut own.question, scratch, (state.rule, &asked.auth), &added)
            .ok_or(ForwardAuthFailure::Unreachable)?;
        let _held = client.downstream.memory.reserve(own.weight());
        let (answer, member) = one_of(client, &mut own, of(state), &asked.pool).await?;
        let status = own.response.status;
        match status {
            200..300 => {
                put_granted(&mut lines, &own, &asked.auth);
                asked.pool.answered(&member, status, client.context.now());
                member.answers.count(status);
                // What else it says is not read, and no port of ours is kept for the connection.
                answer.end.reset();
                drop(answer);
                client.task_state.end_connection();
                client.context.put_back(own);
            }
            300.. => return Err(ForwardAuthFailure::Denied(own, answer, asked.pool.clone(), member)),
            _ => {
                client.task_state.end_connection();
                return Err(ForwardAuthFailure::Unreachable);
            }
        }
    }
    Ok(lines)
}

/// Tells the client that it is not served, or what it was told.
pub(super) async fn refuse_as(
    client: &DownstreamClient,
    scratch: &mut Scratch,
    state: ExchangeState<'_>,
    why: ForwardAuthFailure,
) -> KeepAlive {
    match why {
        ForwardAuthFailure::ClientGone => KeepAlive::Close,
        ForwardAuthFailure::Unreachable => {
            client.downstream.listener.refuse(RefusalReason::NoMember);
            refuse(client, scratch, 503).await
        }
        ForwardAuthFailure::Denied(mut own, answer, pool, member) => {
            // A body that is not read is not passed over, either.
            let persists = state.persists && scratch.request.body == BodyFraming::None;
            let state = ExchangeState { persists, version: state.version, ..of(state) };
            std::mem::swap(&mut own.record, &mut scratch.record);
            own.record.set_member(&pool, &member);
            let after = relay(client, &mut own, state, answer, &pool, &member).await;
            client.task_state.end_connection();
            std::mem::swap(&mut own.record, &mut scratch.record);
            client.context.put_back(own);
            consume_head(scratch);
            after
        }
    }
}

/// How this is asked: on a connection of its own, without a body, and never for long.
fn of(state: ExchangeState<'_>) -> ExchangeState<'_> {
    ExchangeState {
        sticky: None,
        method: if state.method == Method::Head { Method::Head } else { Method::Get },
        upgrade: false,
        reuse: ConnectionReuse::Never,
        next: NextUse::Closed,
        closes: true,
        connect_timeout: state.connect_timeout.min(PATIENCE),
        response_timeout: state.response_timeout.min(PATIENCE),
        ..state
    }
}

async fn one_of(
    client: &DownstreamClient,
    own: &mut Scratch,
    state: ExchangeState<'_>,
    pool: &Arc<RunningPool>,
) -> Result<(UpstreamResponse, Arc<RunningMember>), ForwardAuthFailure> {
    let Ok(_under_way) = pool.admit(client.context.now()) else {
        return Err(ForwardAuthFailure::Unreachable);
    };
    let (mut tried, mut patience) = (Vec::new(), QueueDeadline::default());
    while tried.len() < ATTEMPTS {
        let choose = || choose(&client.context, state.client, pool, &tried);
        let selection = || SelectionRequest { client: state.client, cookie: None, tried: tried.clone() };
        let Ok(member) = queue::reserve_member(client, pool, selection, &mut patience, choose).await else {
            let is_gone = client.is_gone();
            return Err(if is_gone {
                ForwardAuthFailure::ClientGone
            } else {
                ForwardAuthFailure::Unreachable
            });
        };
        let (result, _) = request_on_own_connection(client, own, state, pool, &member, true).await;
        let why = match result {
            Ok(answer) => return Ok((answer, member)),
            Err(why) => why,
        };
        client.task_state.end_connection();
        if client.is_gone() {
            return Err(ForwardAuthFailure::ClientGone);
        }
        match why {
            UpstreamError::Client => return Err(ForwardAuthFailure::ClientGone),
            UpstreamError::Again(why) => {
                note_failure(&client.downstream.listener, pool, &member, &why, client.context.now());
                tried.push(member);
            }
            UpstreamError::Lost(why) => {
                note_failure(&client.downstream.listener, pool, &member, &why, client.context.now());
                return Err(ForwardAuthFailure::Unreachable);
            }
            UpstreamError::Wrong(why) => {
                note_failure(&client.downstream.listener, pool, &member, why, client.context.now());
                return Err(ForwardAuthFailure::Unreachable);
            }
            UpstreamError::Late => {
                pool.note_response_timeout(&member, client.context.now());
                return Err(ForwardAuthFailure::Unreachable);
            }
            UpstreamError::Ours(error) => {
                client.note_local_shortage(&error);
                return Err(ForwardAuthFailure::Unreachable);
            }
            UpstreamError::Refused(_) => return Err(ForwardAuthFailure::Unreachable),
        }
    }
    Err(ForwardAuthFailure::Unreachable)
}

const METHOD: &[u8] = b"X-Forwarded-Method";
const URI: &[u8] = b"X-Forwarded-Uri";
const ORIGINAL_METHOD: &[u8] = b"X-Original-Method";
const ORIGINAL_URL: &[u8] = b"X-Original-URL";
const ORIGINAL_URI: &[u8] = b"X-Original-URI";

/// The head of the client's request, as that of one without a body to `auth`.
fn put_question(
    out: &mut Vec<u8>,
    scratch: &Scratch,
    (rule, auth): (&Rule, &ForwardAuth),
    added: &AddedHeaders<'_>,
) -> Option<()> {
    let request = &scratch.request;
    let head = scratch.asked.part(0, request.length).ok()?;
    if added.loop_marker.is_looped(head, request) {
        return None;
    }
    let method: &[u8] = if request.method == Method::Head { b"HEAD " } else { b"GET " };
    out.clear();
    put(out, &[method, auth.path.as_bytes(), b" HTTP/1.1\r\nHost: ", auth.host.as_bytes(), b"\r\n"]);
    for field in &request.fields {
        let name = field.name.of(head);
        let is_of_body =
            matches!(field.known, KnownHeader::ContentLength | KnownHeader::Expect | KnownHeader::Te);
        // What others would call that, and what only such a Service may say.
        let is_told = [METHOD, URI, ORIGINAL_METHOD, ORIGINAL_URL, ORIGINAL_URI]
            .into_iter()
            .any(|it| is_same_header_name(name, it))
            || is_granted(&rule.asks, name);
        // A password that was for us is nobody else's.
        let is_ours = credentials::is_authorization(name) && credentials::are_removed(rule);
        if !field.hop && !is_of_body && !is_told && !is_ours && !added.is_set_by_proxy(field) {
            put(out, &[name, b": ", field.value.of(head), b"\r\n"]);
        }
    }
    added.forwarded(out, head, request, &NoResponseChanges);
    put(out, &[METHOD, b": ", request.method_name.of(head), b"\r\n"]);
    let uri = request.path_and_query().of(head);
    // One that is empty would be taken for one that was not told.
    let slash: &[u8] = if uri.starts_with(b"/") { b"" } else { b"/" };
    put(out, &[URI, b": ", slash, uri, b"\r\n"]);
    if let Some(certificate) = added.certificate {
        put(out, &[b"Client-Cert: ", certificate, b"\r\n"]);
    }
    put(out, &[b"CDN-Loop: ", added.loop_marker.bytes(), b"\r\nConnection: close\r\n\r\n"]);
    Some(())
}

/// Fields of the answer that the member gets.
fn put_granted(lines: &mut Vec<u8>, own: &Scratch, auth: &ForwardAuth) {
    let Ok(head) = own.answered.part(0, own.response.length) else { return };
    for field in own.response.fields.iter().filter(|it| !it.hop) {
        let name = field.name.of(head);
        if auth.headers.iter().any(|it| it.as_bytes().eq_ignore_ascii_case(name)) {
            put(lines, &[name, b": ", field.value.of(head), b"\r\n"]);
        }
    }
}

/// What a client says itself of what only another Service may say: also in a way that some members read as the same.
pub(super) fn is_granted(all: &[Arc<ForwardAuth>], name: &[u8]) -> bool {
    all.iter().flat_map(|it| &it.headers).any(|it| is_same_header_name(name, it.as_bytes()))
}

/// To CGI and its heirs, `_` is `-`.
fn is_same_header_name(name: &[u8], wanted: &[u8]) -> bool {
    let plain = |byte: &u8| if *byte == b'_' { b'-' } else { byte.to_ascii_lowercase() };
    name.len() == wanted.len() && name.iter().map(plain).eq(wanted.iter().map(plain))
}
