//! One request and its answer.

use std::{
    future::poll_fn,
    io,
    net::IpAddr,
    rc::Rc,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::Poll,
};

use seaway_model::load_balancer::{Action, BackendProtocol, Rule};
use seaway_snapshot::Asked;
use seaway_wire::http::{Body, Limits, Method, Reading, Request, Version};

use super::{
    answer::Answer,
    arrival::Who,
    believed, cors,
    end::End,
    flow::Broken,
    hall::{Hall, Own},
    heads, mirror,
    relay::{relay, tunnel},
    rules::{self, Asking, Seen, redirected, rewritten},
    scratch::Scratch,
    serve::Client,
    sticky::Sticky,
    trunk,
};
use crate::{
    reach::{self, RETRIES, note_failure},
    running::{Mirror, Refusal, RunningMember, RunningPool, Tuned},
};

/// What becomes of the client's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    Next,
    Close,
}

/// What is still needed of a request when its head has made room for the body.
#[derive(Clone, Copy)]
pub(super) struct Short<'r> {
    /// Who asks, as far as anybody is believed.
    pub(super) client: IpAddr,
    pub(super) rule: &'r Rule,
    /// That every answer gets.
    pub(super) lines: &'r str,
    /// By which the client keeps its member, and in which pool.
    pub(super) sticky: Option<(&'r Sticky, &'r RunningPool)>,
    pub(super) method: Method,
    pub(super) version: Version,
    pub(super) persists: bool,
    pub(super) upgrade: bool,
}

/// Why a member did not answer.
pub(super) enum Unanswered {
    /// The client is gone, or has broken the protocol: there is nobody to answer.
    Client,
    /// What the client sends is not what it said: so many as a status.
    Refused(u16),
    /// Nothing of a request has reached it, or what did may be repeated.
    Again(String),
    /// Nobody knows what it did.
    Lost(String),
    Late,
    /// What it said is no answer.
    Wrong(&'static str),
}

pub(super) async fn exchange(client: &Client, scratch: &mut Scratch) -> After {
    let tuned = client.who.listener.tuned_now();
    let head = &scratch.asked.filled()[..scratch.request.length];
    let seen = Seen { head, request: &scratch.request };
    let found = tuned.routes.find(&seen);
    let Some((found, rule)) = found.and_then(|it| Some((it, tuned.listener.rules.get(it.rule)?))) else {
        return refuse(client, scratch, 404).await;
    };
    let peer = client.who.peer.ip();
    let mut short = Short {
        client: match client.who.told.believed {
            true => believed::client(peer, head, &scratch.request, &tuned.listener.http.trusted),
            false => peer,
        },
        rule,
        lines: "",
        sticky: None,
        method: scratch.request.method,
        version: scratch.request.version,
        persists: scratch.request.persists,
        upgrade: scratch.request.upgrade,
    };
    client.limit(rule.timeout);
    if cors::is_preflight(&seen)
        && let Some((cors, origin)) = cors::of(rule, &seen)
    {
        let mut fields = String::new();
        cors::for_preflight(cors, &origin, &seen, &mut fields);
        let persists = skip_request(scratch) && short.persists;
        return client.say(scratch, &Answer { fields: &fields, persists, ..Answer::last(204) }).await;
    }
    let lines = rules::lines(rule, &seen, client);
    short.lines = &lines;
    match &rule.action {
        Action::Forward(_) => {}
        Action::Respond { code, body } => {
            let body = Some(body.as_str()).filter(|body| !body.is_empty()).or(page(&tuned, *code));
            let persists = skip_request(scratch) && short.persists;
            let head_only = short.method == Method::Head;
            let answer = Answer { status: *code, fields: &lines, body, head_only, persists };
            return client.say(scratch, &answer).await;
        }
        Action::Redirect(redirect) => {
            let location = redirected(redirect, &seen, found, client);
            let fields = format!("Location: {location}\r\n{lines}");
            let persists = skip_request(scratch) && short.persists;
            let answer = Answer { fields: &fields, persists, ..Answer::last(redirect.code) };
            return client.say(scratch, &answer).await;
        }
    }
    let number = client.hall.cursors().draw();
    let Some(pool) = tuned.pool_of(found.rule, || number) else {
        client.who.listener.refuse(Refusal::NoMember);
        return refuse(client, scratch, 503).await;
    };
    let mut pool = pool.clone();
    let mut sticky = Sticky::of(&pool, head, &scratch.request);
    if sticky.as_ref().is_none_or(|it| it.mark.is_none())
        && let Some((theirs, known)) = kept_pool(&tuned, found.rule, head, &scratch.request)
    {
        (pool, sticky) = (theirs.clone(), Some(known));
    }
    if let Some(sticky) = &mut sticky {
        let secure = believed::asks_securely(&client.who.told, head, &scratch.request);
        sticky.within(rule, found, seen.path(), secure);
    }
    short.sticky = sticky.as_ref().map(|sticky| (sticky, &*pool));
    scratch.question.clear();
    let rewritten = rewritten(rule, found, &seen);
    heads::question(
        &mut scratch.question,
        head,
        &scratch.request,
        &client.who.told,
        rewritten,
        &Asking { rule, sticky: sticky.as_ref() },
    );
    let body = scratch.request.body;
    scratch.asked.consume(scratch.request.length);
    forward(client, scratch, short, body, &pool, tuned.mirrors_of(found.rule)).await
}

/// The pool that a client's cookie is of, where several share the requests: it keeps its member there, even of a pool
/// that gets nothing new any more.
fn kept_pool<'t>(
    tuned: &'t Tuned,
    rule: usize,
    head: &[u8],
    request: &Request,
) -> Option<(&'t Arc<RunningPool>, Sticky)> {
    let pools = tuned.pools_of(rule);
    let mut several = pools.iter().filter(|_| pools.len() > 1);
    several.find_map(|(pool, _)| {
        let sticky = Sticky::of(pool, head, request).filter(|it| it.mark.is_some())?;
        Some((pool, sticky))
    })
}

