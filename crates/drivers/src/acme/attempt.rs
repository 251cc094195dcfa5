//! One order on its way from the first request to a certificate.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use seaway_acme::{Account, AcmeError, Authorization, Challenge, Key, Order, Status, request};
use seaway_files::state::FailedOrders;
use seaway_model::{
    Name,
    acme::{Acme, CertificateOrder, ChallengeType, record_name},
    load_balancer::Certificate,
};

use super::{SOON, Step, reach, records::Records};

/// The front door takes over what it is to answer within milliseconds.
const TO_ANSWER: Duration = Duration::from_secs(30);
/// Name servers that copy a zone may take that long.
const TO_ANSWER_BY_DNS: Duration = Duration::from_secs(150);
/// An authority that has not decided by then is asked again from the start.
const TO_END: Duration = Duration::from_secs(600);
/// How often an authority is asked how it stands, where it does not say.
const ASK_EVERY: Duration = Duration::from_secs(1);
const MOST_SELDOM: Duration = Duration::from_secs(30);
const AFTER_TROUBLE: Duration = Duration::from_secs(5);

#[derive(Clone)]
pub(super) struct Attempt {
    pub(super) acme: Acme,
    /// Failures before it, which count again if it ends as if it had not been.
    pub(super) before: FailedOrders,
    account: Account,
    challenge: ChallengeType,
    /// Where the authority looks for a record.
    record: Name,
    /// What it is shown by TLS.
    validation: Option<Arc<Certificate>>,
    began: Instant,
    order: Order,
    stage: Stage,
    /// Why it cannot go on.
    refused: Option<String>,
    /// Nothing is asked of the authority before.
    paused_until: Option<Instant>,
}

#[derive(Clone)]
enum Stage {
    /// The authority does not look before the front door answers.
    Challenged { challenges: Vec<Challenge>, is_published: bool, answered: Result<(), String> },
    /// The authority looks.
    Answered { challenges: Vec<Challenge> },
    /// The authority signs.
    Finalizing { key: Arc<Key> },
}

impl Attempt {
    pub(super) async fn begin(
        account: Account,
        order_of: &CertificateOrder,
        before: FailedOrders,
        replaces: Option<&str>,
    ) -> Result<Attempt, AcmeError> {
        let CertificateOrder { host, acme, .. } = order_of;
        let unproven = || {
            AcmeError::Key(
                "no challenge type (http-01, tls-alpn-01, dns-01) is possible for this host".into(),
            )
        };
        let challenge = &order_of.challenge.ok_or_else(unproven)?;
        let began = Instant::now();
        let order = account.order(host, replaces).await?;
        let mut challenges = Vec::new();
        for url in &order.authorizations {
            let asked = Authorization::ask(&account, url).await?;
            if asked.status == Status::Valid {
                // Proven lately.
                continue;
            }
            let kind = challenge.as_str();
            let unexpected = || {
                let why = format!("the authority offers no challenge of the type {kind} for {host}");
                AcmeError::Unexpected { url: acme.directory.to_string(), why }
            };
            challenges.push(asked.challenge(kind).ok_or_else(unexpected)?.clone());
        }
        let validation = match challenges.first().filter(|_| *challenge == ChallengeType::TlsAlpn01) {
            Some(challenge) => {
                let (chain, key) = account.validation(host, &challenge.token)?;
                let (chain, authorities, staple) = (chain.into(), Name::default(), None);
                Some(Arc::new(Certificate {
                    chain,
                    key: key.into(),
                    authorities,
                    staple,
                    users: String::new().into(),
                }))
            }
            None => None,
        };
        let stage = match challenges.is_empty() {
            true => Stage::Answered { challenges },
            false => Stage::Challenged {
                challenges,
                is_published: *challenge != ChallengeType::Dns01,
                answered: Err("the challenge was not checked yet".into()),
            },
        };
        Ok(Attempt {
            acme: acme.clone(),
            before,
            account,
            challenge: *challenge,
            record: record_name(host),
            validation,
            began,
            order,
            stage,
            refused: None,
            paused_until: None,
        })
    }

