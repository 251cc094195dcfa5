//! One request and its answer.

use std::{
    net::IpAddr,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use seaway_model::load_balancer::{Action, BackendProtocol, ConnectionReuse, HttpOptions, Rule};
use seaway_snapshot::RequestParts;
use seaway_wire::http::{BodyFraming, Method, Request, Version};

use super::{
    client_tls,
    compression::CompressionNegotiation,
    cors,
    credentials::{self, AuthenticationFailure},
    forward_auth,
    guard::{self, RuleDenial},
    h2_upstream,
    idle_timeouts::{IdleTimeouts, millis},
    local_reply::LocalReply,
    mirror,
    queue::{self, QueueDeadline},
    relay::relay,
    request_head::{AddedHeaders, version_of},
    reuse::NextUse,
    rules::{self, RequestChanges, RequestView, redirected, rewritten},
    scratch::Scratch,
    serve::DownstreamClient,
    sticky::StickySession,
    transport::HttpTransport,
    trusted_client::{self, TrustedClientAddress},
    upstream_request::{UpstreamError, UpstreamResponse, choose, request_on_own_connection},
};
use crate::{
    latency::Stopwatch,
    reach::{RETRIES, note_failure},
    running::{ListenerConfig, Mirror, RefusalReason, RunningMember, RunningPool, SelectionRequest},
};

/// What becomes of the client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KeepAlive {
    Next,
    /// It ends as soon as the client has heard the answer.
    Last,
    Close,
}

/// What is kept of a request after its head has made room for the body.
#[derive(Clone, Copy)]
pub(super) struct ExchangeState<'r> {
    /// When its head had come, where that is measured.
    pub(super) started: Stopwatch,
    /// The client's address, as far as a proxy before us is believed.
    pub(super) client: IpAddr,
    pub(super) rule: &'r Rule,
    /// The client has shown a certificate that this rule believes.
    pub(super) is_verified: bool,
    pub(super) options: &'r HttpOptions,
    /// Lines that the rule adds to every response.
    pub(super) response_headers: &'r str,
    /// By which the client keeps its member, and in which pool.
    pub(super) sticky: Option<(&'r StickySession, &'r RunningPool)>,
    /// Whether its answer may be compressed.
    pub(super) compression: Option<CompressionNegotiation<'r>>,
    pub(super) method: Method,
    pub(super) version: Version,
    pub(super) persists: bool,
    pub(super) upgrade: bool,
    pub(super) reuse: ConnectionReuse,
    /// Which client may use the connection to the member next, as far as the request allows.
    pub(super) next: NextUse,
    /// The member gets `Connection: close`.
    pub(super) closes: bool,
    /// How long may pass, in milliseconds: to connect to a member, and without a byte either way.
    pub(super) connect_timeout: u64,
    pub(super) response_timeout: u64,
    pub(super) quiet: IdleTimeouts,
}

/// Members that are asked whether they take a request before one waits.
const MOST_FULL: usize = 8;

