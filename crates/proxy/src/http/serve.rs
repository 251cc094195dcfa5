//! One client, from its first byte to its last.

use std::{
    future::poll_fn,
    io,
    rc::Rc,
    sync::Arc,
    sync::atomic::Ordering::Relaxed,
    task::{Poll, ready},
};

use rustls::ServerConnection;
use seaway_model::load_balancer::Protocol;
use seaway_wire::{
    http::{Limits, Reading},
    proxy::{self, Parsed},
};

use super::{
    answer::Answer,
    exchange::{self, After},
    hall::{Hall, Own},
    heads::Told,
    scratch::Scratch,
    session::Session,
    stream::Stream,
};
use crate::{
    doors::Newcomer,
    running::{Refusal, RunningListener},
    shared::Shared,
    tls::Terms,
};

pub(super) struct Client {
    pub(super) hall: Rc<Hall>,
    pub(super) own: Rc<Own>,
    pub(super) stream: Stream,
    pub(super) peer: std::net::SocketAddr,
    /// Where it wanted to go, as a PROXY header says.
    pub(super) destination: Option<std::net::SocketAddr>,
    pub(super) listener: Arc<RunningListener>,
    pub(super) told: Told,
    /// How TLS is spoken with it.
    pub(super) terms: Option<Arc<Terms>>,
    /// Came together with the header of a PROXY.
    begun: Option<Box<Scratch>>,
    _counted: Counted,
}

/// As long as it lives, the listener and the process count it.
struct Counted {
    listener: Arc<RunningListener>,
    shared: Arc<Shared>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.listener.leave();
        self.shared.connection_ended();
    }
}

pub(super) async fn serve(hall: Rc<Hall>, own: Rc<Own>, newcomer: Newcomer) {
    let Newcomer { fd, peer, listener, trusted } = newcomer;
    let _counted = Counted { listener: listener.clone(), shared: hall.shared.clone() };
    let stream = match hall.watch(fd, own.index) {
        Ok(stream) => stream,
        Err(error) => return hall.shared.out_of_descriptors(&error),
    };
    let told = Told::new(peer, listener.at.port(), false);
    let mut client = Client {
        hall,
        own,
        stream,
        peer,
        destination: None,
        listener,
        told,
        terms: None,
        begun: None,
        _counted,
    };
    if trusted && !client.introduced().await {
        return client.stream.reset();
    }
    let tuned = client.listener.tuned_now();
    if tuned.listener.tls.is_some() {
        // Without terms nobody is served: what is asked for in TLS is never said in the open.
        let Some(terms) = tuned.terms.clone() else { return client.listener.refuse(Refusal::Tls) };
        if let Err(error) = client.secured(terms).await {
            tracing::debug!(listener = %client.listener.at, peer = %client.peer, %error, "no TLS");
            return client.listener.refuse(Refusal::Tls);
        }
    }
    if tuned.listener.protocol == Protocol::Opaque {
        return exchange::pass_through(&mut client).await;
    }
    drop(tuned);
    client.served_on().await;
}

impl Client {
    /// Reads the PROXY header that trusted peers must send first. `false`: there is none, or its client may not come.
    async fn introduced(&mut self) -> bool {
        self.own.set_deadline(self.hall.now() + self.timeout(|it| it.header));
        let mut scratch = self.hall.scratch();
        let header = poll_fn(|_| {
            loop {
                match proxy::parse(scratch.asked.filled()) {
                    Parsed::Header(header) => {
                        return Poll::Ready(Some((header.length, header.source(), header.destination())));
                    }
                    Parsed::Need(_) => {}
                    Parsed::Invalid(_) => return Poll::Ready(None),
                }
                match ready!(scratch.asked.poll_fill(&self.stream)) {
                    Ok(1..) => {}
                    _ => return Poll::Ready(None),
                }
            }
        })
        .await;
        let Some((length, source, destination)) = header else {
            self.listener.refuse(Refusal::Header);
            return false;
        };
        scratch.asked.consume(length);
        if let Some(source) = source {
            self.peer = source;
            self.destination = destination;
            self.told = Told::new(source, self.listener.at.port(), false);
        }
        if !self.listener.tuned().admits(self.peer.ip()) {
            self.listener.refuse(Refusal::Source);
            return false;
        }
        self.begun = (!scratch.asked.is_empty()).then_some(scratch);
        true
    }