    /// How it stands now, here and there.
    pub(super) async fn observe(&mut self, order_of: &CertificateOrder, records: &Records) {
        if self.is_paused() {
            return;
        }
        let (answers, values, validation) = (self.answers(), self.records(), self.validation());
        if let Stage::Challenged { answered, is_published, .. } = &mut self.stage {
            *answered = match (self.challenge, &self.acme.dns) {
                (ChallengeType::Http01, _) => reach::answers(order_of, &answers).await,
                (ChallengeType::TlsAlpn01, _) => reach::shows(order_of, validation).await,
                (ChallengeType::Dns01, Some(updates)) if *is_published => {
                    let mut shown = Ok(());
                    for (name, value) in &values {
                        shown = shown.and(records.verify_published(updates, name, value).await);
                    }
                    shown
                }
                // Why it was not added, if that was tried.
                (ChallengeType::Dns01, _) => std::mem::replace(answered, Ok(())),
            };
            return;
        }
        match self.order.again(&self.account).await {
            Ok(order) => self.order = order,
            Err(error) if error.is_transient() => return self.pause(&error),
            Err(error) => self.refused = Some(error.to_string()),
        }
        if self.order.status == Status::Invalid && self.refused.is_none() {
            self.refused = Some(self.why_invalid().await);
        }
    }

    /// What the authority found when it looked.
    async fn why_invalid(&self) -> String {
        for url in &self.order.authorizations {
            if let Ok(Authorization { error: Some(why), .. }) = Authorization::ask(&self.account, url).await {
                return why;
            }
        }
        self.order.error.clone().unwrap_or_else(|| "the order is invalid".into())
    }

    /// What is to be done next; nothing, while it is the other side's turn.
    pub(super) fn next(&self) -> Option<Step> {
        let lasts = self.began.elapsed();
        if let Some(why) = &self.refused {
            return Some(Step::Abandon(why.clone()));
        }
        if lasts > TO_END {
            return Some(Step::Abandon(format!("the order did not end within {} s", TO_END.as_secs())));
        }
        let ended = || {
            Some(Step::Abandon(format!(
                "the order has the status {:?} before Seaway requested the certificate",
                self.order.status
            )))
        };
        match (&self.stage, self.order.status) {
            (Stage::Challenged { answered: Err(why), .. }, _) if lasts > self.time_to_answer() => {
                Some(Step::Abandon(match self.challenge {
                    ChallengeType::Http01 | ChallengeType::TlsAlpn01 => {
                        format!(
                            "Seaway checked the challenge itself, and the front door does not answer it as it should: {why}"
                        )
                    }
                    ChallengeType::Dns01 => why.clone(),
                }))
            }
            _ if self.is_paused() => None,
            (Stage::Challenged { is_published: false, .. }, _) => Some(Step::Publish),
            (Stage::Challenged { answered: Ok(()), .. }, _) => Some(Step::Answer),
            (Stage::Challenged { .. }, _) => None,
            // That of before did not arrive; its key is the same.
            (Stage::Answered { .. } | Stage::Finalizing { .. }, Status::Ready) => Some(Step::Finalize),
            (Stage::Finalizing { .. }, Status::Valid) => Some(Step::Keep),
            (Stage::Answered { .. }, Status::Pending | Status::Processing)
            | (Stage::Finalizing { .. }, Status::Processing) => None,
            (Stage::Answered { .. } | Stage::Finalizing { .. }, _) => ended(),
        }
    }

    pub(super) fn again(&self) -> Duration {
        match self.stage {
            _ if self.is_paused() => {
                let until = self.paused_until.unwrap_or(self.began);
                until.saturating_duration_since(Instant::now()).clamp(SOON, MOST_SELDOM)
            }
            Stage::Challenged { .. } if self.challenge == ChallengeType::Dns01 => ASK_EVERY,
            Stage::Challenged { .. } => SOON,
            _ => self.order.retry_after.unwrap_or(ASK_EVERY).clamp(SOON, MOST_SELDOM),
        }
    }

