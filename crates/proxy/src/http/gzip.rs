//! The gzip coding (RFC 1952) of one body, in pieces, and how many of them there are at once.

use std::{
    cell::{Cell, RefCell},
    io,
    rc::Rc,
};

use miniz_oxide::{
    DataFormat, MZError, MZFlush,
    deflate::{
        core::{CompressorOxide, create_comp_flags_from_zip_params},
        stream::deflate,
    },
};

use super::downstream::DownstreamConnection;
use crate::memory::{ConnectionMemory, Reservation};

/// Better and no slower than nginx's usual level 1; from 3 on each step costs more than it saves.
const LEVEL: i32 = 2;
/// What one compressor holds: its window, its hashes, and what it has not written yet.
const HOLDS: usize = 320 << 10;
/// Of one worker, and of one client there. Whoever comes then gets the body as it is.
const MOST: usize = 64;
const MOST_OF_A_CLIENT: u8 = 16;
/// Kept for the next ones, and for how many milliseconds if none comes.
const IDLE: usize = 4;
const IDLE_FOR: u64 = 60_000;
/// Written at once, as one chunk.
const PIECE: usize = 4 << 10;

/// Compression method 8, no flags, no time, no extra flags, of an unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];

/// Compressors of one worker.
pub(super) struct Compressors {
    idle: RefCell<Vec<Box<CompressorOxide>>>,
    lent: Cell<usize>,
    held: Reservation,
    /// Since the last turn; and when that was so last.
    is_used: Cell<bool>,
    used: Cell<u64>,
}

pub(super) struct Gzip {
    /// `None`: the body is over.
    state: Option<Box<CompressorOxide>>,
    crc: u32,
    length: u32,
    has_begun: bool,
    /// Something has come that cannot be read on the other side yet.
    is_behind: bool,
    /// Bytes that came out.
    pub(super) written: u64,
    lease: Option<CompressorPermit>,
}

/// It counts among those of its worker and its client.
struct CompressorPermit {
    compressors: Rc<Compressors>,
    client: Rc<DownstreamConnection>,
}

impl Compressors {
    pub(super) fn new(memory: &Rc<ConnectionMemory>) -> Rc<Compressors> {
        let (idle, lent, held) = (RefCell::default(), Cell::new(0), memory.reserve(0));
        Rc::new(Compressors { idle, lent, held, is_used: Cell::new(false), used: Cell::new(0) })
    }

    /// Those that wait for nobody, or in the way of others, are freed.
    pub(super) fn tick(&self, now: u64) {
        if self.is_used.replace(false) || self.lent.get() > 0 {
            self.used.set(now);
        }
        if self.idle.borrow().is_empty() {
            return;
        }
        if now.saturating_sub(self.used.get()) >= IDLE_FOR || !self.held.of().admits(0) {
            drop(self.idle.take());
            self.count();
        }
    }

    /// For how many milliseconds the worker can do without a look at them.
    pub(super) fn next_timeout(&self, now: u64) -> Option<u64> {
        let until = self.used.get().saturating_add(IDLE_FOR);
        let waits = self.lent.get() == 0 && !self.is_used.get() && !self.idle.borrow().is_empty();
        waits.then(|| until.saturating_sub(now).max(1))
    }

    /// One for a body of that client, unless there are too many.
    pub(super) fn lend(self: &Rc<Self>, client: &Rc<DownstreamConnection>) -> Option<Gzip> {
        let (lent, of_client) = (self.lent.get(), client.compressed.get());
        if lent >= MOST || of_client >= MOST_OF_A_CLIENT || !self.held.of().admits(HOLDS) {
            return None;
        }
        self.is_used.set(true);
        self.lent.set(lent.saturating_add(1));
        client.compressed.set(of_client.saturating_add(1));
        let lease = CompressorPermit { compressors: self.clone(), client: client.clone() };
        let idle = self.idle.borrow_mut().pop();
        let state = idle.map_or_else(compressor, renewed);
        self.count();
        let mut gzip = Gzip::of(state);
        gzip.lease = Some(lease);
        Some(gzip)
    }

    fn count(&self) {
        self.held.set(self.lent.get().saturating_add(self.idle.borrow().len()).saturating_mul(HOLDS));
    }
}

fn compressor() -> Box<CompressorOxide> {
    let format = DataFormat::Raw.to_window_bits();
    Box::new(CompressorOxide::new(create_comp_flags_from_zip_params(LEVEL, format, 0)))
}

fn renewed(mut used: Box<CompressorOxide>) -> Box<CompressorOxide> {
    used.reset();
    used
}

impl Gzip {
    fn of(state: Box<CompressorOxide>) -> Gzip {
        Gzip {
            state: Some(state),
            crc: !0,
            length: 0,
            has_begun: false,
            is_behind: false,
            written: 0,
            lease: None,
        }
    }

    /// Takes a piece of the body; what comes out goes to `sink`, if anything does yet.
    pub(super) fn put(&mut self, bytes: &[u8], sink: impl FnMut(&[u8])) -> io::Result<()> {
        self.crc = crc(self.crc, bytes);
        self.length = self.length.wrapping_add(bytes.len() as u32);
        self.is_behind |= !bytes.is_empty();
        self.run(bytes, MZFlush::None, sink)
    }

