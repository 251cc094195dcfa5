//! Members in their slots: who joins, who changes, who leaves.

use std::collections::BTreeMap;

use super::{ReloadReason, Work};
use crate::{
    document::{Balance, Document, Settings, SlotMember, SlotState, Stick},
    running::{Running, ServerNow},
    runtime::commands::{Command, NewServer, Server, ServerState},
    words::Label,
};

#[derive(Default)]
pub(super) struct Servers {
    pub(super) joining: Vec<Command>,
    /// After new members, so that there is always one.
    pub(super) leaving: Vec<Command>,
}

impl Work<'_> {
    pub(super) fn servers(&mut self) -> Servers {
        let mut commands = Servers::default();
        let brought = self.running.brought.clone();
        let is_same = |name: &Label| {
            let before = brought.as_ref().and_then(|it| it.backends.get(name));
            before.is_some_and(|before| {
                self.wanted.backends.get(name).is_some_and(|it| it.slots == before.slots)
            })
        };
        let empty = BTreeMap::new();
        for (name, backend) in &self.wanted.backends {
            if is_same(name) {
                continue;
            }
            let Some(settings) = self.backend(name).map(|it| it.settings.clone()) else { continue };
            let servers = self.running.servers.get(name).unwrap_or(&empty);
            for slot in &backend.slots {
                let Some(member) = &slot.member else { continue };
                let server = Server { backend: name.clone(), name: slot.name.clone() };
                match servers.get(&slot.name) {
                    Some(now) => self.change(&mut commands, &server, now, &ServerNow::of(slot), &settings),
                    None => self.add(&mut commands, &server, member, &settings),
                }
            }
        }
        for (name, servers) in self.running.servers.iter().filter(|it| !is_same(it.0)) {
            for (server, _) in servers.iter().filter(|(_, it)| it.state == ServerState::Ready) {
                if !is_member(self.wanted, name, server) {
                    let server = Server { backend: name.clone(), name: server.clone() };
                    commands.leaving.push(Command::SetState(server, ServerState::Drain));
                }
            }
        }
        commands
    }

    fn change(
        &mut self,
        commands: &mut Servers,
        server: &Server,
        now: &ServerNow,
        wanted: &ServerNow,
        settings: &Settings,
    ) {
        if (now.backup, &now.tls_name) != (wanted.backup, &wanted.tls_name) {
            self.reload(ReloadReason::ServerOptions);
            return;
        }
        let mut changes = Vec::new();
        if let Some(at) = wanted.at.filter(|_| now.at != wanted.at) {
            changes.push(Command::SetAddress(server.clone(), at));
            if settings.check.is_some() {
                changes.push(Command::ForgetChecks(server.clone()));
            }
        }
        if let Some(weight) = wanted.weight.filter(|_| now.weight != wanted.weight) {
            changes.push(Command::SetWeight(server.clone(), weight));
        }
        if now.state != wanted.state {
            changes.push(Command::SetState(server.clone(), wanted.state));
        }
        let list = if wanted.weight == Some(0) { &mut commands.leaving } else { &mut commands.joining };
        list.extend(changes);
    }

    fn add(&mut self, commands: &mut Servers, server: &Server, member: &SlotMember, settings: &Settings) {
        let Some(new) = added(member, settings) else {
            self.reload(ReloadReason::Slots);
            return;
        };
        commands.joining.push(Command::AddServer(server.clone(), Box::new(new)));
        commands.joining.push(Command::SetState(server.clone(), ServerState::Ready));
    }
}

/// A server with all that `default-server` gives to those of the file, which an added one does not have. `None` where the
/// version has no word for something.
fn added(member: &SlotMember, settings: &Settings) -> Option<NewServer> {
    let of = &settings.server;
    let has_cookie = matches!(settings.stick, Some(Stick::Cookie { .. }));
    // HAProxy adds servers only where the balance does not follow their order.
    let is_dynamic =
        matches!(settings.balance, Balance::RoundRobin | Balance::LeastConnections | Balance::RandomTwo);
    let has_all_words = !of.http2 && of.tls.is_none() && of.proxy.is_none() && of.slow_start.is_none();
    let checks = settings.check.as_ref();
    // A cookie's value is a server's own, and 2.6 refuses one.
    if has_cookie
        || !is_dynamic
        || !has_all_words
        || member.tls_name.is_some()
        || checks.is_some_and(|it| it.observe.is_some())
    {
        return None;
    }
    let mut words = Vec::new();
    if let Some(most) = of.connections {
        words.push(format!("maxconn {most}"));
    }
    if let Some(check) = checks {
        words.push(format!(
            "check inter {}ms rise {} fall {}",
            check.interval.as_millis(),
            check.rise,
            check.fall
        ));
        words.extend(check.port.map(|port| format!("port {port}")));
    }
    if member.backup {
        words.push("backup".into());
    }
    Some(NewServer {
        at: member.at,
        weight: if member.state == SlotState::Drain { 0 } else { member.weight },
        words: words.join(" "),
        is_checked: checks.is_some(),
        backup: member.backup,
    })
}

/// Servers that drain because nothing wants them; what is to be done once they have no connection left.
pub fn leaving(running: &Running, wanted: &Document) -> Vec<Server> {
    let all =
        running.servers.iter().flat_map(|(backend, it)| it.iter().map(move |(name, it)| (backend, name, it)));
    let drained =
        all.filter(|(backend, name, it)| it.state == ServerState::Drain && !is_member(wanted, backend, name));
    drained.map(|(backend, name, _)| Server { backend: backend.clone(), name: name.clone() }).collect()
}

fn is_member(wanted: &Document, backend: &Label, name: &Label) -> bool {
    let backend = wanted.backends.get(backend);
    let slot = backend.and_then(|it| it.slots.iter().find(|slot| slot.name == *name));
    slot.is_some_and(|it| it.member.is_some())
}