pub(super) async fn exchange(client: &DownstreamClient, scratch: &mut Scratch) -> KeepAlive {
    let config = client.downstream.listener.config_owned();
    // A request of which nothing is found again is nobody's: by an empty path it would be another's.
    let Ok(head) = scratch.asked.part(0, scratch.request.length) else {
        return refuse(client, scratch, 500).await;
    };
    if config.listener.http.request_id {
        let believed = client.downstream.told.believed;
        client.context.request_ids().put_request_id(&mut scratch.id, head, &scratch.request, believed);
    }
    let seen = RequestView { head, request: &scratch.request };
    let found = config.routes.find(&seen);
    let Some((found, rule)) = found.and_then(|it| Some((it, config.rule(it.rule)?))) else {
        return refuse(client, scratch, 404).await;
    };
    client.task_state.charge_to(&rule.owner);
    let peer = client.downstream.peer.ip();
    let asks = match client.downstream.told.believed {
        true => trusted_client::client(peer, head, &scratch.request, &config.listener.http.trusted),
        false => TrustedClientAddress { ip: peer, is_hidden: false },
    };
    let mut state = ExchangeState {
        started: client.context.shared.started(),
        client: asks.ip,
        rule,
        is_verified: false,
        options: &config.listener.http,
        response_headers: "",
        sticky: None,
        compression: None,
        method: scratch.request.method,
        version: scratch.request.version,
        persists: scratch.request.persists,
        upgrade: scratch.request.upgrade,
        reuse: ConnectionReuse::Never,
        next: NextUse::Closed,
        closes: false,
        connect_timeout: millis(config.listener.timeouts.connect),
        response_timeout: millis(config.listener.timeouts.answer),
        quiet: IdleTimeouts::usual(&config.listener.timeouts),
    };
    scratch.record.set_client(state.client);
    client.limit(rule.timeout);
    // Nobody is invited to ask once more where nothing more is answered.
    let may_persist = state.persists && !client.is_over();
    match client_tls::admit(&client.downstream, &config.listener, rule) {
        Ok(is_verified) => state.is_verified = is_verified,
        Err(status) => {
            client.downstream.listener.refuse(RefusalReason::Tls);
            return refuse(client, scratch, status).await;
        }
    }
    // Before anything else of the rule is done: redirects and preflights tell of it, too.
    match guard::admit(client, &config, found, asks, &seen) {
        Ok(()) => {}
        Err(RuleDenial::Source) => {
            client.downstream.listener.refuse(RefusalReason::Source);
            return refuse(client, scratch, 403).await;
        }
        Err(RuleDenial::Spelling) => return refuse(client, scratch, 400).await,
        Err(RuleDenial::Rate(seconds)) => {
            client.downstream.listener.refuse(RefusalReason::ClientRate);
            let (fields, body) = (format!("Retry-After: {seconds}\r\n"), error_page(&config, 429));
            let head_only = state.method == Method::Head;
            // Another connection would cost more than another answer.
            let persists = consume_head(scratch) && may_persist;
            let answer = LocalReply { status: 429, fields: &fields, body, head_only, persists };
            return client.respond(scratch, &answer).await;
        }
    }
    if !rule.auth.is_empty()
        && let Err(why) = credentials::authenticate(client, rule, state.client, head, &scratch.request).await
    {
        return ask_for_password(client, scratch, state, may_persist, why).await;
    }
    let mut granted = Vec::new();
    if !rule.asks.is_empty() {
        let all = config.auth_pools_of(found.rule);
        match Box::pin(forward_auth::ask(client, scratch, state, all)).await {
            Ok(lines) => granted = lines,
            Err(why) => return Box::pin(forward_auth::refuse_as(client, scratch, state, why)).await,
        }
    }
    if cors::is_preflight(&seen)
        && let Some((cors, origin)) = cors::of(rule, &seen)
    {
        let mut fields = String::new();
        cors::for_preflight(cors, &origin, &seen, &mut fields);
        let persists = consume_head(scratch) && may_persist;
        let answer = LocalReply { fields: &fields, persists, ..LocalReply::last(204) };
        return client.respond(scratch, &answer).await;
    }
    let lines = rules::lines(rule, &seen, client);
    state.response_headers = &lines;
    match &rule.action {
        Action::Forward(_) => {}
        Action::Respond { code, body } => {
            let body = Some(body.as_str()).filter(|body| !body.is_empty()).or(error_page(&config, *code));
            let persists = consume_head(scratch) && may_persist;
            let head_only = state.method == Method::Head;
            let answer = LocalReply { status: *code, fields: &lines, body, head_only, persists };
            return client.respond(scratch, &answer).await;
        }
        Action::Redirect(redirect) => {
            let location = redirected(redirect, &seen, found, &client.downstream.told);
            let fields = format!("Location: {location}\r\n{lines}");
            let persists = consume_head(scratch) && may_persist;
            let answer = LocalReply { fields: &fields, persists, ..LocalReply::last(redirect.code) };
            return client.respond(scratch, &answer).await;
        }
    }
    let loop_marker = &client.context.shared.loop_marker;
    if loop_marker.is_looped(head, &scratch.request) {
        client.context.shared.report_loop(client.downstream.listener.at);
        client.downstream.listener.refuse(RefusalReason::Loop);
        return refuse(client, scratch, 508).await;
    }
    let number = client.context.cursors().draw();
    let Some(pool) = config.pool_of(found.rule, || number) else {
        client.downstream.listener.refuse(RefusalReason::NoMember);
        return refuse(client, scratch, 503).await;
    };
    let mut pool = pool.clone();
    let mut sticky = StickySession::of(&pool, head, &scratch.request);
    if sticky.as_ref().is_none_or(|it| it.mark.is_none())
        && let Some((theirs, known)) = kept_pool(&config, found.rule, head, &scratch.request)
    {
        (pool, sticky) = (theirs.clone(), Some(known));
    }
    if let Some(sticky) = &mut sticky {
        let secure = trusted_client::asks_securely(&client.downstream.told, head, &scratch.request);
        sticky.within(rule, found, seen.path(), secure);
    }
    state.sticky = sticky.as_ref().map(|sticky| (sticky, &*pool));
    let (body, terms, protocol, limits) = {
        let live = pool.live();
        let pool = live.compiled.pool();
        (scratch.request.body, pool.http.clone(), pool.protocol, pool.limits)
    };
    let _under_way = match pool.admit_within(limits, client.context.now()) {
        Ok(under_way) => under_way,
        Err(why) => {
            client.downstream.listener.refuse(why);
            let (status, fields) = match why {
                RefusalReason::Rate => (429, "Retry-After: 1\r\n"),
                _ => (503, ""),
            };
            let (body, head_only) = (error_page(&config, status), state.method == Method::Head);
            let persists = consume_head(scratch) && may_persist;
            let answer = LocalReply { status, fields, body, head_only, persists };
            return client.respond(scratch, &answer).await;
        }
    };
    state.compression = terms.compression.as_deref().map(|it| {
        let is_known = client.downstream.told.certificate.is_some();
        CompressionNegotiation::of(it, rule, is_known, head, &scratch.request)
    });
    state.reuse = terms.reuse;
    state.next = NextUse::after_request(&scratch.request, terms.reuse, client.downstream.told.believed);
    let switches = state.upgrade || body == BodyFraming::Tunnel;
    state.closes = state.next == NextUse::Closed && !switches && protocol != BackendProtocol::Http2;
    scratch.question.clear();
    let rewritten = rewritten(rule, found, &seen);
    let added = AddedHeaders {
        told: &client.downstream.told,
        certificate: client.downstream.certificate(state.is_verified),
        options: state.options,
        id: &scratch.id,
        version: version_of(&scratch.request, matches!(client.end, HttpTransport::H2Stream(_))),
        loop_marker,
        closes: state.closes,
    };
    let is_guarded = !rule.auth.is_empty() || !rule.asks.is_empty();
    let asking = RequestChanges { rule, sticky: sticky.as_ref(), granted: &granted, is_guarded };
    let (out, request_ids) = (&mut scratch.question, client.context.request_ids());
    added.question(out, head, &scratch.request, rewritten, &asking, request_ids);
    state.connect_timeout = terms.connect.map_or(state.connect_timeout, millis);
    state.response_timeout = terms.answer.map_or(state.response_timeout, millis);
    state.quiet = IdleTimeouts::of(&terms, &config.listener.timeouts);
    client.task_state.drain_within(terms.drain);
    let most = terms.body.unwrap_or(state.options.limits.body);
    if matches!(body, BodyFraming::Length(length) if length > most) {
        return refuse(client, scratch, 413).await;
    }
    scratch.asked.consume(scratch.request.length);
    forward(client, scratch, state, (body, most), &pool, config.mirrors_of(found.rule)).await
}