    async fn secured(&mut self, terms: Arc<Terms>) -> io::Result<()> {
        let connection = ServerConnection::new(terms.config.clone()).map_err(io::Error::other)?;
        self.own.set_deadline(self.hall.now() + self.timeout(|it| it.header));
        self.stream.secure(Session::new(connection));
        self.stream.shaken_hands().await?;
        self.told = Told::new(self.peer, self.listener.at.port(), true);
        if let Some(session) = self.stream.session()
            && let Some([certificate, ..]) = session.connection().peer_certificates()
        {
            self.told = Told::new(self.peer, self.listener.at.port(), true).with_certificate(certificate);
        }
        self.terms = Some(terms);
        Ok(())
    }

    async fn served_on(&mut self) {
        let mut first = true;
        loop {
            // Nobody holds a buffer while nothing comes.
            let patience =
                if first { self.timeout(|it| it.header) } else { self.timeout(|it| it.keep_alive) };
            self.own.set_deadline(self.hall.now() + patience);
            let begun = self.begun.take();
            if begun.is_none() && !self.stream.wakes(|| self.is_over()).await {
                return;
            }
            let mut scratch = begun.unwrap_or_else(|| self.hall.scratch());
            loop {
                match self.one(&mut scratch, &mut first).await {
                    After::Next if scratch.asked.is_empty() && !self.stream.is_readable() => break,
                    After::Next => {}
                    After::Close => return self.hall.put_back(scratch),
                }
            }
            self.hall.put_back(scratch);
        }
    }

    /// Reads one head and answers it.
    async fn one(&mut self, scratch: &mut Scratch, first: &mut bool) -> After {
        let patience = if *first || !scratch.asked.is_empty() {
            self.timeout(|it| it.header)
        } else {
            self.timeout(|it| it.keep_alive)
        };
        self.own.set_deadline(self.hall.now() + patience);
        let limits = Limits::default();
        scratch.request.begin();
        let read = poll_fn(|_| -> Poll<io::Result<Option<Reading>>> {
            loop {
                if !scratch.asked.is_empty() {
                    match scratch.request.read(scratch.asked.filled(), &limits) {
                        Reading::More => {}
                        whole => return Poll::Ready(Ok(Some(whole))),
                    }
                } else if self.is_over() && !self.stream.is_readable() {
                    return Poll::Ready(Ok(None));
                }
                let nothing_yet = scratch.asked.is_empty();
                if ready!(scratch.asked.poll_fill(&self.stream))? == 0 {
                    return Poll::Ready(Ok(None));
                }
                if nothing_yet && !*first {
                    // The head has begun: from now on it has its own time.
                    self.own.set_deadline(self.hall.now() + self.timeout(|it| it.header));
                }
            }
        })
        .await;
        *first = false;
        match read {
            Ok(Some(Reading::Refused(refusal))) => {
                tracing::debug!(listener = %self.listener.at, peer = %self.peer, why = refusal.why, "refused");
                self.say(scratch, &Answer::last(refusal.status)).await
            }
            Ok(Some(_)) => {
                self.listener.requests.fetch_add(1, Relaxed);
                exchange::exchange(self, scratch).await
            }
            Err(error) if error.kind() == io::ErrorKind::TimedOut && !scratch.asked.is_empty() => {
                self.say(scratch, &Answer::last(408)).await
            }
            Ok(None) | Err(_) => After::Close,
        }
    }

    /// No further request is awaited from it.
    pub(super) fn is_over(&self) -> bool {
        self.hall.is_stopping() || self.listener.closed_at().is_some()
    }

    /// In milliseconds.
    pub(super) fn timeout(
        &self,
        which: impl Fn(&seaway_model::load_balancer::Timeouts) -> std::time::Duration,
    ) -> u64 {
        which(&self.listener.tuned().listener.timeouts).as_millis() as u64
    }

    /// Answers in the place of a member.
    pub(super) async fn say(&self, scratch: &mut Scratch, answer: &Answer<'_>) -> After {
        self.listener.count_answer(answer.status);
        self.own.set_deadline(self.hall.now() + self.timeout(|it| it.answer));
        scratch.downward.clear();
        answer.write(&mut scratch.downward.out);
        let written = poll_fn(|_| scratch.downward.poll_write(&self.stream)).await;
        match written {
            Ok(()) if answer.persists => After::Next,
            _ => After::Close,
        }
    }
}
