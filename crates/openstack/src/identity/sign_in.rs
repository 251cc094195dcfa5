//! One sign-in: to the version of the API that there is, whichever way the URL was written.

use std::sync::{Arc, Mutex, PoisonError};

use reqwest::Method;
use secrecy::SecretString;
use serde_json::Value;
use tracing::Instrument;

use super::{IssuedToken, Session, catalog::unversioned, refused, v2, v3};
use crate::{
    call::{Accept, Call, Service},
    clock::Clock,
    cloud::Settings,
    credentials::{Credentials, IdentityVersion, Scope},
    error::{Class, Error, ErrorReply},
    http::{
        Body, Exchange, ExchangeOptions, HttpReply, HttpRequest, RandomSource, RequestLimiter, TimeBudget,
        Transport,
    },
};

/// What a sign-in goes through; the same for all of one cloud.
pub(crate) struct SignInContext {
    pub(crate) settings: Settings,
    pub(crate) gate: RequestLimiter,
    pub(crate) random: RandomSource,
}

/// Keystone, as one set of credentials finds it.
pub(super) struct Keystone<'a> {
    pub(super) context: &'a SignInContext,
    pub(super) credentials: &'a Credentials,
    pub(super) transport: &'a Transport,
    /// For all that is asked of it, be it five requests to learn why it says no.
    left: Mutex<TimeBudget>,
}

/// What was asked for, and where.
pub(super) struct TokenRequest {
    pub(super) url: String,
    pub(super) version: IdentityVersion,
}

pub(crate) async fn sign_in(
    context: &SignInContext,
    credentials: Arc<Credentials>,
    number: u64,
) -> Result<Session, Error> {
    let transport = Transport::new(&credentials, context.settings.timing.connect)
        .map_err(|error| error.with_operation("sign in"))?;
    let left = Mutex::new(TimeBudget::of(context.settings.timing.within(credentials.timeout)));
    let keystone = Keystone { context, credentials: &credentials, transport: &transport, left };
    let span = tracing::debug_span!("openstack", service = "identity", operation = "sign in", number);
    let outcome = keystone.enter().instrument(span).await.map_err(|error| error.with_operation("sign in"));
    context.settings.metrics.count_sign_in(outcome.as_ref().err());
    let (grant, asked) = outcome?;
    tracing::debug!(url = asked.url, user = grant.user.name, "signed in");
    Ok(Session {
        life: grant.life(context.settings.clock.wall()),
        user: grant.user,
        project: grant.project,
        roles: grant.roles,
        expires: grant.expires.map(Into::into),
        kind: match &credentials.scope {
            Scope::Trust(_) => "trust",
            _ => credentials.proof.kind(),
        },
        version: asked.version.as_str(),
        catalog: grant.catalog,
        auth_url: asked.url,
        token: grant.token,
        made: context.settings.clock.now(),
        number,
        credentials: credentials.clone(),
        transport,
    })
}

