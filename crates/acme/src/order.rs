//! Orders, and what is proven for them.

use std::time::Duration;

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde::Deserialize;
use serde_json::json;

use crate::{
    Account, AcmeError,
    directory::{ProblemDocument, Reply, clean},
};

/// Longer tokens are none: they have 128 bits or a little more.
const LONGEST_TOKEN: usize = 256;

/// Of an order, an authorization or a challenge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Status {
    Pending,
    Ready,
    Processing,
    Valid,
    Invalid,
    #[serde(other)]
    Over,
}

#[derive(Clone, Debug)]
pub struct Order {
    pub url: String,
    pub status: Status,
    pub authorizations: Vec<String>,
    pub finalize: String,
    pub certificate: Option<String>,
    /// Why it is invalid.
    pub error: Option<String>,
    pub retry_after: Option<Duration>,
}

#[derive(Deserialize)]
struct OrderBody {
    status: Status,
    #[serde(default)]
    authorizations: Vec<String>,
    finalize: String,
    certificate: Option<String>,
    error: Option<ProblemDocument>,
}

impl Order {
    pub(crate) fn read(url: String, reply: &Reply) -> Result<Order, AcmeError> {
        let body: OrderBody = reply.read()?;
        Ok(Order {
            url,
            status: body.status,
            authorizations: body.authorizations,
            finalize: body.finalize,
            certificate: body.certificate,
            error: body.error.map(|it| clean(&it.detail)),
            retry_after: reply.retry_after,
        })
    }

    /// How it stands now.
    pub async fn again(&self, account: &Account) -> Result<Order, AcmeError> {
        let reply = account.post(&self.url, None).await?;
        Order::read(self.url.clone(), &reply)
    }

    /// `request`: see [`crate::request`].
    pub async fn finalize(&self, account: &Account, request: &[u8]) -> Result<Order, AcmeError> {
        let payload = json!({"csr": BASE64_URL_SAFE_NO_PAD.encode(request)});
        let reply = account.post(&self.finalize, Some(&payload)).await?;
        Order::read(self.url.clone(), &reply)
    }

    /// The chain, in PEM, once the order is valid.
    pub async fn certificate(&self, account: &Account) -> Result<String, AcmeError> {
        let unexpected = |why: &str| AcmeError::Unexpected { url: self.url.clone(), why: why.into() };
        let url = self
            .certificate
            .as_ref()
            .ok_or_else(|| unexpected("the order is valid, but has no URL of its certificate"))?;
        let reply = account.post(url, None).await?;
        String::from_utf8(reply.body).map_err(|_| unexpected("the certificate is not PEM"))
    }
}

/// What is to be proven for one host name.
#[derive(Clone, Debug)]
pub struct Authorization {
    pub url: String,
    pub status: Status,
    challenges: Vec<Challenge>,
    /// Why it was not proven.
    pub error: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Challenge {
    kind: String,
    pub url: String,
    pub token: String,
    pub status: Status,
}

#[derive(Deserialize)]
struct AuthorizationBody {
    status: Status,
    #[serde(default)]
    challenges: Vec<ChallengeBody>,
}

#[derive(Deserialize)]
struct ChallengeBody {
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    url: String,
    #[serde(default)]
    token: String,
    #[serde(default = "pending")]
    status: Status,
    error: Option<ProblemDocument>,
}

fn pending() -> Status {
    Status::Pending
}

impl Authorization {
    pub async fn ask(account: &Account, url: &str) -> Result<Authorization, AcmeError> {
        let reply = account.post(url, None).await?;
        let body: AuthorizationBody = reply.read()?;
        let error = body.challenges.iter().find_map(|it| it.error.as_ref()).map(|it| clean(&it.detail));
        // Of kinds that are not known, nothing is.
        let ours = body.challenges.into_iter().filter(|it| is_known(&it.kind));
        let challenges: Vec<Challenge> = ours
            .map(|it| Challenge { kind: it.kind, url: it.url, token: it.token, status: it.status })
            .collect();
        if let Some(it) = challenges.iter().find(|it| !is_token(&it.token)) {
            return Err(reply.unexpected(format!("a challenge has an invalid token: {:?}", clean(&it.token))));
        }
        Ok(Authorization { url: url.to_owned(), status: body.status, challenges, error })
    }

    /// `kind`: as the protocol calls it, such as `http-01`.
    pub fn challenge(&self, kind: &str) -> Option<&Challenge> {
        self.challenges.iter().find(|it| it.kind == kind)
    }
}

impl Challenge {
    /// The authority may look now.
    pub async fn answer(&self, account: &Account) -> Result<(), AcmeError> {
        account.post(&self.url, Some(&json!({}))).await.map(drop)
    }
}

fn is_known(kind: &str) -> bool {
    matches!(kind, "http-01" | "dns-01" | "tls-alpn-01")
}

/// It becomes the end of a path that is served: base64url, and nothing else.
fn is_token(text: &str) -> bool {
    let is_part = |it: u8| it.is_ascii_alphanumeric() || matches!(it, b'-' | b'_');
    (1..=LONGEST_TOKEN).contains(&text.len()) && text.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_nothing_that_leads_elsewhere() {
        for (text, is) in
            [("abc-_09", true), ("", false), ("../x", false), ("a b", false), ("a%2f", false), ("ä", false)]
        {
            assert_eq!(is_token(text), is, "{text}");
        }
        assert!(!is_token(&"a".repeat(LONGEST_TOKEN + 1)));
    }

    #[test]
    fn a_status_that_is_not_known_is_no_reason_to_go_on() {
        let read = |text: &str| serde_json::from_str::<Status>(text).expect("a status");
        assert_eq!((read("\"ready\""), read("\"deactivated\"")), (Status::Ready, Status::Over));
    }
}
