//! Many routes and hosts, or many certificates, beside ten of them: what a request costs, what they hold, and how soon
//! a change of one is served.

use std::io::{ErrorKind, Read, Write as _};
use std::net::TcpStream;
use std::sync::OnceLock;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::{Bench, Case, Metric, Sample, loaded};
use crate::contender::certificate::Certificate;
use crate::contender::seaway::{self, crowded};
use crate::contender::{Contender, FRONT_DOOR, Running, SECURE_DOOR};
use crate::cores::Memory;
use crate::load::web::{Hosts, RequestOptions, Web};
use crate::load::wire::{Wire, terms};
use crate::sys;

const FEW: usize = 10;
const CONNECTIONS: usize = 64;
const MIB: f64 = (1 << 20) as f64;

pub fn sample(bench: &mut Bench, case: Case, contender: Contender, rate: f64) -> Result<Sample> {
    let many = match case {
        Case::Routes => bench.effort.routes,
        _ => bench.effort.certificates,
    };
    let count = if contender == Contender::SeawayFew { FEW } else { many };
    let folder = tempfile::Builder::new().prefix("seaway-bench-").tempdir()?;
    match case {
        Case::Routes => crowded::write_routes(folder.path(), count)?,
        _ => crowded::write_certificates(folder.path(), &certificates(many)?[..count])?,
    }
    let running =
        Running::launch(seaway::command(contender.seaway(&bench.programs)?, folder.path()), Some(folder))?;
    let ready = running.wait_until(Duration::from_secs(60), seaway::is_ready)?;

    let secure = case == Case::Certificates;
    let question = RequestOptions {
        to: if secure { SECURE_DOOR } else { FRONT_DOOR },
        answer: 1 << 10,
        inspect: true,
        anew: secure,
        secure,
        hosts: Some(Hosts { count, own_paths: !secure }),
        fields: "",
    };
    let mut clients = Web::new(question);
    if secure {
        bench.rig.prove(&mut clients, 8)?;
    } else {
        clients.open(&mut bench.rig, CONNECTIONS)?;
    }
    let mut sample = loaded::loaded(bench, &running, Box::new(clients), rate)?;
    let resident = Memory::of(&running.processes())?.resident as f64 / MIB;
    let folder = running.folder.as_ref().context("the folder lives as long as its Seaway")?;
    let changed = if secure {
        let next = Certificate::of(&crowded::host(0))?;
        crowded::write_changed_certificate(folder.path(), &next)?;
        until(|| shows(&next))?
    } else {
        crowded::write_changed_route(folder.path())?;
        until(is_redirected)?
    };
    sample.figures.extend([
        (Metric::UntilReady, ready.as_secs_f64() * 1e3),
        (Metric::UntilChanged, changed.as_secs_f64() * 1e3),
        (Metric::Resident, resident.max(Memory::of(&running.processes())?.resident as f64 / MIB)),
    ]);
    Ok(sample)
}

/// For each of so many hosts one, made once.
fn certificates(count: usize) -> Result<&'static [Certificate]> {
    static MADE: OnceLock<Vec<Certificate>> = OnceLock::new();
    if MADE.get().is_none() {
        let made = (0..count).map(|index| Certificate::of(&crowded::host(index))).collect::<Result<_>>()?;
        return Ok(MADE.get_or_init(|| made));
    }
    MADE.get().map(Vec::as_slice).context("they were made just now")
}

/// How long it takes from now until it is so.
fn until(mut is_so: impl FnMut() -> Result<bool>) -> Result<Duration> {
    let begin = Instant::now();
    while !is_so()? {
        if begin.elapsed() > Duration::from_secs(10) || sys::interrupted() {
            bail!("the change was not served within 10 s");
        }
    }
    Ok(begin.elapsed())
}

fn is_redirected() -> Result<bool> {
    let mut client = TcpStream::connect(FRONT_DOOR)?;
    client.set_read_timeout(Some(Duration::from_secs(2)))?;
    let question =
        format!("GET /changed HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", crowded::host(0));
    client.write_all(question.as_bytes())?;
    let mut answer = [0; 12];
    client.read_exact(&mut answer)?;
    Ok(&answer == b"HTTP/1.1 302")
}

fn shows(certificate: &Certificate) -> Result<bool> {
    let mut wire = Wire::connect(SECURE_DOOR, Some((&terms(), &crowded::host(0))))?;
    loop {
        match wire.shake_hands() {
            Ok(true) => return Ok(wire.shown() == Some(&certificate.der[..])),
            Ok(false) => thread::yield_now(),
            // Not even connected.
            Err(error) if matches!(error.kind(), ErrorKind::NotConnected | ErrorKind::WouldBlock) => {
                thread::yield_now();
            }
            Err(error) => return Err(error.into()),
        }
    }
}
