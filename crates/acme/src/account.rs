//! An account at an authority: its key, and what the authority calls it.

use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};

use crate::{
    AcmeError, Directory, Key, Order,
    directory::{Reply, Signer},
    validation_certificate,
};

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
    ) -> Result<Account, AcmeError> {
        let url = directory.urls().new_account.clone();
        let contact: Vec<String> = contact.map(|it| format!("mailto:{it}")).into_iter().collect();
        let payload = json!({"termsOfServiceAgreed": true, "contact": contact});
        let asked = directory.post(Signer::New(&key), &url, Some(&payload)).await;
        let reply = asked.map_err(|error| match error.is("urn:ietf:params:acme:error:externalAccountRequired") {
            true => AcmeError::Unexpected {
                url: url.clone(),
                why: "it wants an account that was made elsewhere (external account binding), which is not supported"
                    .into(),
            },
            false => error,
        })?;
        let kid =
            reply.location.clone().ok_or_else(|| reply.unexpected("it does not say where the account is"))?;
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

    pub async fn order(&self, host: &str) -> Result<Order, AcmeError> {
        let payload = json!({"identifiers": [{"type": "dns", "value": host}]});
        let reply = self.post(&self.directory.urls().new_order, Some(&payload)).await?;
        let url =
            reply.location.clone().ok_or_else(|| reply.unexpected("it does not say where the order is"))?;
        Order::read(url, &reply)
    }
}

impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Account {}", self.kid)
    }
}