/// Tells a client that its rule is for others.
async fn ask_for_password(
    client: &DownstreamClient,
    scratch: &mut Scratch,
    state: ExchangeState<'_>,
    may_persist: bool,
    why: AuthenticationFailure,
) -> KeepAlive {
    let (status, fields) = match why {
        AuthenticationFailure::Unknown(challenge) => (401, challenge),
        AuthenticationFailure::NoUsers => (503, String::new()),
        AuthenticationFailure::Busy => {
            client.downstream.listener.refuse(RefusalReason::Resources);
            (503, "Retry-After: 1\r\n".to_owned())
        }
        AuthenticationFailure::Gone => return KeepAlive::Close,
    };
    let config = client.downstream.listener.config_owned();
    let (body, head_only) = (error_page(&config, status), state.method == Method::Head);
    // Browsers ask again on the same connection.
    let persists = consume_head(scratch) && may_persist;
    client.respond(scratch, &LocalReply { status, fields: &fields, body, head_only, persists }).await
}

/// The pool that a client's cookie is of, where several share the requests: it keeps its member there, even of a pool
/// that gets nothing new any more.
fn kept_pool<'t>(
    config: &'t ListenerConfig,
    rule: usize,
    head: &[u8],
    request: &Request,
) -> Option<(&'t Arc<RunningPool>, StickySession)> {
    let pools = config.pools_of(rule);
    let mut several = pools.iter().filter(|_| pools.len() > 1);
    several.find_map(|(pool, _)| {
        let sticky = StickySession::of(pool, head, request).filter(|it| it.mark.is_some())?;
        Some((pool, sticky))
    })
}