/// Tries members until one answers.
async fn forward(
    client: &Client,
    scratch: &mut Scratch,
    short: Short<'_>,
    body: Body,
    pool: &Arc<RunningPool>,
    mirrors: &[Mirror],
) -> After {
    scratch.upward.clear();
    let coming = match (&client.end, body) {
        // A stream has frames of its own around its body; it is chunked from here on.
        (End::Multi(_), Body::Chunked) => Body::UntilClose,
        _ => body,
    };
    let many = pool.live().compiled.pool().protocol == BackendProtocol::Http2;
    scratch.upward.begin(coming, body == Body::Chunked && !many);
    // What came with the head goes with it, and can be sent again.
    if scratch.upward.join(&mut scratch.asked).is_err() {
        return refuse(client, scratch, 400).await;
    }
    scratch.question.append(&mut scratch.upward.out);
    scratch.upward.was_joined();
    mirror::reflect(client, scratch, mirrors);
    let mut tried: Vec<Arc<RunningMember>> = Vec::new();
    let retries = short.rule.retries.map_or(RETRIES, usize::from);
    // What a PROXY header says of one client holds for the whole connection.
    let introduces = pool.live().compiled.pool().proxy.is_some();
    let mut fresh_only = introduces;
    loop {
        let known = short.sticky.and_then(|(sticky, _)| pool.marked(sticky.mark?, &tried, client.hall.now()));
        let member = known.or_else(|| choose(&client.hall, short.client, pool, &tried));
        let Some(member) = member.filter(|_| tried.len() <= retries) else {
            client.who.listener.refuse(Refusal::NoMember);
            return refuse(client, scratch, 503).await;
        };
        client.own.engage(Some(member.clone()));
        let (result, reused) = if many {
            trunk::ask(client, scratch, short, &member, fresh_only).await
        } else {
            ask_alone(client, scratch, short, pool, &member, fresh_only).await
        };
        let unanswered = match result {
            Ok(end) => {
                member.served();
                return relay(client, scratch, short, end, &member, !introduces).await;
            }
            Err(unanswered) => unanswered,
        };
        client.own.engage(None);
        let status = match unanswered {
            Unanswered::Client => return After::Close,
            Unanswered::Refused(status) => status,
            // A connection that was kept had been closed meanwhile: that says nothing about the member.
            Unanswered::Again(_) if reused => {
                fresh_only = true;
                continue;
            }
            Unanswered::Again(why) => {
                note_failure(&client.who.listener, pool, &member, &why, client.hall.now());
                client.who.listener.retries.fetch_add(1, Relaxed);
                member.retries.fetch_add(1, Relaxed);
                tried.push(member);
                continue;
            }
            Unanswered::Lost(why) => {
                note_failure(&client.who.listener, pool, &member, &why, client.hall.now());
                502
            }
            Unanswered::Wrong(why) => {
                tracing::debug!(member = %member.at, why, "an answer that is none");
                note_failure(&client.who.listener, pool, &member, why, client.hall.now());
                502
            }
            Unanswered::Late => 504,
        };
        return refuse(client, scratch, status).await;
    }
}

