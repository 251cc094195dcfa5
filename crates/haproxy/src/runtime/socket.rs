//! The client of HAProxy's runtime API: one connection for many commands. And one of its master, which takes one question a connection.

use std::{io, path::Path, time::Duration};

use thiserror::Error;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    time::timeout,
};

use super::{
    commands::{Command, CommandText, NEW_VERSION},
    observed::{self, CrtListLine, ObservedServers, Processes},
    reply::{CommandError, ExpectedReply, ReplySplitter, number_behind},
    statistics::{self, Statistics},
};

/// How long HAProxy may take for a reply, and for as many commands as are sent at once. It replies between two requests of clients.
const PATIENCE: Duration = Duration::from_secs(5);
/// For a reply: 20,000 servers are 3 MB.
const MOST_REPLY: usize = 32 << 20;
/// Sent at once: their replies fit into the socket's buffer, so neither side waits for the other to read.
const AT_ONCE: usize = 64;
const MOST_AT_ONCE: usize = 64 << 10;

#[derive(Debug, Error)]
pub enum SocketError {
    #[error("HAProxy's socket {path} does not answer")]
    Connect {
        path: String,
        #[source]
        source: io::Error,
    },
    #[error("the connection to HAProxy's runtime socket broke")]
    Broken(#[source] io::Error),
    #[error("HAProxy did not answer within {0:?}")]
    Late(Duration),
    #[error("HAProxy answers more than {MOST_REPLY} bytes to `{0}`")]
    Long(String),
    #[error("HAProxy refuses `{command}`: {refusal}")]
    Refused { command: String, refusal: CommandError },
    #[error("`{0}` cannot be sent as one command")]
    Unsendable(String),
    #[error("HAProxy sent more replies than Seaway sent commands")]
    OutOfStep,
}

impl SocketError {
    /// Whether the connection goes on, and nothing but the one command was not done.
    pub fn is_refusal(&self) -> bool {
        matches!(self, SocketError::Refused { .. } | SocketError::Unsendable(_))
    }

    /// Whether there is no process that could answer.
    pub fn is_nothing_there(&self) -> bool {
        let is = |kind| matches!(kind, io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused);
        matches!(self, SocketError::Connect { source, .. } if is(source.kind()))
    }
}

/// A connection in interactive mode. After an error it is of no use: what it says next may belong to a command of before.
#[derive(Debug)]
pub struct RuntimeApiConnection {
    stream: UnixStream,
    replies: ReplySplitter,
}

impl RuntimeApiConnection {
    pub async fn connect(path: &Path) -> Result<RuntimeApiConnection, SocketError> {
        let mut socket =
            RuntimeApiConnection { stream: open(path).await?, replies: ReplySplitter::default() };
        // Errors then have numbers; and it does not end while nothing is to do.
        let begin = ["prompt", "set severity-output number", "set timeout cli 1d"];
        for line in begin {
            socket.send(&[CommandText::new(line, ExpectedReply::Silence)]).await?;
        }
        Ok(socket)
    }

    /// Does all of them in their order, and tells of each that was done. One that is refused does not keep the others from being
    /// done; its error is returned in the end. After another error nothing more is known.
    pub async fn run(
        &mut self,
        commands: &[Command],
        done: &mut (dyn FnMut(&Command) + Send),
    ) -> Result<(), SocketError> {
        let mut refused = None;
        let mut note = |command: &Command, result: Result<(), SocketError>| {
            match result {
                Ok(()) => done(command),
                Err(error) if error.is_refusal() => drop(refused.get_or_insert(error)),
                Err(error) => return Err(error),
            }
            Ok(())
        };
        let mut rest = commands;
        while let Some(first) = rest.first() {
            let simple = rest.iter().position(|it| !is_simple(it)).unwrap_or(rest.len());
            if simple == 0 {
                note(first, self.run_one(first).await)?;
                rest = &rest[1..];
                continue;
            }
            let (batch, others) = rest.split_at(simple);
            let lines: Vec<Vec<CommandText>> = batch.iter().map(Command::lines).collect();
            let mut results = self.exchange(&lines.concat()).await?.into_iter();
            for (command, lines) in batch.iter().zip(lines) {
                let all: Result<Vec<String>, SocketError> = results.by_ref().take(lines.len()).collect();
                note(command, all.map(drop))?;
            }
            rest = others;
        }
        refused.map_or(Ok(()), Err)
    }

