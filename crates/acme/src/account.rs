//! An account at an authority: its key, and what the authority calls it.

use std::sync::Arc;

use aws_lc_rs::{
    digest::{SHA256, digest},
    hmac,
};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::{
    AcmeError, Directory, Key, Order,
    directory::{Reply, Signer},
    validation_certificate,
};

/// An account that was made elsewhere, and the key that it was given, in base64url (RFC 8555, section 7.3.4).
#[derive(Clone, Copy)]
pub struct ExternalAccount<'a> {
    pub key_id: &'a str,
    pub hmac: &'a str,
}

impl ExternalAccount<'_> {
    /// The account's own key, signed by the other one.
    fn bind(&self, key: &Key, url: &str) -> Result<Value, AcmeError> {
        let wrong = || {
            AcmeError::Key("the key of frontDoor.acme.externalAccount.hmacFile is not valid base64url".into())
        };
        let secret = BASE64_URL_SAFE_NO_PAD.decode(self.hmac.trim().trim_end_matches('='));
        let secret = secret.ok().filter(|it| !it.is_empty()).ok_or_else(wrong)?;
        let encode = |text: &str| BASE64_URL_SAFE_NO_PAD.encode(text);
        let head = encode(&json!({"alg": "HS256", "kid": self.key_id, "url": url}).to_string());
        let payload = encode(&key.jwk().to_string());
        let secret = hmac::Key::new(hmac::HMAC_SHA256, &secret);
        let signature = hmac::sign(&secret, format!("{head}.{payload}").as_bytes());
        let signature = BASE64_URL_SAFE_NO_PAD.encode(signature);
        Ok(json!({"protected": head, "payload": payload, "signature": signature}))
    }
}

/// What an authority says of a certificate that an order cannot replace (RFC 9773, section 5).
const NOT_REPLACED: [&str; 2] =
    ["urn:ietf:params:acme:error:alreadyReplaced", "urn:ietf:params:acme:error:malformed"];

/// Whom the authority writes to.
pub type Contact<'a> = Option<&'a str>;

#[derive(Clone)]
pub struct Account {
    directory: Arc<Directory>,
    key: Arc<Key>,
    /// Its URL.
    kid: String,
}

impl Account {
    /// Finds the account of this key, or makes one. The operator agrees to the authority's terms by asking for certificates.
    pub async fn open(
        directory: &Arc<Directory>,
        key: Arc<Key>,
        contact: Contact<'_>,
        external: Option<ExternalAccount<'_>>,
    ) -> Result<Account, AcmeError> {
        let url = directory.urls().new_account.clone();
        let contact: Vec<String> = contact.map(|it| format!("mailto:{it}")).into_iter().collect();
        let mut payload = json!({"termsOfServiceAgreed": true, "contact": contact});
        if let (Some(external), Some(fields)) = (external, payload.as_object_mut()) {
            fields.insert("externalAccountBinding".into(), external.bind(&key, &url)?);
        }
        let asked = directory.post(Signer::New(&key), &url, Some(&payload)).await;
        let reply =
            asked.map_err(|error| match error.is("urn:ietf:params:acme:error:externalAccountRequired") {
                true => AcmeError::Unexpected {
                    url: url.clone(),
                    why: "the certificate authority requires external account binding (EAB): get key identifier and \
                          HMAC key from the authority, and set frontDoor.acme.externalAccount"
                        .into(),
                },
                false => error,
            })?;
        let kid = reply.location.clone().ok_or_else(|| {
            reply.unexpected("the reply has no Location header with the URL of the account")
        })?;
        let account = Account { directory: directory.clone(), key, kid };
        if !reply.is_new && !contact.is_empty() {
            // It may have been made with another address.
            account.post(&account.kid, Some(&json!({"contact": contact}))).await?;
        }
        Ok(account)
    }

    /// What a challenge with that token is answered with.
    pub fn authorization(&self, token: &str) -> String {
        self.key.authorization(token)
    }

    /// The record that answers a challenge with that token (RFC 8555, section 8.4).
    pub fn dns_value(&self, token: &str) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.hash(token))
    }

    /// The certificate that answers a challenge with that token for a host name (RFC 8737): chain and key, in PEM.
    pub fn validation(&self, host: &str, token: &str) -> Result<(String, String), AcmeError> {
        validation_certificate(host, &self.hash(token))
    }

    fn hash(&self, token: &str) -> [u8; 32] {
        let mut hash = [0; 32];
        let found = digest(&SHA256, self.authorization(token).as_bytes());
        hash.iter_mut().zip(found.as_ref()).for_each(|(to, from)| *to = *from);
        hash
    }

    pub(crate) async fn post(&self, url: &str, payload: Option<&Value>) -> Result<Reply, AcmeError> {
        self.directory.post(Signer::Account(&self.key, &self.kid), url, payload).await
    }

    /// `replaces`: what the authority calls the certificate of before, if it says when that is to be renewed.
    pub async fn order(&self, host: &str, replaces: Option<&str>) -> Result<Order, AcmeError> {
        let urls = self.directory.urls();
        let plain = json!({"identifiers": [{"type": "dns", "value": host}]});
        let mut reply = None;
        if let (Some(replaces), Some(_)) = (replaces, &urls.renewal_info) {
            let mut payload = plain.clone();
            if let Some(fields) = payload.as_object_mut() {
                fields.insert("replaces".into(), replaces.into());
            }
            match self.post(&urls.new_order, Some(&payload)).await {
                // It knows nothing of that certificate, or it was replaced already: that is no reason to issue none.
                Err(AcmeError::Refused { status, kind, .. })
                    if matches!(status, 404 | 409) || NOT_REPLACED.contains(&kind.as_str()) => {}
                answered => reply = Some(answered?),
            }
        }
        let reply = match reply {
            Some(reply) => reply,
            None => self.post(&urls.new_order, Some(&plain)).await?,
        };
        let url = reply
            .location
            .clone()
            .ok_or_else(|| reply.unexpected("the reply has no Location header with the URL of the order"))?;
        Order::read(url, &reply)
    }
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Account {}", self.kid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_is_bound_by_the_other_key_which_signs_the_accounts_own() {
        let key = Key::generate().expect("a key");
        let external = ExternalAccount { key_id: "kid-1", hmac: "c2VjcmV0LXNlY3JldA==\n" };
        let bound = external.bind(&key, "https://ca/new").expect("bound");
        let part = |name: &str| bound[name].as_str().expect("text").to_owned();
        let decode = |text: &str| BASE64_URL_SAFE_NO_PAD.decode(text).expect("base64url");
        let head: Value = serde_json::from_slice(&decode(&part("protected"))).expect("JSON");
        assert_eq!(head, json!({"alg": "HS256", "kid": "kid-1", "url": "https://ca/new"}));
        assert_eq!(decode(&part("payload")), key.jwk().to_string().as_bytes());
        let secret = hmac::Key::new(hmac::HMAC_SHA256, b"secret-secret");
        let signed = format!("{}.{}", part("protected"), part("payload"));
        hmac::verify(&secret, signed.as_bytes(), &decode(&part("signature"))).expect("it is signed");
        for hmac in ["", "!", "+/+/"] {
            let error = ExternalAccount { key_id: "kid-1", hmac }.bind(&key, "https://ca").expect_err(hmac);
            assert!(error.to_string().contains("externalAccount.hmacFile is not valid base64url"), "{error}");
        }
    }
}
