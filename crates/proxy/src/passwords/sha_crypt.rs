//! Unix crypt using SHA-256 and SHA-512 (Drepper, 2007).

use aws_lc_rs::digest::{Algorithm, Context, Digest};

pub(super) fn hash(algorithm: &'static Algorithm, rounds: u32, salt: &[u8], password: &[u8]) -> Digest {
    let of = |parts: &[&[u8]]| {
        let mut context = Context::new(algorithm);
        parts.iter().for_each(|part| context.update(part));
        context.finish()
    };
    // Steps 4 to 8 of the specification.
    let second = of(&[password, salt, password]);
    let mut context = Context::new(algorithm);
    context.update(password);
    context.update(salt);
    context.update(&repeated(second.as_ref(), password.len()));
    let mut bits = password.len();
    while bits > 0 {
        context.update(if bits & 1 == 1 { second.as_ref() } else { password });
        bits >>= 1;
    }
    let mut last = context.finish();
    let times = |part: &[u8], count: usize| {
        let mut context = Context::new(algorithm);
        (0..count).for_each(|_| context.update(part));
        context.finish()
    };
    let passwords = repeated(times(password, password.len()).as_ref(), password.len());
    let first = last.as_ref().first().copied().unwrap_or_default();
    let salts = repeated(times(salt, usize::from(first).saturating_add(16)).as_ref(), salt.len());
    for round in 0..rounds {
        let is_odd = round & 1 == 1;
        let mut context = Context::new(algorithm);
        context.update(if is_odd { &passwords } else { last.as_ref() });
        if !round.is_multiple_of(3) {
            context.update(&salts);
        }
        if !round.is_multiple_of(7) {
            context.update(&passwords);
        }
        context.update(if is_odd { last.as_ref() } else { &passwords });
        last = context.finish();
    }
    last
}

fn repeated(part: &[u8], length: usize) -> Vec<u8> {
    part.iter().copied().cycle().take(length).collect()
}