    /// What takes more than one question.
    async fn run_one(&mut self, command: &Command) -> Result<(), SocketError> {
        match command {
            Command::ReplaceMap { map, entries } => {
                let replies = self.send(&command.lines()).await?;
                let version = replies.first().and_then(|it| number_behind(it, NEW_VERSION));
                let version = version.ok_or(SocketError::OutOfStep)?;
                self.send(&Command::version(map, entries, version)).await.map(drop)
            }
            Command::RemoveFromList { list, entry } => {
                let listed = self.crt_list(list).await?;
                let names =
                    |it: &CrtListLine| it.names.iter().eq(entry.entry.names.iter().map(|it| it.as_str()));
                // The oldest of two that are alike: what replaces a line was added before this one goes.
                let alike = listed.iter().filter(|it| it.file == entry.file && names(it));
                let Some(line) = alike.min_by_key(|it| it.number) else { return Ok(()) };
                let text = format!("del ssl crt-list {list} {}:{}", line.file, line.number);
                self.send(&[CommandText::new(text, ExpectedReply::Says("deleted in crtlist"))])
                    .await
                    .map(drop)
            }
            other => {
                let result = self.send(&other.lines()).await;
                if let (Err(error), Command::SetCertificate { file, is_new, .. }) = (&result, other)
                    && error.is_refusal()
                {
                    // What was begun would keep the next one from being set.
                    let _ = self.ask(&format!("abort ssl cert {file}")).await;
                    if *is_new {
                        let _ = self.ask(&format!("del ssl cert {file}")).await;
                    }
                }
                result.map(drop)
            }
        }
    }

    pub async fn servers(&mut self) -> Result<ObservedServers, SocketError> {
        Ok(observed::servers(&self.ask("show servers state").await?))
    }

    /// `show servers state` as it is, for the file that the next worker reads.
    pub async fn servers_as_text(&mut self) -> Result<String, SocketError> {
        self.ask("show servers state").await
    }

    pub async fn connections(
        &mut self,
    ) -> Result<std::collections::BTreeMap<(String, String), u64>, SocketError> {
        Ok(observed::connections(&self.ask("show servers conn").await?))
    }

    pub async fn map(&mut self, file: &str) -> Result<Vec<(String, String)>, SocketError> {
        Ok(observed::map(&self.ask(&format!("show map {file}")).await?))
    }

    pub async fn crt_list(&mut self, file: &str) -> Result<Vec<CrtListLine>, SocketError> {
        Ok(observed::crt_list(&self.ask(&format!("show ssl crt-list -n {file}")).await?))
    }

    /// What the worker that answers has counted.
    pub async fn statistics(&mut self) -> Result<Statistics, SocketError> {
        Ok(statistics::statistics(&self.ask("show stat").await?))
    }

    /// The process that answers.
    pub async fn process(&mut self) -> Result<Option<u32>, SocketError> {
        let info = self.ask("show info").await?;
        Ok(number_behind(&info, "\nPid: ").and_then(|it| it.try_into().ok()))
    }

    async fn ask(&mut self, question: &str) -> Result<String, SocketError> {
        let replies = self.send(&[CommandText::new(question, ExpectedReply::Table)]).await?;
        Ok(replies.into_iter().next().unwrap_or_default())
    }

    /// One after the other, until one is refused.
    async fn send(&mut self, lines: &[CommandText]) -> Result<Vec<String>, SocketError> {
        let mut done = Vec::new();
        for line in lines {
            let mut results = self.exchange(std::slice::from_ref(line)).await?;
            done.push(results.pop().unwrap_or(Err(SocketError::OutOfStep))?);
        }
        Ok(done)
    }

