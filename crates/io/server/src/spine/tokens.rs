//! Tokens: made once, shown once, kept as hashes (design 80, 4.6).

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use bursar_client::api::{
    ApplyAnswer, Change, ChangeKind, ListAnswer, Token as ApiToken, TokenCreated, TokenRequest,
};
use bursar_client::problem::FieldError;
use bursar_client::{Code, Problem};
use bursar_engine::spine::KEYS_KEPT;
use bursar_engine::token::Token;
use bursar_engine::{Command, spine};
use bursar_journal::hash::{HASH_BYTES, Hash, sha256};
use bursar_ledger::intake::Outcome;
use bursar_units::{BookingId, Instant, Label, Millis, ObjectName};

use crate::auth::SECRET_PREFIX;
use crate::caller::Caller;
use crate::service::refusal::of_refusal;
use crate::service::{Answer, Mode, Service, last_record};
use crate::spine::declared::page;

/// How long a token is good where nobody says.
const EXPIRES_DEFAULT: Millis = Millis::from_hours(90 * 24);

/// Secrets that are known until they are forgotten: a day, and so many.
#[derive(Default)]
pub(crate) struct Made(Mutex<VecDeque<One>>);

struct One {
    by: Label,
    key: BookingId,
    asked: TokenRequest,
    secret: String,
    at: Instant,
}

/// Secrets that are known at once.
const MADE_MAX: usize = 1_000;

impl Service {
    /// Lets somebody in; the secret is in this answer and nowhere else. A repeat under the same
    /// key is answered alike while this process lives: only it still knows the secret.
    pub async fn create_token(
        &self,
        caller: &Caller,
        asked: TokenRequest,
        key: Option<BookingId>,
        mode: Mode,
    ) -> Result<Answer<TokenCreated>, Problem> {
        caller.require_operate("create tokens")?;
        let now = self.ledger.now();
        if mode == Mode::DryRun {
            let token = token(asked, "", now)?;
            let command = spine::Command::CreateToken(token.clone());
            let record = self
                .submit_or_plan(caller, &command.into(), mode)
                .await?
                .record;
            // The secret of a token that is not made would open nothing.
            return Ok(created(&token, now, String::new(), record, Some(true)));
        }
        let secret = self.made.secret(caller, key, &asked, now)?;
        let token = token(asked, &secret, now)?;
        if let Some((present, made_at)) = self.present_token(&token) {
            return Ok(created(&present, made_at, secret, self.record(), None));
        }
        let command = spine::Command::CreateToken(token.clone());
        let outcome = self.submit_or_plan(caller, &command.into(), mode).await?;
        let (record, made_at) = (outcome.record, outcome.time);
        Ok(created(&token, made_at, secret, record, None))
    }

    /// The token of this very secret, if it was made before.
    fn present_token(&self, token: &Token) -> Option<(Token, Instant)> {
        let state = self.ledger.view().read();
        let mut all = state.spine.tokens.iter();
        let is_it = |(present, _): &(&Token, Instant)| present.sha256 == token.sha256;
        all.find(is_it)
            .map(|(present, made_at)| (present.clone(), made_at))
    }

    /// Shuts somebody out.
    pub async fn revoke_token(
        &self,
        caller: &Caller,
        name: ObjectName,
        mode: Mode,
    ) -> Result<Answer<ApplyAnswer>, Problem> {
        caller.require_operate("revoke tokens")?;
        let command = spine::Command::RevokeToken { name: name.clone() };
        let Outcome { record, .. } = self.submit_or_plan(caller, &command.into(), mode).await?;
        let change = Change {
            object: format!("token/{name}"),
            change: ChangeKind::Deleted,
            fields: Vec::new(),
            effect: None,
        };
        let dry_run = (mode == Mode::DryRun).then_some(true);
        Ok(Answer {
            status: 200,
            record,
            body: ApplyAnswer {
                results: vec![change],
                record,
                dry_run,
            },
        })
    }