/// Tries members until one answers.
async fn forward(
    client: &DownstreamClient,
    scratch: &mut Scratch,
    mut state: ExchangeState<'_>,
    (body, most): (BodyFraming, u64),
    pool: &Arc<RunningPool>,
    mirrors: &[Mirror],
) -> KeepAlive {
    scratch.upward.clear();
    let coming = match (&client.end, body) {
        // A stream has frames of its own around its body; it is chunked from here on.
        (HttpTransport::H2Stream(_), BodyFraming::Chunked) => BodyFraming::UntilClose,
        // Before the member has agreed, what comes next may as well be another request.
        (_, BodyFraming::Tunnel) => BodyFraming::None,
        _ => body,
    };
    let h2 = pool.live().compiled.pool().protocol == BackendProtocol::Http2;
    scratch.upward.begin(coming, body == BodyFraming::Chunked && !h2);
    if !state.rule.auth.is_empty() || !state.rule.asks.is_empty() {
        // Some members read them as headers: they could say what only those may who have agreed.
        scratch.upward.drop_trailers();
    }
    if body != BodyFraming::Tunnel {
        scratch.upward.limit(most);
    }
    // What came with the head goes with it, and can be sent again.
    if let Err(error) = scratch.upward.join(&mut scratch.asked) {
        let too_much = error.kind() == std::io::ErrorKind::FileTooLarge;
        return refuse(client, scratch, if too_much { 413 } else { 400 }).await;
    }
    scratch.question.append(&mut scratch.upward.out);
    scratch.upward.was_joined();
    mirror::send_mirrors(client, scratch, mirrors);
    client.release_buffers(scratch);
    let mut tried: Vec<Arc<RunningMember>> = Vec::new();
    let (mut held, mut patience) = (None, QueueDeadline::default());
    let retries = state.rule.retries.map_or(RETRIES, usize::from);
    // What a PROXY header says of one client holds for the whole connection.
    let introduces = pool.live().compiled.pool().proxy.is_some();
    let mut fresh_only = introduces || (state.reuse == ConnectionReuse::Never && !h2);
    if introduces {
        state.next = NextUse::Closed;
    }
    loop {
        let selection = || SelectionRequest {
            client: state.client,
            cookie: state.sticky.and_then(|(sticky, _)| sticky.mark),
            tried: tried.clone(),
        };
        let choose = || {
            let known =
                |(sticky, _): (&StickySession, _)| pool.by_cookie(sticky.mark?, &tried, client.context.now());
            state.sticky.and_then(known).or_else(|| match h2 {
                true => choose_free(client, state.client, pool, &tried),
                false => choose(&client.context, state.client, pool, &tried),
            })
        };
        let engaged = match (held.take(), tried.len() <= retries) {
            (Some(member), _) => Ok(member),
            (None, true) => queue::reserve_member(client, pool, selection, &mut patience, choose).await,
            (None, false) => Err(RefusalReason::NoMember),
        };
        let member = match engaged {
            Ok(member) => member,
            Err(_) if client.is_gone() => {
                client.end.reset();
                return KeepAlive::Close;
            }
            Err(why) => {
                client.downstream.listener.refuse(why);
                pool.refused(why);
                return refuse(client, scratch, 503).await;
            }
        };
        let (result, reused) = if h2 {
            let (result, reused) = h2_upstream::ask(client, scratch, state, pool, &member, fresh_only).await;
            (result.map(|end| UpstreamResponse { end, is_whole: true, next: NextUse::Closed }), reused)
        } else {
            request_on_own_connection(client, scratch, state, pool, &member, fresh_only).await
        };
        let unanswered = match result {
            Ok(asked) => {
                scratch.record.set_member(pool, &member);
                client.release_buffers(scratch);
                if client.downstream.memory.is_over() {
                    // Heads of answers that it does not take are bounded by nothing else.
                    client.downstream.refuse_for_memory();
                    asked.end.reset();
                    drop(asked);
                    client.end.reset();
                    client.task_state.end_connection();
                    return KeepAlive::Close;
                }
                let after = relay(client, scratch, state, asked, pool, &member).await;
                client.task_state.end_connection();
                return after;
            }
            Err(unanswered) => unanswered,
        };
        // A connection that was kept had been closed meanwhile: that says nothing about the member. With a limit the room is kept.
        if reused && matches!(unanswered, UpstreamError::Again(_)) && !client.downstream.memory.is_evicted() {
            fresh_only = true;
            held = pool.member_limit().map(|_| member);
            if held.is_none() {
                client.task_state.end_connection();
            }
            continue;
        }
        client.task_state.end_connection();
        if client.downstream.memory.is_evicted() {
            // Whatever came of it says nothing about the member.
            client.end.reset();
            return KeepAlive::Close;
        }
        let status = match unanswered {
            UpstreamError::Client => return KeepAlive::Close,
            UpstreamError::Refused(status) => status,
            UpstreamError::Ours(error) => {
                client.note_local_shortage(&error);
                503
            }
            UpstreamError::Again(why) => {
                note_failure(&client.downstream.listener, pool, &member, &why, client.context.now());
                client.downstream.listener.retries.fetch_add(1, Relaxed);
                member.retries.fetch_add(1, Relaxed);
                tried.push(member);
                continue;
            }
            UpstreamError::Lost(why) => {
                note_failure(&client.downstream.listener, pool, &member, &why, client.context.now());
                502
            }
            UpstreamError::Wrong(why) => {
                tracing::debug!(member = %member.at, why, "not a valid HTTP response");
                note_failure(&client.downstream.listener, pool, &member, why, client.context.now());
                502
            }
            UpstreamError::Late => {
                pool.note_response_timeout(&member, client.context.now());
                504
            }
        };
        return refuse(client, scratch, status).await;
    }
}