    /// Sends all, as many at once as may be, and judges the replies: as many as there are lines.
    async fn exchange(
        &mut self,
        lines: &[CommandText],
    ) -> Result<Vec<Result<String, SocketError>>, SocketError> {
        let mut results = Vec::new();
        let mut next = 0;
        while next < lines.len() {
            let begin = next;
            let (mut bytes, mut sent) = (Vec::new(), Vec::new());
            while let Some(line) =
                lines.get(next).filter(|_| next - begin < AT_ONCE && bytes.len() < MOST_AT_ONCE)
            {
                let one = line.bytes();
                sent.push((line, one.is_some()));
                bytes.extend(one.unwrap_or_default());
                next += 1;
            }
            let all = self.exchange_at_once(&bytes, &sent, &mut results);
            timeout(PATIENCE, all).await.map_err(|_| SocketError::Late(PATIENCE))??;
        }
        Ok(results)
    }

    async fn exchange_at_once(
        &mut self,
        bytes: &[u8],
        lines: &[(&CommandText, bool)],
        results: &mut Vec<Result<String, SocketError>>,
    ) -> Result<(), SocketError> {
        self.stream.write_all(bytes).await.map_err(SocketError::Broken)?;
        for (line, is_sent) in lines {
            let command = || line.text.clone();
            results.push(match is_sent {
                false => Err(SocketError::Unsendable(command())),
                true => match line.expected.check(&self.reply(&line.text).await?) {
                    Ok(words) => Ok(words.to_owned()),
                    Err(refusal) => Err(SocketError::Refused { command: command(), refusal }),
                },
            });
        }
        if self.replies.waiting() > 0 { Err(SocketError::OutOfStep) } else { Ok(()) }
    }

    async fn reply(&mut self, question: &str) -> Result<String, SocketError> {
        let mut buffer = [0; 16 << 10];
        loop {
            if let Some(reply) = self.replies.next_reply() {
                return Ok(reply);
            }
            if self.replies.waiting() > MOST_REPLY {
                return Err(SocketError::Long(question.to_owned()));
            }
            let count = self.stream.read(&mut buffer).await.map_err(SocketError::Broken)?;
            if count == 0 {
                return Err(SocketError::Broken(io::ErrorKind::UnexpectedEof.into()));
            }
            self.replies.push_bytes(&buffer[..count]);
        }
    }
}

/// Of which all lines can be sent along with those of others.
fn is_simple(command: &Command) -> bool {
    let others = matches!(
        command,
        Command::ReplaceMap { .. } | Command::RemoveFromList { .. } | Command::SetCertificate { .. }
    );
    !others
}

/// Which processes there are, as the master says.
pub async fn processes(master: &Path) -> Result<Processes, SocketError> {
    Ok(observed::processes(&ask_master(master, "show proc", PATIENCE).await?))
}

/// The master reads its files anew and starts another worker. From 2.7 on it answers when that is done, and says how it went;
/// before, `show proc` does.
pub async fn reload(master: &Path, patience: Duration) -> Result<String, SocketError> {
    ask_master(master, "reload", patience).await
}

/// Whether a process listens there, whatever it would say.
pub async fn is_open(path: &Path) -> bool {
    !open(path).await.is_err_and(|it| it.is_nothing_there())
}

/// One question on a connection of its own, which the master ends after its reply: a reload ends it as well.
async fn ask_master(path: &Path, question: &str, patience: Duration) -> Result<String, SocketError> {
    let ask = async {
        let mut stream = open(path).await?;
        stream.write_all(format!("{question};quit\n").as_bytes()).await.map_err(SocketError::Broken)?;
        let mut reply = Vec::new();
        let mut buffer = [0; 16 << 10];
        loop {
            match stream.read(&mut buffer).await {
                Ok(0) => break,
                Ok(count) => reply.extend_from_slice(&buffer[..count]),
                // The master became another program while we read.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => break,
                Err(error) => return Err(SocketError::Broken(error)),
            }
            if reply.len() > MOST_REPLY {
                return Err(SocketError::Long(question.to_owned()));
            }
        }
        Ok(String::from_utf8_lossy(&reply).into_owned())
    };
    timeout(patience, ask).await.map_err(|_| SocketError::Late(patience))?
}

async fn open(path: &Path) -> Result<UnixStream, SocketError> {
    let connected =
        timeout(PATIENCE, UnixStream::connect(path)).await.map_err(|_| SocketError::Late(PATIENCE))?;
    connected.map_err(|source| SocketError::Connect { path: path.display().to_string(), source })
}
