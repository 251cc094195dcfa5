//! One order on its way from the first request to a certificate.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, SystemTime},
};

use seaway_acme::{Account, AcmeError, Authorization, Challenge, Key, Order, Status, request};
use seaway_model::{
    Name,
    acme::{Acme, CertificateOrder},
};

use super::{SOON, Step, reach};

/// The front door takes over what it is to answer within milliseconds.
const TO_ANSWER: Duration = Duration::from_secs(30);
/// An authority that has not decided by then is asked again from the start.
const TO_END: Duration = Duration::from_secs(600);
/// How often an authority is asked how it stands, where it does not say.
const ASK_EVERY: Duration = Duration::from_secs(1);
const MOST_SELDOM: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub(super) struct Attempt {
    pub(super) acme: Acme,
    account: Account,
    began: SystemTime,
    order: Order,
    stage: Stage,
    /// Why it cannot go on.
    refused: Option<String>,
}

#[derive(Clone)]
enum Stage {
    /// The authority does not look before the front door answers.
    Challenged { challenges: Vec<Challenge>, answered: Result<(), String> },
    /// The authority looks.
    Answered { challenges: Vec<Challenge> },
    /// The authority signs.
    Finalizing { key: Arc<Key> },
}

impl Attempt {
    pub(super) async fn begin(account: Account, order_of: &CertificateOrder) -> Result<Attempt, AcmeError> {
        let CertificateOrder { host, acme, .. } = order_of;
        let began = SystemTime::now();
        let order = account.order(host).await?;
        let mut challenges = Vec::new();
        for url in &order.authorizations {
            let asked = Authorization::ask(&account, url).await?;
            if asked.status == Status::Valid {
                // Proven lately.
                continue;
            }
            let why = "it offers no challenge by HTTP (http-01), which is what the front door answers";
            let unexpected = || AcmeError::Unexpected { url: acme.directory.to_string(), why: why.into() };
            challenges.push(asked.challenge.ok_or_else(unexpected)?);
        }
        let stage = match challenges.is_empty() {
            true => Stage::Answered { challenges },
            false => Stage::Challenged { challenges, answered: Err("it was not asked yet".into()) },
        };
        Ok(Attempt { acme: acme.clone(), account, began, order, stage, refused: None })
    }

    /// How it stands now, here and there.
    pub(super) async fn look(&mut self, order_of: &CertificateOrder) {
        let answers = self.answers();
        if let Stage::Challenged { answered, .. } = &mut self.stage {
            *answered = reach::answers(order_of, &answers).await;
            return;
        }
        match self.order.again(&self.account).await {
            Ok(order) => self.order = order,
            // It is asked again, for as long as an order may take.
            Err(AcmeError::Unreachable { .. }) => return,
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
    pub(super) fn next(&self, now: SystemTime) -> Option<Step> {
        let lasts = now.duration_since(self.began).unwrap_or_default();
        if let Some(why) = &self.refused {
            return Some(Step::Abandon(why.clone()));
        }
        if lasts > TO_END {
            return Some(Step::Abandon(format!("the order did not end within {} s", TO_END.as_secs())));
        }
        let ended = || {
            Some(Step::Abandon(format!(
                "the order is {:?} before its certificate was asked for",
                self.order.status
            )))
        };
        match (&self.stage, self.order.status) {
            (Stage::Challenged { answered: Ok(()), .. }, _) => Some(Step::Answer),
            (Stage::Challenged { answered: Err(why), .. }, _) if lasts > TO_ANSWER => {
                Some(Step::Abandon(format!("the front door does not answer for it itself: {why}")))
            }
            (Stage::Challenged { .. }, _) => None,
            (Stage::Answered { .. }, Status::Ready) => Some(Step::Finalize),
            (Stage::Finalizing { .. }, Status::Valid) => Some(Step::Keep),
            (Stage::Answered { .. }, Status::Pending | Status::Processing)
            | (Stage::Finalizing { .. }, Status::Ready | Status::Processing) => None,
            (Stage::Answered { .. } | Stage::Finalizing { .. }, _) => ended(),
        }
    }

    pub(super) fn again(&self) -> Duration {
        match self.stage {
            Stage::Challenged { .. } => SOON,
            _ => self.order.retry_after.unwrap_or(ASK_EVERY).clamp(SOON, MOST_SELDOM),
        }
    }

    /// What the front door is to answer, by token.
    pub(super) fn answers(&self) -> BTreeMap<Name, Name> {
        let challenges = match &self.stage {
            Stage::Challenged { challenges, .. } | Stage::Answered { challenges } => challenges.as_slice(),
            Stage::Finalizing { .. } => &[],
        };
        let answer = |it: &Challenge| {
            let body = self.account.authorization(&it.token);
            (Name::from(it.token.as_str()), Name::from(body))
        };
        challenges.iter().map(answer).collect()
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
        let key = Arc::new(Key::generate()?);
        self.order = self.order.finalize(&self.account, &request(host, &key)?).await?;
        self.stage = Stage::Finalizing { key };
        Ok(())
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
