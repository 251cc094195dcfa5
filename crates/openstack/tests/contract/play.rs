//! Plays a script: sends what it says, and writes down what comes back.

use std::{collections::BTreeMap, time::Instant};

use anyhow::{Context, Result, bail, ensure};
use seaway_openstack::{
    call::{Call, Method, Service},
    error::{Error, ErrorReply},
};
use serde_json::Value;

use super::{
    compare,
    script::{Action, Part, Script, Step},
    scripts,
    stage::Stage,
    told::RunContext,
};

/// For one change to end. Amphorae take their time.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(300);

struct ScriptRun<'s> {
    stage: &'s mut Stage,
    kept: BTreeMap<String, String>,
    said: String,
}

struct ActualReply {
    status: u16,
    headers: reqwest::header::HeaderMap,
    body: Value,
}

/// The script with what came back now.
pub(crate) async fn play(mut script: Script, stage: &mut Stage) -> Result<Script> {
    let said = script.said();
    let kept = stage.known.clone();
    let mut play = ScriptRun { stage, kept, said };
    for part in &mut script.parts {
        if let Part::Step(step) = part {
            let recorded = play.step(step).await.with_context(|| step.sent.join("\n"))?;
            step.recorded = recorded;
        }
    }
    Ok(script)
}

impl ScriptRun<'_> {
    async fn step(&mut self, step: &Step) -> Result<Vec<String>> {
        match &step.action {
            Action::Nothing => bail!("nothing is done"),
            Action::Operator(what) => {
                self.operate(&self.filled(what))?;
                Ok(vec!["done".to_owned()])
            }
            Action::Prelude(name) => {
                let prelude = Script::read(&scripts::prelude(name))?;
                for part in &prelude.parts {
                    if let Part::Step(step) = part {
                        let told = Box::pin(self.step(step)).await?;
                        let fine = told.first().is_some_and(|it| !it.starts_with(['4', '5']));
                        ensure!(fine, "{name}: {}: {}", step.sent.join("\n"), told.join("\n"));
                    }
                }
                Ok(vec!["done".to_owned()])
            }
            Action::Ready(id) => self.ready(&self.filled(id)).await,
            Action::Request { .. } if step.until.is_some() => self.watch(step).await,
            Action::Request { .. } => self.request(step).await,
        }
    }

    /// What comes back. A look at a state that the cloud writes late is repeated until it is what was recorded; nothing that
    /// changes anything is ever sent twice.
    async fn request(&mut self, step: &Step) -> Result<Vec<String>> {
        let Action::Request { method, service, .. } = &step.action else { bail!("no request") };
        let begun = Instant::now();
        loop {
            let got = self.send(step).await?;
            for (name, place) in &step.keeps {
                let value =
                    got.at(place).with_context(|| format!("nothing to keep at {place}: {}", got.body))?;
                self.kept.insert(name.clone(), value);
            }
            let lines = self.tell(step, method, service, &got)?;
            if method != "GET" && !self.stage.patience.is_zero() && compare::has_ended(&step.recorded, &lines)
            {
                self.stage.differs(step, compare::ENDED);
                return Ok(step.recorded.clone());
            }
            let late = compare::late(&step.recorded, &lines).filter(|_| method == "GET");
            let Some(late) = late.filter(|_| begun.elapsed() < self.stage.patience) else { return Ok(lines) };
            self.stage.differs(step, &late);
            tokio::time::sleep(self.stage.pause).await;
        }
    }

    fn operate(&self, what: &str) -> Result<()> {
        let words: Vec<&str> = what.split(' ').collect();
        match words[..] {
            ["settles"] => self.stage.operator.settle(&self.kept["project"]),
            ["breaks", kind, id] => self.stage.operator.break_down(kind, id),
            _ => bail!("no operator can {what}"),
        }
    }

    /// Looks until it is so, and tells what was seen on the way: each but the last may be missed by who looks less often.
    async fn watch(&mut self, step: &Step) -> Result<Vec<String>> {
        let (place, wanted) = step.until.as_ref().context("a place to watch")?;
        let begun = Instant::now();
        let mut seen: Vec<String> = Vec::new();
        loop {
            let got = self.send(step).await?;
            let state = got.at(place).unwrap_or_else(|| got.status.to_string());
            let was_recorded = step.recorded.iter().any(|way| way.contains(&format!("{state}?")));
            let may_pass = !was_recorded && !self.stage.patience.is_zero();
            let passing = compare::passing(&state, wanted).filter(|_| may_pass);
            if let Some(why) = passing {
                self.stage.differs(step, &format!("{state} on the way to {wanted}: {why}"));
            } else if seen.last() != Some(&state) {
                seen.push(state.clone());
            }
            if state == *wanted {
                let (last, before) = seen.split_last().context("a state")?;
                let way: String = before.iter().map(|it| format!("{it}? ")).collect();
                return Ok(vec![way + last]);
            }
            ensure!(begun.elapsed() < PATIENCE, "in vain: {seen:?}, the last of it {}", got.body);
            tokio::time::sleep(self.stage.pause).await;
        }
    }

    /// A load balancer may be ready a moment before all that is below it, and an agent may report the end of a change twice:
    /// nothing is pending, and all of it stays as it is.
    async fn ready(&self, id: &str) -> Result<Vec<String>> {
        let begun = Instant::now();
        let (mut last, mut since) = (String::new(), begun);
        loop {
            let mut seen = self.look(&format!("/lbaas/loadbalancers/{id}")).await?;
            if !seen.contains("PENDING") {
                seen += &self.look(&format!("/lbaas/loadbalancers/{id}/status")).await?;
                let pools = self.look(&format!("/lbaas/pools?loadbalancer_id={id}")).await?;
                seen += &pools;
                let pools: Value = serde_json::from_str(&pools)?;
                for pool in pools["pools"].as_array().context("pools")? {
                    let id = pool["id"].as_str().context("an id")?;
                    seen += &self.look(&format!("/lbaas/pools/{id}/members")).await?;
                }
            }
            if seen != last {
                (last, since) = (seen.clone(), Instant::now());
            }
            if !seen.contains("PENDING") && since.elapsed() >= self.stage.rest {
                return Ok(vec!["ready".to_owned()]);
            }
            ensure!(begun.elapsed() < PATIENCE, "in vain: {seen}");
            tokio::time::sleep(self.stage.pause).await;
        }
    }

    async fn look(&self, path: &str) -> Result<String> {
        let token = self.stage.tokens.get("member").context("a member")?;
        let url = self.stage.url("load-balancer", path)?;
        Ok(self.stage.http.get(url).header("x-auth-token", token).send().await?.text().await?)
    }

    async fn send(&self, step: &Step) -> Result<ActualReply> {
        let Action::Request { method, service, path, body } = &step.action else { bail!("no request") };
        let url = self.stage.url(service, &self.filled(path))?;
        let mut request = self.stage.http.request(method.parse()?, url).header("accept", "application/json");
        let who = if step.who.is_empty() { "member" } else { &step.who };
        match who {
            "nobody" => {}
            token if token.starts_with('{') => request = request.header("x-auth-token", self.filled(token)),
            who => {
                request =
                    request.header("x-auth-token", self.stage.tokens.get(who).context("nobody of that name")?)
            }
        }
        if !body.is_empty() {
            request = request.header("content-type", "application/json").body(self.filled(body));
        }
        let mut request = request.build()?;
        for (name, value) in &step.headers {
            // What a script says replaces what is said anyway.
            request.headers_mut().insert(
                reqwest::header::HeaderName::from_bytes(name.as_bytes())?,
                self.filled(value).parse()?,
            );
        }
        let reply = self.stage.http.execute(request).await?;
        let (status, headers) = (reply.status().as_u16(), reply.headers().clone());
        let text = reply.text().await?;
        let body = if text.is_empty() {
            Value::Null
        } else {
            serde_json::from_str(&text).unwrap_or(Value::String(text))
        };
        Ok(ActualReply { status, headers, body })
    }

    fn tell(&self, step: &Step, method: &str, service: &str, got: &ActualReply) -> Result<Vec<String>> {
        let mut first = got.status.to_string();
        if got.status >= 400 {
            let service = Service::ALL.into_iter().find(|it| it.as_str() == service).context("a service")?;
            let call = Call::new(service, Method::from_bytes(method.as_bytes())?, "ask", "/");
            let refusal = ErrorReply {
                status: got.status,
                body: &got.body,
                request_id: None,
                retry_after: None,
                page: None,
            };
            first += &format!(" {:?}", Error::from_reply(&call, &refusal).class());
        }
        let mut lines = vec![first];
        let roots = self.stage.roots();
        let run = RunContext { kept: &self.kept, roots: &roots, said: &self.said, in_order: step.in_order };
        match &step.only {
            _ if got.body.is_null() => {}
            None => lines.extend(run.tell(&got.body)),
            Some(places) => {
                for place in places {
                    let value = got.body.pointer(place).cloned().unwrap_or_default();
                    let told = run.tell(&value);
                    lines.push(format!("{place}: {}", told[0]));
                    lines.extend(told.into_iter().skip(1));
                }
            }
        }
        Ok(lines)
    }

    /// With what was kept in the place of `{name}`.
    fn filled(&self, text: &str) -> String {
        self.kept
            .iter()
            .fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
    }
}

impl ActualReply {
    /// `/listener/id` of the body, `status`, or `header:location`; `/secret_ref|id` is the end of an address.
    fn at(&self, place: &str) -> Option<String> {
        if let Some(place) = place.strip_suffix("|id") {
            return self.at(place)?.rsplit('/').next().map(str::to_owned);
        }
        if place == "status" {
            return Some(self.status.to_string());
        }
        if place == "state" {
            let object = self.body.as_object().and_then(|it| it.values().next());
            let state = object.and_then(|it| it.get("provisioning_status").or_else(|| it.get("status")));
            return state.and_then(Value::as_str).map(str::to_owned);
        }
        if let Some(name) = place.strip_prefix("header:") {
            return self.headers.get(name)?.to_str().ok().map(str::to_owned);
        }
        match self.body.pointer(place)? {
            Value::String(text) => Some(text.clone()),
            Value::Null => None,
            other => Some(other.to_string()),
        }
    }
}