impl Keystone<'_> {
    async fn enter(&self) -> Result<(IssuedToken, TokenRequest), Error> {
        let asked = self.choose().await?;
        match self.try_at(&asked).await? {
            SignInOutcome::In(grant) => Ok((grant, asked)),
            SignInOutcome::Refused(answer) => Err(refused::explain(self, &asked, &answer).await),
            // No Keystone where the URL says so: its root tells what there is.
            SignInOutcome::Elsewhere(error) => {
                let listed = self.listed(&unversioned(&asked.url)).await;
                let found = listed.ok().and_then(|listed| self.best(&unversioned(&asked.url), &listed));
                let Some(found) = found.filter(|found| found.url != asked.url) else { return Err(error) };
                match self.try_at(&found).await? {
                    SignInOutcome::In(grant) => Ok((grant, found)),
                    SignInOutcome::Refused(answer) => Err(refused::explain(self, &found, &answer).await),
                    SignInOutcome::Elsewhere(_) => Err(error),
                }
            }
        }
    }

    /// By the setting, by the URL, or by what its root lists.
    async fn choose(&self) -> Result<TokenRequest, Error> {
        let url = tidy(&self.credentials.auth_url.value);
        let root = unversioned(&url);
        let said = match url.rsplit('/').next().unwrap_or_default() {
            "v3" => Some(IdentityVersion::V3),
            "v2.0" => Some(IdentityVersion::V2),
            _ => None,
        };
        // What v2.0 cannot say at all is not asked of it, whatever the URL says.
        let only_v3 = v2::request(self.credentials, &self.credentials.scope).is_err();
        let said = if only_v3 { Some(IdentityVersion::V3) } else { self.credentials.version.or(said) };
        if let Some(version) = said {
            return Ok(TokenRequest::below(&root, version));
        }
        let listed = self.listed(&root).await?;
        self.best(&root, &listed).ok_or_else(|| self.no_keystone(&root, "lists no version that Seaway knows"))
    }

    /// The versions that the root lists: Keystone answers with 300 there.
    async fn listed(&self, root: &str) -> Result<Vec<String>, Error> {
        let url = format!("{root}/");
        let answer = self.exchange(Method::GET, &url, None, None).await?;
        let body = answer.body.json();
        let versions = [body.pointer("/versions/values"), body.pointer("/versions")];
        let ids: Vec<String> = versions
            .into_iter()
            .flatten()
            .find_map(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(|version| Some(version.get("id")?.as_str()?.to_owned()))
            .collect();
        if answer.status > 300 || ids.is_empty() {
            return Err(self.no_keystone(&url, &no_list(&answer)));
        }
        Ok(ids)
    }

    fn best(&self, root: &str, listed: &[String]) -> Option<TokenRequest> {
        let has = |major: &str| listed.iter().any(|id| id.starts_with(major));
        if has("v3") {
            Some(TokenRequest::below(root, IdentityVersion::V3))
        } else if has("v2") {
            Some(TokenRequest::below(root, IdentityVersion::V2))
        } else {
            None
        }
    }

    async fn try_at(&self, asked: &TokenRequest) -> Result<SignInOutcome, Error> {
        let body = match asked.version {
            IdentityVersion::V3 => v3::request(self.credentials, &self.credentials.scope),
            IdentityVersion::V2 => {
                v2::request(self.credentials, &self.credentials.scope).map_err(|what| {
                    Error::new(
                        Class::Credentials,
                        format!("Keystone v2.0 does not support {what}, and there is no v3"),
                    )
                    .with_fix(format!("see {}", self.credentials.auth_url.place))
                })?
            }
        };
        let answer = self.ask(asked, &body).await?;
        match answer.status {
            200..=299 => {}
            // Too many requests, or a Keystone that is broken: not a matter of where, nor of who.
            408 | 413 | 429 | 500.. => return Err(self.refusal(&answer)),
            400..=499 if said_by_keystone(&answer) => return Ok(SignInOutcome::Refused(answer)),
            _ => return Ok(SignInOutcome::Elsewhere(self.no_keystone(&asked.tokens(), &no_list(&answer)))),
        }
        let grant = match asked.version {
            IdentityVersion::V3 => v3::grant(answer.body.json(), answer.token.clone()),
            IdentityVersion::V2 => v2::grant(answer.body.json()),
        };
        Ok(match grant {
            Some(grant) => SignInOutcome::In(grant),
            None => SignInOutcome::Elsewhere(self.no_keystone(&asked.tokens(), &no_list(&answer))),
        })
    }

    pub(super) async fn ask(&self, asked: &TokenRequest, body: &Value) -> Result<HttpReply, Error> {
        self.exchange(Method::POST, &asked.tokens(), Some(body), None).await
    }

    /// A token more or less does no harm: all of it may be repeated.
    pub(super) async fn exchange(
        &self,
        method: Method,
        url: &str,
        body: Option<&Value>,
        token: Option<&SecretString>,
    ) -> Result<HttpReply, Error> {
        let address_from = format!("auth_url ({})", self.credentials.auth_url.place);
        let ask = HttpRequest {
            method,
            url,
            query: &[],
            headers: Vec::new(),
            token,
            body,
            accept: Accept::Json,
            address_from: &address_from,
        };
        let Settings { clock, timing, backoff, .. } = &self.context.settings;
        let exchange = Exchange {
            clock: &**clock as &dyn Clock,
            gate: &self.context.gate,
            random: &self.context.random,
            may: &|| true,
            repeated: &|| {},
        };
        let attempt = timing.within(self.credentials.timeout).attempt;
        let terms = ExchangeOptions { attempt, backoff: *backoff, repeatable: true };
        // One request after the other: nobody else spends it meanwhile.
        let mut left = *self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = exchange.run(self.transport, &ask, &terms, &mut left).await;
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = left;
        outcome.map_err(|trouble| trouble.error)
    }

    pub(super) fn refusal(&self, answer: &HttpReply) -> Error {
        let call = Call::post(Service::Identity, "sign in", "/auth/tokens", Value::Null);
        Error::from_reply(
            &call,
            &ErrorReply {
                status: answer.status,
                body: answer.body.json(),
                request_id: answer.request_id.as_deref(),
                retry_after: answer.retry_after,
                page: answer.body.page(),
            },
        )
    }

    fn no_keystone(&self, url: &str, why: &str) -> Error {
        Error::new(Class::NotOpenStack, format!("{url} {why}")).with_fix(format!(
            "there is no Keystone: check auth_url ({}), which often ends in :5000/v3 or /identity/v3, and whether a \
             proxy stands in between",
            self.credentials.auth_url.place,
        ))
    }
}