    /// Whether all that has come can be read on the other side, once what came out is there.
    pub(super) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// What has come is to be readable on the other side now.
    pub(super) fn flush(&mut self, sink: impl FnMut(&[u8])) -> io::Result<()> {
        self.is_behind = false;
        self.run(&[], MZFlush::Sync, sink)
    }

    /// The body is over.
    pub(super) fn finish(&mut self, mut sink: impl FnMut(&[u8])) -> io::Result<()> {
        self.run(&[], MZFlush::Finish, &mut sink)?;
        let mut end = [0; 8];
        let (crc, length) = end.split_at_mut(4);
        crc.copy_from_slice(&(!self.crc).to_le_bytes());
        length.copy_from_slice(&self.length.to_le_bytes());
        sink(&end);
        self.written = self.written.saturating_add(end.len() as u64);
        self.is_behind = false;
        self.give_back();
        Ok(())
    }

    fn run(&mut self, mut bytes: &[u8], flush: MZFlush, mut sink: impl FnMut(&[u8])) -> io::Result<()> {
        let lost = || io::Error::new(io::ErrorKind::InvalidData, "a body that cannot be compressed");
        let state = self.state.as_mut().ok_or_else(lost)?;
        let mut out = [0; PIECE];
        let mut filled = 0;
        if !std::mem::replace(&mut self.has_begun, true)
            && let Some(room) = out.get_mut(..HEADER.len())
        {
            room.copy_from_slice(&HEADER);
            filled = HEADER.len();
        }
        // A flush is asked for once: what does not fit then comes by itself.
        let mut wanted = flush;
        loop {
            let room = out.get_mut(filled..).ok_or_else(lost)?;
            let size = room.len();
            let result = deflate(state, bytes, room, wanted);
            if !matches!(result.status, Ok(_) | Err(MZError::Buf)) {
                return Err(lost());
            }
            bytes = bytes.get(result.bytes_consumed..).unwrap_or_default();
            filled = filled.saturating_add(result.bytes_written);
            let is_through = bytes.is_empty() && result.bytes_written < size;
            if filled == out.len() || is_through {
                let written = out.get(..filled).unwrap_or_default();
                if !written.is_empty() {
                    sink(written);
                }
                self.written = self.written.saturating_add(filled as u64);
                filled = 0;
            }
            if is_through {
                return Ok(());
            }
            if wanted == MZFlush::Sync {
                wanted = MZFlush::None;
            }
        }
    }

    fn give_back(&mut self) {
        let state = self.state.take();
        let Some(CompressorPermit { compressors, client }) = self.lease.take() else { return };
        client.compressed.set(client.compressed.get().saturating_sub(1));
        compressors.lent.set(compressors.lent.get().saturating_sub(1));
        let mut idle = compressors.idle.borrow_mut();
        let is_kept = idle.len() < IDLE;
        idle.extend(state.filter(|_| is_kept));
        drop(idle);
        compressors.count();
    }
}

impl Drop for Gzip {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Eight bytes at a time: one at a time would cost a tenth of the whole.
#[allow(clippy::indexing_slicing, reason = "a byte is the place in a table of 256")]
fn crc(mut crc: u32, bytes: &[u8]) -> u32 {
    let (eights, rest) = bytes.as_chunks::<8>();
    for [a, b, c, d, e, f, g, h] in eights {
        let [i, j, k, l] = (crc ^ u32::from_le_bytes([*a, *b, *c, *d])).to_le_bytes();
        let [t0, t1, t2, t3, t4, t5, t6, t7] = &TABLES;
        crc = t7[i as usize] ^ t6[j as usize] ^ t5[k as usize] ^ t4[l as usize];
        crc ^= t3[*e as usize] ^ t2[*f as usize] ^ t1[*g as usize] ^ t0[*h as usize];
    }
    for byte in rest {
        let [low, ..] = (crc ^ u32::from(*byte)).to_le_bytes();
        crc = TABLES[0][low as usize] ^ crc >> 8;
    }
    crc
}

static TABLES: [[u32; 256]; 8] = tables();

/// `tables()[n][b]`: what the byte `b` adds, `n` bytes later.
#[allow(clippy::indexing_slicing, clippy::arithmetic_side_effects, reason = "computed by the compiler")]
const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let (mut value, mut bit) = (byte as u32, 0);
        while bit < 8 {
            value = if value & 1 == 1 { value >> 1 ^ 0xedb8_8320 } else { value >> 1 };
            bit += 1;
        }
        tables[0][byte] = value;
        byte += 1;
    }
    let mut at = 1;
    while at < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[at - 1][byte];
            tables[at][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        at += 1;
    }
    tables
}

#[cfg(test)]
pub(super) mod tests {
    use miniz_oxide::inflate::{
        TINFLStatus,
        core::{DecompressorOxide, decompress, inflate_flags::TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF},
    };
    use proptest::prelude::*;