    /// All tokens, without their secrets.
    pub fn tokens(
        &self,
        caller: &Caller,
        limit: usize,
        cursor: Option<&str>,
    ) -> Result<Answer<ListAnswer<ApiToken>>, Problem> {
        caller.require_operate("list tokens")?;
        let state = self.ledger.view().read();
        let record = last_record(&state);
        let all = state
            .spine
            .tokens
            .iter()
            .map(|(token, created)| shown(token, created));
        let body = page(all, |token| token.name.as_str(), limit, cursor, record);
        Ok(Answer {
            status: 200,
            record,
            body,
        })
    }

    /// A command of the spine, done or tried out; a refusal is a problem.
    pub(crate) async fn submit_or_plan(
        &self,
        caller: &Caller,
        command: &Command,
        mode: Mode,
    ) -> Result<Outcome, Problem> {
        let outcome = match mode {
            Mode::Real => self.submit_one(caller, command.clone()).await?,
            Mode::DryRun => self.plan(command).0,
        };
        match &outcome.result {
            Ok(_) => Ok(outcome),
            Err(refusal) => Err(of_refusal(
                &self.ledger.view().read(),
                outcome.record,
                caller,
                command,
                refusal,
            )),
        }
    }
}

impl Made {
    /// A new secret, or the one that was made for the same request under the same key.
    fn secret(
        &self,
        caller: &Caller,
        key: Option<BookingId>,
        asked: &TokenRequest,
        now: Instant,
    ) -> Result<String, Problem> {
        let Some(key) = key else { return secret() };
        let mut made = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        made.retain(|one| now < one.at.after(KEYS_KEPT));
        if let Some(one) = made
            .iter()
            .find(|one| one.by == caller.name && one.key == key)
        {
            if one.asked == *asked {
                return Ok(one.secret.clone());
            }
            let detail = format!("key `{key}` was sent with another token before");
            return Err(Problem::new(Code::IdReused, detail));
        }
        let secret = secret()?;
        if made.len() == MADE_MAX {
            made.pop_front();
        }
        let (by, asked) = (caller.name.clone(), asked.clone());
        made.push_back(One {
            by,
            key,
            asked,
            secret: secret.clone(),
            at: now,
        });
        Ok(secret)
    }
}

fn created(
    token: &Token,
    made_at: Instant,
    secret: String,
    record: u64,
    dry_run: Option<bool>,
) -> Answer<TokenCreated> {
    let body = TokenCreated {
        token: shown(token, made_at),
        secret,
        record,
        dry_run,
    };
    Answer {
        status: 201,
        record,
        body,
    }
}

fn token(asked: TokenRequest, secret: &str, now: Instant) -> Result<Token, Problem> {
    let lifetime = asked.lifetime().map_err(|wrong| {
        let error = FieldError::new("expires", wrong);
        Problem::invalid(vec![error])
    })?;
    let expires = lifetime.unwrap_or(EXPIRES_DEFAULT);
    Ok(Token {
        name: asked.name,
        sha256: sha256(secret.as_bytes()),
        roles: asked.roles.into_iter().collect(),
        tenants: asked.tenants.into_iter().collect(),
        expires: now.after(expires),
        created: None,
    })
}

fn secret() -> Result<String, Problem> {
    Ok(format!("{SECRET_PREFIX}{}", random_digits()?))
}

/// A name that nothing else has.
pub(crate) fn random_name(prefix: &str) -> Result<String, Problem> {
    Ok(format!("{prefix}-{}", random_digits()?))
}

fn random_digits() -> Result<String, Problem> {
    let mut bytes = [0_u8; HASH_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| {
        Problem::new(
            Code::Internal,
            format!("the system gave no random bytes: {error}"),
        )
    })?;
    Ok(Hash(bytes).to_string())
}

fn shown(token: &Token, created: Instant) -> ApiToken {
    ApiToken {
        name: token.name.clone(),
        roles: token.roles.iter().copied().collect(),
        tenants: token.tenants.iter().cloned().collect(),
        created_at: created,
        expires_at: token.expires,
    }
}