/// On a connection that nobody else uses meanwhile. Tells whether it had been used before.
async fn ask_alone(
    client: &Client,
    scratch: &mut Scratch,
    short: Short<'_>,
    pool: &RunningPool,
    member: &Arc<RunningMember>,
    fresh_only: bool,
) -> (Result<End, Unanswered>, bool) {
    let kept = if fresh_only { None } else { client.hall.kept().take(member) };
    let reused = kept.is_some();
    let end = match kept {
        Some(stream) => {
            stream.belong_to(Some(client.own.index()));
            End::Wire(stream)
        }
        None => {
            client.allow(client.timeout(|it| it.connect));
            match connect(&client.hall, &client.own, &client.who, pool, member).await {
                Ok(end) => end,
                Err(error) => return (Err(Unanswered::Again(error.to_string())), false),
            }
        }
    };
    (ask(client, scratch, short, &end, reused).await.map(|()| end), reused)
}

/// Somebody of the pool who has not been tried in vain.
pub(super) fn choose(
    hall: &Hall,
    client: IpAddr,
    pool: &Arc<RunningPool>,
    tried: &[Arc<RunningMember>],
) -> Option<Arc<RunningMember>> {
    let live = pool.live();
    let mut cursors = hall.cursors();
    pool.choose(&live, client, cursors.of(pool), tried, hall.now()).cloned()
}

/// Whoever goes on `own` has set a deadline for it.
pub(super) async fn connect(
    hall: &Rc<Hall>,
    own: &Own,
    who: &Who,
    pool: &RunningPool,
    member: &RunningMember,
) -> io::Result<End> {
    let fd = reach::connect(member, || hall.doors().give_up_spare())?;
    let stream = hall.watch(fd, own.index())?;
    stream.connected().await?;
    if let Some(version) = pool.live().compiled.pool().proxy {
        let header = reach::introduction(version, who.peer, who.destination, who.listener.at);
        stream.write_all(&header).await?;
    }
    Ok(End::Wire(stream))
}

