//! Members in their slots: who joins, who changes, who leaves.

use super::{DiffBuilder, ReloadReason};
use crate::{
    document::{Balance, Settings, Slot, SlotMember, SlotState, Stickiness},
    running::{RunningConfig, RunningServer},
    runtime::commands::{Command, NewServer, ServerName, ServerState},
    words::Label,
};

#[derive(Default)]
pub(super) struct ServerChanges {
    pub(super) joining: Vec<Command>,
    /// After new members, so that there is always one.
    pub(super) leaving: Vec<Command>,
}

impl DiffBuilder<'_> {
    pub(super) fn servers(&mut self) -> ServerChanges {
        let mut commands = ServerChanges::default();
        let brought = self.running.brought.clone();
        let is_same = |name: &Label| {
            let before = brought.as_ref().and_then(|it| it.backends.get(name));
            before.is_some_and(|before| {
                self.wanted.backends.get(name).is_some_and(|it| it.slots == before.slots)
            })
        };
        let wanted = self.wanted;
        for (name, backend) in wanted.backends.iter().filter(|it| !is_same(it.0)) {
            self.servers_of(name, &backend.slots, &mut commands);
        }
        let no_longer = |name: &&Label| !wanted.backends.contains_key(*name);
        for name in self.running.servers.keys().filter(no_longer) {
            self.drain(name, &[], &mut commands);
        }
        commands
    }

    /// Of one backend that is to have these slots.
    pub(super) fn servers_of(&mut self, name: &Label, slots: &[Slot], commands: &mut ServerChanges) {
        let running = self.running;
        if let Some(settings) = self.backend(name).map(|it| it.settings.clone()) {
            let servers = running.servers.get(name);
            for slot in slots {
                let Some(member) = &slot.member else { continue };
                let server = ServerName { backend: name.clone(), name: slot.name.clone() };
                match servers.and_then(|it| it.get(&slot.name)) {
                    Some(now) => self.change(commands, &server, now, &RunningServer::of(slot), &settings),
                    None => self.add(commands, &server, member, &settings),
                }
            }
        }
        self.drain(name, slots, commands);
    }

    /// Those that are in no slot any more.
    fn drain(&self, name: &Label, slots: &[Slot], commands: &mut ServerChanges) {
        let servers = self.running.servers.get(name).into_iter().flatten();
        for (server, _) in servers.filter(|(_, it)| it.state == ServerState::Ready) {
            if !is_member(slots, server) {
                let server = ServerName { backend: name.clone(), name: server.clone() };
                commands.leaving.push(Command::SetState(server, ServerState::Drain));
            }
        }
    }

    fn change(
        &mut self,
        commands: &mut ServerChanges,
        server: &ServerName,
        now: &RunningServer,
        wanted: &RunningServer,
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

    fn add(
        &mut self,
        commands: &mut ServerChanges,
        server: &ServerName,
        member: &SlotMember,
        settings: &Settings,
    ) {
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
    let has_cookie = matches!(settings.stick, Some(Stickiness::Cookie { .. }));
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

/// Servers of a backend with these slots that drain because nothing wants them; what is to be done once they have no connection left.
pub fn leaving_of(running: &RunningConfig, backend: &Label, slots: &[Slot]) -> Vec<ServerName> {
    let servers = running.servers.get(backend).into_iter().flatten();
    let drained = servers.filter(|(name, it)| it.state == ServerState::Drain && !is_member(slots, name));
    drained.map(|(name, _)| ServerName { backend: backend.clone(), name: name.clone() }).collect()
}

fn is_member(slots: &[Slot], name: &Label) -> bool {
    slots.iter().any(|slot| slot.name == *name && slot.member.is_some())
}