    /// What the front door is to answer, by token.
    pub(super) fn answers(&self) -> BTreeMap<Name, Name> {
        let challenges = self.challenges(ChallengeType::Http01);
        let answer = |it: &Challenge| {
            let body = self.account.authorization(&it.token);
            (Name::from(it.token.as_str()), Name::from(body))
        };
        challenges.iter().map(answer).collect()
    }

    /// What an authority is to be shown by TLS.
    pub(super) fn validation(&self) -> Option<Arc<Certificate>> {
        self.validation.clone().filter(|_| !self.challenges(ChallengeType::TlsAlpn01).is_empty())
    }

    /// What DNS is to answer: names and values.
    pub(super) fn records(&self) -> Vec<(Name, Name)> {
        let value = |it: &Challenge| Name::from(self.account.dns_value(&it.token));
        let challenges = self.challenges(ChallengeType::Dns01).iter();
        challenges.map(|it| (self.record.clone(), value(it))).collect()
    }

    fn challenges(&self, of: ChallengeType) -> &[Challenge] {
        match &self.stage {
            Stage::Challenged { challenges, .. } | Stage::Answered { challenges } if self.challenge == of => {
                challenges
            }
            _ => &[],
        }
    }

    pub(super) fn challenge(&self) -> ChallengeType {
        self.challenge
    }

    fn time_to_answer(&self) -> Duration {
        match self.challenge {
            ChallengeType::Http01 | ChallengeType::TlsAlpn01 => TO_ANSWER,
            ChallengeType::Dns01 => TO_ANSWER_BY_DNS,
        }
    }

    pub(super) async fn publish(&mut self, records: &Records) -> Result<(), AcmeError> {
        let values = self.records();
        let (Stage::Challenged { is_published, answered, .. }, Some(updates)) =
            (&mut self.stage, &self.acme.dns)
        else {
            return Ok(());
        };
        for (name, value) in &values {
            if let Err(error) = records.publish(updates, name, value).await {
                *answered = Err(error.to_string());
                return Err(AcmeError::Dns(error));
            }
        }
        (*is_published, *answered) = (true, Err("the challenge was not checked yet".into()));
        Ok(())
    }

    pub(super) async fn answer(&mut self) -> Result<(), AcmeError> {
        let Stage::Challenged { challenges, .. } = &self.stage else { return Ok(()) };
        for challenge in challenges {
            challenge.answer(&self.account).await?;
        }
        self.stage = Stage::Answered { challenges: challenges.clone() };
        Ok(())
    }

    /// Each certificate has a key of its own.
    pub(super) async fn finalize(&mut self, host: &Name) -> Result<(), AcmeError> {
        let key = match &self.stage {
            Stage::Finalizing { key } => key.clone(),
            _ => Arc::new(Key::generate()?),
        };
        // Kept before it is used: what was asked for may be done although no answer comes.
        self.stage = Stage::Finalizing { key: key.clone() };
        self.order = self.order.finalize(&self.account, &request(host, &key)?).await?;
        Ok(())
    }

    /// What went wrong is wrong for a while.
    pub(super) fn pause(&mut self, error: &AcmeError) {
        self.wait(error.retry_after().unwrap_or(AFTER_TROUBLE).max(AFTER_TROUBLE));
    }

    pub(super) fn wait(&mut self, wait: Duration) {
        self.paused_until = Instant::now().checked_add(wait.min(TO_END));
    }

    fn is_paused(&self) -> bool {
        self.paused_until.is_some_and(|until| Instant::now() < until)
    }

    /// The chain with its key, in PEM.
    pub(super) async fn certificate(&self) -> Result<String, AcmeError> {
        let Stage::Finalizing { key } = &self.stage else {
            return Err(AcmeError::Key("there is no key for the certificate".into()));
        };
        let chain = self.order.certificate(&self.account).await?;
        Ok(format!("{}\n{}", chain.trim_end(), key.to_pem()))
    }
}

#[cfg(test)]
impl Attempt {
    /// As if it had begun so much earlier.
    pub(super) fn age(&mut self, by: Duration) {
        self.began = self.began.checked_sub(by).expect("the machine is up for longer than that");
    }
}
