//! When an authority wants a certificate to be renewed (ACME Renewal Information, RFC 9773): before a revocation of many, or to
//! spread its load.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde::Deserialize;

use crate::{
    AcmeError, Directory,
    directory::{Reply, clean},
};

/// It is asked no more often than this, and no more seldom, whatever it says (section 4.3.2).
const MOST_OFTEN: Duration = Duration::from_secs(60);
const MOST_SELDOM: Duration = Duration::from_secs(24 * 3600);
/// Where it says nothing.
const USUAL: Duration = Duration::from_secs(6 * 3600);
/// No number and no key's identifier is as long.
const LONGEST_PART: usize = 64;

/// A certificate is to be renewed some time between these, in milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RenewalInfo {
    pub start: u64,
    pub end: u64,
    /// A page that says why.
    pub explanation: Option<String>,
    /// When it may be asked again.
    pub again: Duration,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RenewalBody {
    suggested_window: Window,
    #[serde(rename = "explanationURL")]
    explanation: Option<String>,
}

#[derive(Deserialize)]
struct Window {
    start: String,
    end: String,
}

/// What an authority calls a certificate, by the identifier of its own key and the certificate's number (section 4.1).
pub fn certificate_id(authority_key: &[u8], number: &[u8]) -> Option<String> {
    let is_part = |it: &[u8]| (1..=LONGEST_PART).contains(&it.len());
    let encode = |it: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(it);
    let is_id = is_part(authority_key) && is_part(number);
    is_id.then(|| format!("{}.{}", encode(authority_key), encode(number)))
}

impl Directory {
    /// `None`: this authority says nothing of it.
    pub async fn renewal_info(&self, certificate: &str) -> Result<Option<RenewalInfo>, AcmeError> {
        let Some(base) = &self.urls().renewal_info else { return Ok(None) };
        let reply = self.look_up(&format!("{}/{certificate}", base.trim_end_matches('/'))).await?;
        read(&reply).map(Some)
    }
}

fn read(reply: &Reply) -> Result<RenewalInfo, AcmeError> {
    let RenewalBody { suggested_window: Window { start, end }, explanation } = reply.read()?;
    let (Some(start), Some(end)) = (moment(&start), moment(&end)) else {
        return Err(reply.unexpected("the renewal window has no valid time"));
    };
    if end <= start {
        return Err(reply.unexpected("the window for a renewal ends before it begins"));
    }
    let again = reply.retry_after.unwrap_or(USUAL).clamp(MOST_OFTEN, MOST_SELDOM);
    Ok(RenewalInfo { start, end, explanation: explanation.map(|it| clean(&it)), again })
}

/// Before 1970 is its beginning.
fn moment(text: &str) -> Option<u64> {
    let at: Timestamp = text.parse().ok()?;
    Some(u64::try_from(at.as_millisecond()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_is_called_by_its_authoritys_key_and_its_number() {
        // The example of section 4.1.
        let key = [
            0x69, 0x88, 0x5b, 0x6b, 0x87, 0x46, 0x40, 0x41, 0xe1, 0xb3, 0x7b, 0x84, 0x7b, 0xa0, 0xae, 0x2c,
            0xde, 0x01, 0xc8, 0xd4,
        ];
        let id = certificate_id(&key, &[0x00, 0x87, 0x65, 0x43, 0x21]);
        assert_eq!(id.as_deref(), Some("aYhba4dGQEHhs3uEe6CuLN4ByNQ.AIdlQyE"));
        for (key, number) in [(&[][..], &[1][..]), (&[1], &[]), (&[1; 65], &[1]), (&[1], &[1; 65])] {
            assert_eq!(certificate_id(key, number), None);
        }
    }

    #[test]
    fn a_window_is_a_time_and_asking_again_is_bounded() {
        let of = |start: &str, end: &str, retry_after: Option<u64>| {
            let body = serde_json::json!({
                "suggestedWindow": {"start": start, "end": end},
                "explanationURL": "https://ca.example/why\n",
            });
            read(&Reply::of(body.to_string(), retry_after.map(Duration::from_secs)))
        };
        let (start, end) = ("2025-01-02T04:00:00Z", "2025-01-03T04:00:00+01:00");
        let read_at = |retry_after| of(start, end, retry_after).expect("a window").again.as_secs();
        assert_eq!(
            [None, Some(0), Some(59), Some(3600), Some(u64::MAX)].map(read_at),
            [21_600, 60, 60, 3_600, 86_400]
        );
        let info = of(start, end, None).expect("a window");
        assert_eq!((info.start, info.end), (1_735_790_400_000, 1_735_873_200_000));
        assert_eq!(info.explanation.as_deref(), Some("https://ca.example/why "));
        for (start, end) in
            [(end, start), (start, start), ("", end), (start, "tomorrow"), ("2025-01-02", end)]
        {
            of(start, end, None).expect_err(start);
        }
        for body in ["", "{}", "[]", "{\"suggestedWindow\": {\"start\": 1, \"end\": 2}}"] {
            read(&Reply::of(body.to_owned(), None)).expect_err(body);
        }
    }
}