enum SignInOutcome {
    In(IssuedToken),
    /// By Keystone itself.
    Refused(HttpReply),
    /// What answered is no Keystone, or not of this version.
    Elsewhere(Error),
}

impl TokenRequest {
    fn below(root: &str, version: IdentityVersion) -> TokenRequest {
        TokenRequest { url: format!("{root}/{}", version.as_str()), version }
    }

    fn tokens(&self) -> String {
        match self.version {
            IdentityVersion::V3 => format!("{}/auth/tokens", self.url),
            IdentityVersion::V2 => format!("{}/tokens", self.url),
        }
    }
}

impl IdentityVersion {
    fn as_str(self) -> &'static str {
        match self {
            IdentityVersion::V2 => "v2.0",
            IdentityVersion::V3 => "v3",
        }
    }
}

/// Without what people paste along with it.
fn tidy(url: &str) -> String {
    let mut url = url.trim().trim_end_matches('/');
    for end in ["/auth/tokens", "/tokens"] {
        url = url.strip_suffix(end).unwrap_or(url).trim_end_matches('/');
    }
    url.to_owned()
}

/// Its errors have a form of their own; a path that it does not know gets a page, as from anybody.
fn said_by_keystone(answer: &HttpReply) -> bool {
    answer.body.json().get("error").is_some_and(|error| error.get("message").is_some())
        && !(answer.status == 404 && is_about_the_path(answer))
}

/// Some versions say that of unknown paths; of things they say which one.
fn is_about_the_path(answer: &HttpReply) -> bool {
    let message = answer.body.json().pointer("/error/message").and_then(Value::as_str).unwrap_or_default();
    message.starts_with("The resource could not be found")
}

fn no_list(answer: &HttpReply) -> String {
    let status = answer.status;
    match (&answer.body, &answer.location) {
        (_, Some(there)) if (301..=308).contains(&status) => format!("redirects to {there} ({status})"),
        (Body::Page(title), _) if title.is_empty() => format!("answered with a web page ({status})"),
        (Body::Page(title), _) => format!("answered with a web page, {title:?} ({status})"),
        (Body::Nothing, _) => format!("answered with nothing ({status})"),
        _ => format!("answered with something else ({status})"),
    }
}

#[cfg(test)]
mod tests {
    use super::tidy;

    #[test]
    fn an_auth_url_may_be_pasted_with_what_follows_it() {
        for url in [
            "http://k:5000/v3",
            "http://k:5000/v3/",
            "http://k:5000/v3///",
            " http://k:5000/v3/auth/tokens/ ",
            "http://k:5000/v3/auth/tokens",
        ] {
            assert_eq!(tidy(url), "http://k:5000/v3", "{url}");
        }
        assert_eq!(tidy("http://k/v2.0/tokens"), "http://k/v2.0");
    }
}