    use super::*;

    /// For a body of no client.
    pub(in super::super) fn gzip() -> Gzip {
        Gzip::of(compressor())
    }

    /// What can be read of that much; `true`: and all of it is there.
    pub(in super::super) fn read(bytes: &[u8]) -> (Vec<u8>, bool) {
        let Some(deflated) = bytes.strip_prefix(&HEADER[..]) else { return (Vec::new(), false) };
        let mut out = vec![0; 4 << 20];
        let flags = TINFL_FLAG_USING_NON_WRAPPING_OUTPUT_BUF;
        let (status, read, written) =
            decompress(&mut DecompressorOxide::new(), deflated, &mut out, 0, flags | 2);
        out.truncate(written);
        let end = [(!crc(!0, &out)).to_le_bytes(), (out.len() as u32).to_le_bytes()].concat();
        let is_whole = status == TINFLStatus::Done && deflated[read..] == end;
        (out, is_whole)
    }

    #[test]
    fn the_check_is_that_of_the_standard() {
        // The check value of CRC-32/ISO-HDLC.
        assert_eq!(!crc(!0, b"123456789"), 0xcbf4_3926);
        let text: Vec<u8> = (0..1000_u32).map(|it| (it * 7) as u8).collect();
        let by_one = text.iter().fold(!0, |sum, byte| crc(sum, &[*byte]));
        assert_eq!(crc(!0, &text), by_one);
    }

    /// Nothing that has come is held back by a flush, and more than one piece comes out of what does not shrink.
    #[test]
    fn what_was_flushed_can_be_read() {
        let (mut gzip, mut out) = (gzip(), Vec::new());
        let mut seed = 1_u32;
        let mut noise = || {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (seed >> 24) as u8
        };
        let mut all = Vec::new();
        for size in [1, 100, 70_000, 3] {
            let piece: Vec<u8> = (0..size).map(|_| noise()).collect();
            gzip.put(&piece, |it| out.extend_from_slice(it)).expect("it can be compressed");
            assert!(gzip.is_behind());
            gzip.flush(|it| out.extend_from_slice(it)).expect("it can be compressed");
            all.extend_from_slice(&piece);
            assert!(!gzip.is_behind());
            assert_eq!(read(&out), (all.clone(), false), "after {size}");
        }
        gzip.finish(|it| out.extend_from_slice(it)).expect("it ends");
        assert_eq!(read(&out), (all, true));
        assert_eq!(gzip.written, out.len() as u64);
        assert!(gzip.put(b"more", |_| ()).is_err(), "it is over");
    }

    #[test]
    fn compressors_that_were_not_used_for_a_while_are_freed() {
        use crate::memory::{MemoryBudget, MemoryLimits, WorkerMemory};
        let budget = std::sync::Arc::new(MemoryBudget::new(MemoryLimits::default()));
        let worker = WorkerMemory::new(budget.clone());
        let compressors = Compressors::new(&worker.shared());
        let used = || {
            compressors.is_used.set(true);
            compressors.idle.borrow_mut().push(compressor());
            compressors.count();
        };
        used();
        compressors.tick(5_000);
        assert_eq!((compressors.next_timeout(6_000), budget.used()), (Some(IDLE_FOR - 1_000), HOLDS as u64));
        compressors.tick(5_000 + IDLE_FOR - 1);
        assert_eq!(compressors.idle.borrow().len(), 1);
        compressors.lent.set(1);
        compressors.tick(5_000 + IDLE_FOR);
        assert_eq!(
            (compressors.idle.borrow().len(), compressors.next_timeout(0)),
            (1, None),
            "others are in use"
        );
        compressors.lent.set(0);
        compressors.tick(5_000 + 2 * IDLE_FOR);
        assert_eq!((compressors.idle.borrow().len(), budget.used()), (0, 0));
        assert_eq!(compressors.next_timeout(0), None);
        used();
        budget.set(MemoryLimits { total: Some(1), per_connection: None });
        compressors.tick(0);
        assert_eq!((compressors.idle.borrow().len(), budget.used()), (0, 0), "others need the memory");
    }

    proptest! {
        #[test]
        fn what_is_read_is_what_was_put(
            pieces in prop::collection::vec((0..4_u8, prop::collection::vec(any::<u8>(), 0..400), 0..40_usize), 0..40),
        ) {
            let (mut gzip, mut out, mut all) = (gzip(), Vec::new(), Vec::new());
            for (kind, bytes, times) in pieces {
                let piece = if kind == 0 { bytes } else { bytes.repeat(times) };
                gzip.put(&piece, |it| out.extend_from_slice(it)).expect("it can be compressed");
                all.extend_from_slice(&piece);
                if kind == 1 {
                    gzip.flush(|it| out.extend_from_slice(it)).expect("it can be compressed");
                    prop_assert_eq!(&read(&out).0, &all);
                }
                prop_assert!(!read(&out).1, "it is not whole before its end");
            }
            gzip.finish(|it| out.extend_from_slice(it)).expect("it ends");
            prop_assert_eq!(read(&out), (all, true));
        }
    }
}
