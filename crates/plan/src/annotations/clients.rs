//! The rows about clients: who may connect, beside source ranges, and how often each may ask.

use seaway_model::load_balancer::{ClientKey, RequestRate};

use super::{Row, ServiceOptions};
use crate::{
    http,
    quantity::{list, network, number},
};

/// Which clients may not connect.
pub const DENIED: &str = "seaway.dev/denied-source-ranges";
/// How many requests of one client are admitted in a second.
pub const CLIENT_RATE: &str = "seaway.dev/requests-per-second-per-client";
/// How many of them at once.
pub const BURST: &str = "seaway.dev/requests-burst-per-client";
/// By what clients are told apart.
pub const RATE_KEY: &str = "seaway.dev/rate-limit-key";

const MOST: u64 = 1_000_000;

pub(super) const ROWS: &[Row] = &[
    Row {
        names: &[DENIED],
        help: "networks that may not connect, even where seaway.dev/source-ranges allows them: 192.0.2.7,2001:db8:7::/48",
        set: |wishes, text| {
            wishes.denied = list(text, network)?;
            if wishes.denied.is_empty() { Err("no network is named".into()) } else { Ok(()) }
        },
    },
    Row {
        names: &[CLIENT_RATE],
        help: "how many requests of one client are served in a second, at each host; one more gets 429. A number from 1 to 1000000; \
               0 means no limit",
        set: |wishes, text| {
            let per_second: u32 = number(text, 0..=MOST)?;
            let rate =
                RequestRate { per_second, burst: per_second.saturating_mul(2), key: ClientKey::Address };
            wishes.http.rate = Some(rate).filter(|it| it.per_second > 0);
            Ok(())
        },
    },
    Row {
        names: &[BURST],
        help: "burst: how many requests of one client are served at once after a pause; by default twice the limit per second",
        set: |wishes, text| {
            let burst = number(text, 1..=MOST)?;
            rate(wishes)?.burst = burst;
            Ok(())
        },
    },
    Row {
        names: &[RATE_KEY],
        help: "what identifies a client: address (default; of IPv6 the /64), header:NAME or cookie:NAME; without it, \
               its address",
        set: |wishes, text| {
            let key = match text.split_once(':') {
                None if text == "address" => ClientKey::Address,
                Some(("header", name)) if http::is_token(name) => {
                    ClientKey::Header(name.to_ascii_lowercase().into())
                }
                Some(("cookie", name)) if http::is_token(name) => ClientKey::Cookie(name.into()),
                _ => return Err(format!("{text:?} is not address, header:NAME or cookie:NAME")),
            };
            rate(wishes)?.key = key;
            Ok(())
        },
    },
];

fn rate(wishes: &mut ServiceOptions) -> Result<&mut RequestRate, String> {
    let needs = || format!("this annotation needs {CLIENT_RATE}, which sets the limit");
    wishes.http.rate.as_mut().ok_or_else(needs)
}

#[cfg(test)]
mod tests {
    use seaway_model::{Config, Kind, ObjectRef};

    use super::*;

    fn read(say: &[(&str, &str)]) -> (ServiceOptions, usize) {
        let mut wishes = ServiceOptions::of(&Config::default().defaults);
        let annotations = say.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
        let problems = wishes.read(&ObjectRef::new(Kind::Service, "default", "shop"), &annotations);
        (wishes, problems.len())
    }

    #[test]
    fn a_limit_for_each_client_has_a_burst_and_a_key() {
        let rate = |per_second, burst, key| Some(RequestRate { per_second, burst, key });
        let (header, cookie) = (ClientKey::Header("x-api-key".into()), ClientKey::Cookie("SID".into()));
        for (say, expected, told) in [
            (&[][..], None, 0),
            (&[(CLIENT_RATE, "10")], rate(10, 20, ClientKey::Address), 0),
            (&[(CLIENT_RATE, "0")], None, 0),
            (&[(CLIENT_RATE, "10"), (BURST, "1")], rate(10, 1, ClientKey::Address), 0),
            (&[(CLIENT_RATE, "10"), (RATE_KEY, "header:X-Api-Key")], rate(10, 20, header), 0),
            (&[(CLIENT_RATE, "10"), (RATE_KEY, "cookie:SID")], rate(10, 20, cookie), 0),
            (&[(CLIENT_RATE, "10"), (RATE_KEY, "address")], rate(10, 20, ClientKey::Address), 0),
            (&[(CLIENT_RATE, "0"), (BURST, "5")], None, 1),
            // The limit holds, by what is usual.
            (&[(CLIENT_RATE, "10"), (BURST, "0")], rate(10, 20, ClientKey::Address), 1),
            (&[(CLIENT_RATE, "10"), (BURST, "many")], rate(10, 20, ClientKey::Address), 1),
            (&[(CLIENT_RATE, "10"), (RATE_KEY, "header:")], rate(10, 20, ClientKey::Address), 1),
            (&[(CLIENT_RATE, "10"), (RATE_KEY, "header:a b")], rate(10, 20, ClientKey::Address), 1),
            (&[(CLIENT_RATE, "10"), (RATE_KEY, "token")], rate(10, 20, ClientKey::Address), 1),
        ] {
            let (wishes, problems) = read(say);
            assert_eq!((wishes.http.rate, problems, wishes.closed), (expected, told, false), "{say:?}");
        }
        // Without a number there is no limit, and one was meant.
        for say in [&[(BURST, "5")], &[(BURST, "many")], &[(RATE_KEY, "address")]] {
            let (wishes, problems) = read(say);
            assert_eq!((wishes.closed, wishes.clients_unclear, problems), (true, true, 1), "{say:?}");
        }
        for text in ["ten", "", "-1", "0.5", "1000001", "10/s"] {
            let (wishes, problems) = read(&[(CLIENT_RATE, text)]);
            assert_eq!((wishes.closed, wishes.clients_unclear, problems), (true, true, 1), "{text:?}");
        }
    }
}