/// Sends the request, and reads the head of the answer.
async fn ask(
    client: &Client,
    scratch: &mut Scratch,
    short: Short<'_>,
    stream: &End,
    reused: bool,
) -> Result<(), Unanswered> {
    let patience = client.timeout(|it| it.answer);
    client.allow(short.rule.attempt_timeout.map_or(patience, |time| patience.min(time.as_millis() as u64)));
    let limits = Limits::default();
    let all_in_question = scratch.upward.is_over();
    scratch.answered.clear();
    scratch.response.begin();
    let mut sent = 0;
    let result = poll_fn(|cx| -> Poll<Result<(), Unanswered>> {
        let hall = &client.hall;
        loop {
            let mut may_go_on = true;
            while sent < scratch.question.len() {
                match stream.poll_write(cx, &scratch.question[sent..]) {
                    Poll::Ready(Ok(written)) => sent += written,
                    // It may have answered before it closed.
                    Poll::Ready(Err(_)) => {
                        may_go_on = false;
                        break;
                    }
                    Poll::Pending => break,
                }
            }
            if may_go_on && sent == scratch.question.len() && !scratch.upward.is_through() {
                let before = scratch.upward.moved;
                match scratch.upward.poll(cx, hall, &client.end, &mut scratch.asked, stream) {
                    Poll::Ready(Err(Broken::Source(error))) => {
                        return Poll::Ready(Err(match error.kind() {
                            io::ErrorKind::InvalidData => Unanswered::Refused(400),
                            io::ErrorKind::TimedOut => Unanswered::Refused(408),
                            _ => Unanswered::Client,
                        }));
                    }
                    Poll::Ready(_) | Poll::Pending => {}
                }
                if scratch.upward.moved != before {
                    client.allow(client.timeout(|it| it.answer));
                }
            }
            if client.end.is_gone(cx) {
                return Poll::Ready(Err(Unanswered::Client));
            }
            let untouched = scratch.answered.is_empty();
            let may_repeat = untouched && all_in_question && (sent == 0 || short.method.is_idempotent());
            let gone = |why: String| {
                Poll::Ready(Err(if may_repeat { Unanswered::Again(why) } else { Unanswered::Lost(why) }))
            };
            match stream.poll_fill(cx, &mut scratch.answered) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) if error.kind() == io::ErrorKind::TimedOut => {
                    return Poll::Ready(Err(Unanswered::Late));
                }
                Poll::Ready(Err(error)) => return gone(error.to_string()),
                Poll::Ready(Ok(0)) => return gone("closed before an answer".to_owned()),
                Poll::Ready(Ok(_)) => {}
            }
            match scratch.response.read(scratch.answered.filled(), short.method, &limits) {
                Reading::More => {}
                Reading::Whole => return Poll::Ready(Ok(())),
                Reading::Refused(refusal) => return Poll::Ready(Err(Unanswered::Wrong(refusal.why))),
            }
        }
    })
    .await;
    // One that stays open after its head was not read whole is no good to anybody.
    if result.is_err() && !reused {
        stream.reset();
    }
    result
}

/// TLS ends here, and what is in it goes on as it is.
pub(super) async fn pass_through(client: &Client) {
    let tuned = client.who.listener.tuned_now();
    let number = client.hall.cursors().draw();
    let Some(pool) = tuned.pool(|| number).cloned() else {
        return client.who.listener.refuse(Refusal::NoMember);
    };
    let mut tried = Vec::new();
    while tried.len() <= RETRIES {
        let Some(member) = choose(&client.hall, client.who.peer.ip(), &pool, &tried) else { break };
        client.own.engage(Some(member.clone()));
        client.allow(client.timeout(|it| it.connect));
        match connect(&client.hall, &client.own, &client.who, &pool, &member).await {
            Ok(stream) => {
                let mut scratch = client.hall.scratch();
                scratch.upward.begin(Body::Tunnel, false);
                scratch.downward.begin(Body::Tunnel, false);
                tunnel(client, &mut scratch, &stream).await;
                return client.hall.put_back(scratch);
            }
            Err(error) => {
                client.own.engage(None);
                note_failure(&client.who.listener, &pool, &member, &error.to_string(), client.hall.now());
                tried.push(member);
            }
        }
    }
    client.who.listener.refuse(Refusal::NoMember);
    client.end.reset();
}

/// Answers a request that goes nowhere. Its body, if there is one, is not waited for.
pub(super) async fn refuse(client: &Client, scratch: &mut Scratch, status: u16) -> After {
    let head_only = scratch.request.method == Method::Head;
    let tuned = client.who.listener.tuned_now();
    client.say(scratch, &Answer { head_only, body: page(&tuned, status), ..Answer::last(status) }).await
}

/// What the operator wants to be said for that status.
fn page(tuned: &Tuned, status: u16) -> Option<&str> {
    tuned.listener.http.pages.get(&status).map(|page| page.as_str())
}

/// `true`: the next request begins right behind this one.
fn skip_request(scratch: &mut Scratch) -> bool {
    scratch.asked.consume(scratch.request.length);
    scratch.request.body == Body::None
}
