//! Reloads: files are checked first, and those of before are there again if it fails.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use tokio::time::Instant;

use super::{LOOK, ProcessSupervisor, signal};
use crate::{
    document::{Document, FileKind},
    process::{
        ProcessError,
        files::{self, Files},
        launch,
    },
    running::RunningConfig,
    runtime::{
        RuntimeApiConnection, SocketError,
        observed::{self, Processes},
        socket,
    },
};

impl ProcessSupervisor {
    /// Files are checked first; if HAProxy refuses them, or the reload fails, those of before are there again.
    pub(super) async fn reload(&mut self) {
        let reasons = std::mem::take(&mut self.reloads);
        self.reloaded = Some(Instant::now());
        let result = self.try_reload().await;
        self.reloaded = Some(Instant::now());
        match result {
            Ok(()) => {
                self.report.reloads_done += 1;
                for reason in reasons.into_keys() {
                    *self.report.reloads.entry(reason).or_default() += 1;
                }
                // What came meanwhile, and what HAProxy has otherwise than its files say.
                Box::pin(self.bring()).await;
            }
            Err(error) => {
                tracing::error!(error = &error as &dyn std::error::Error, "HAProxy was not reloaded");
                if self.running.may_be_another {
                    self.retry_at = Some(Instant::now() + LOOK);
                }
                self.answer(&Err(Arc::new(error)));
            }
        }
    }

    async fn try_reload(&mut self) -> Result<(), ProcessError> {
        self.merge_members();
        let wanted = self.wanted.clone();
        files::check_ownership(&self.paths.config)?;
        launch::check(&self.paths, &wanted).await?;
        self.end_oldest().await?;
        self.keep_state(&wanted).await;
        let all = launch::files(&wanted, &self.paths.config);
        let reloaded = match files::write_all(&all) {
            Ok(()) => self.ask_for_reload().await,
            Err(error) => Err(error),
        };
        match reloaded {
            Ok((seen, socket)) => {
                files::sweep(&self.paths.folder, &all);
                self.report.master = seen.master;
                self.report.worker = seen.worker;
                self.socket = Some(socket);
                self.loaded(wanted).await?;
                Ok(())
            }
            Err(error) => {
                self.socket = None;
                self.put_back();
                Err(error)
            }
        }
    }

    /// One of which nothing is known may go on, and succeed: then HAProxy has what was refused.
    async fn ask_for_reload(&mut self) -> Result<(Processes, RuntimeApiConnection), ProcessError> {
        let result = launch::reload(&self.paths, &self.alerts).await;
        match &result {
            Ok(_) => self.running.may_be_another = false,
            // What HAProxy had before, it still has.
            Err(ProcessError::Reload { .. }) => {}
            Err(_) => self.running.may_be_another = true,
        }
        result
    }

    /// The files that HAProxy read last, without keys that it no longer has.
    fn put_back(&self) {
        let folder = self.paths.folder.join(FileKind::Certificates.name());
        let has = |path: &Path| {
            path.parent() != Some(&folder)
                || path.to_str().is_some_and(|it| self.running.certificates.contains_key(it))
        };
        let all: Files = launch::files(&self.good, &self.paths.config);
        let all = all.into_iter().filter(|it| has(&it.0)).collect();
        files::sweep(&self.paths.folder, &all);
        if let Err(error) = files::write_all(&all) {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the files that HAProxy read last cannot be restored; HAProxy serves without them"
            );
        }
    }

    pub(super) async fn loaded(&mut self, document: Arc<Document>) -> Result<(), SocketError> {
        self.running = RunningConfig::loaded(document.clone());
        self.good = document;
        self.drained.clear();
        self.look_at = None;
        // Until that is seen.
        self.is_unsure = true;
        self.observe().await
    }

    async fn end_oldest(&mut self) -> Result<(), ProcessError> {
        let mut old = socket::processes(&self.paths.master).await?.old;
        while old.len() >= self.options.old_workers.max(1) {
            let Some(oldest) = old.pop() else { break };
            tracing::warn!(
                worker = oldest,
                "an old worker of HAProxy is ended, with its connections: there are too many"
            );
            signal(oldest, nix::sys::signal::Signal::SIGTERM);
        }
        Ok(())
    }

    /// What checks found, for the next worker; nothing of what it was told, which its files say better.
    async fn keep_state(&mut self, wanted: &Document) {
        let Some(mut socket) = self.socket.take() else { return };
        let Ok(table) = socket.servers_as_text().await else { return };
        self.socket = Some(socket);
        let members: BTreeMap<(&str, &str), _> = crate::running::slots_by_name(wanted);
        let kept = observed::kept_state(&table, |backend, name, at| {
            at.is_some() && members.get(&(backend, name)).copied().flatten() == at
        });
        let _ = files::write_all(&vec![(self.paths.state.clone().into(), kept.into())]);
    }
}
