//! What must hold for whatever a member answers to a check by HTTP/2 (`fuzz/README.md`).

#![allow(clippy::indexing_slicing, clippy::expect_used, reason = "what is wrong ends the fuzz target")]

use std::{fs::File, os::fd::OwnedFd, rc::Rc};

use seaway_model::{
    Pool,
    load_balancer::{CheckKind, HealthCheck},
};

use super::{
    call::H2CheckExchange,
    check::{Check, CheckResult},
};
use crate::http::fuzz::pool_of_one;

/// A member is found the same however its frames are cut. It is well only if its message says so; and what is kept of it does
/// not grow with what it sends.
pub fn call(bytes: &[u8]) {
    let nowhere: Rc<OwnedFd> = Rc::new(File::open("/dev/null").expect("it is everywhere").into());
    for kind in [CheckKind::Grpc { service: "shop".into() }, CheckKind::http()] {
        let pool = Pool {
            health: Some(HealthCheck { kind: kind.clone(), ..HealthCheck::default() }),
            ..pool_of_one()
        };
        let check = Check::of(&pool, &pool.members[0]).expect("it is checked");
        let begin = || H2CheckExchange::begin((nowhere.clone(), None), &check);
        let whole = found(begin(), &mut std::iter::once(bytes));
        for size in [1, 13] {
            assert_eq!(found(begin(), &mut bytes.chunks(size)), whole, "cut into pieces of {size} bytes");
        }
        if matches!(kind, CheckKind::Grpc { .. }) && whole == Ok(Some(CheckResult::Passed)) {
            assert_eq!(data(bytes).get(5..7), Some(&[8, 1][..]), "it does not say that it serves");
        }
    }
}

fn found(
    mut call: H2CheckExchange,
    pieces: &mut dyn Iterator<Item = &[u8]>,
) -> Result<Option<CheckResult>, String> {
    for piece in pieces {
        let check_result = call.receive(piece).map_err(|error| error.to_string())?;
        assert!(call.buffered() <= MOST_HELD, "{} bytes are held", call.buffered());
        if check_result.is_some() {
            return Ok(check_result);
        }
    }
    Ok(None)
}

/// Two frames, an answer, and replies to what has come.
const MOST_HELD: usize = 64 << 10;

/// What frames of data of the first stream carry, until it ends.
fn data(mut rest: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    while let [a, b, c, kind, flags, high, s, t, low, more @ ..] = rest {
        let stream = u32::from_be_bytes([high & 0x7f, *s, *t, *low]);
        let length = usize::from(*a) << 16 | usize::from(*b) << 8 | usize::from(*c);
        let Some((payload, behind)) = more.split_at_checked(length) else { break };
        if (*kind, stream) == (0, 1) {
            let padding = if flags & 8 == 0 { None } else { payload.first().copied().map(usize::from) };
            let end = payload.len().saturating_sub(padding.unwrap_or_default());
            data.extend_from_slice(&payload[usize::from(padding.is_some())..end]);
        }
        if matches!(kind, 0 | 1) && flags & 1 != 0 && stream == 1 {
            break;
        }
        rest = behind;
    }
    data
}