/// Somebody who takes another request now; if nobody does, whoever would have had it. Clients that keep to one member
/// wait for that one.
fn choose_free(
    client: &DownstreamClient,
    address: IpAddr,
    pool: &Arc<RunningPool>,
    tried: &[Arc<RunningMember>],
) -> Option<Arc<RunningMember>> {
    let first = choose(&client.context, address, pool, tried)?;
    if pool.live().compiled.pool().affinity.is_some() || h2_upstream::is_free(client, &first) {
        return Some(first);
    }
    let mut full = [tried, std::slice::from_ref(&first)].concat();
    while full.len() < tried.len().saturating_add(MOST_FULL) {
        let Some(next) = choose(&client.context, address, pool, &full) else { break };
        if h2_upstream::is_free(client, &next) {
            return Some(next);
        }
        full.push(next);
    }
    Some(first)
}

/// Answers a request that goes nowhere. Its body, if there is one, is not waited for.
pub(super) async fn refuse(client: &DownstreamClient, scratch: &mut Scratch, status: u16) -> KeepAlive {
    let head_only = scratch.request.method == Method::Head;
    let config = client.downstream.listener.config_owned();
    let answer = LocalReply { head_only, body: error_page(&config, status), ..LocalReply::last(status) };
    client.respond(scratch, &answer).await
}

/// What the operator wants to be said for that status.
fn error_page(config: &ListenerConfig, status: u16) -> Option<&str> {
    config.listener.http.pages.get(&status).map(|page| page.as_str())
}

/// Drops the head of the request. `true`: no body follows, so the connection can be used again.
pub(super) fn consume_head(scratch: &mut Scratch) -> bool {
    scratch.asked.consume(scratch.request.length);
    scratch.request.body == BodyFraming::None
}
