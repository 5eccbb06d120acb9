//! Tokens. A secret is shown once; the ledger has only its hash.

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
use crate::service::{Answer, Service, WriteMode, last_record};
use crate::spine::declared::page;

const EXPIRES_DEFAULT: Millis = Millis::from_hours(90 * 24);

/// Secrets of recent requests with an idempotency key, for [`KEYS_KEPT`], at most [`SECRETS_MAX`].
#[derive(Default)]
pub(crate) struct SecretCache(Mutex<VecDeque<CachedSecret>>);

struct CachedSecret {
    by: Label,
    key: BookingId,
    request: TokenRequest,
    secret: String,
    at: Instant,
}

const SECRETS_MAX: usize = 1_000;

impl Service {
    /// Creates a token. Its secret is only in this answer. A repeat with the same key gets the same
    /// answer from the same process, which keeps the secret in memory.
    pub(crate) async fn create_token(
        &self,
        caller: &Caller,
        request: TokenRequest,
        key: Option<BookingId>,
        mode: WriteMode,
    ) -> Result<Answer<TokenCreated>, Problem> {
        caller.require_operate("create tokens")?;
        let now = self.ledger.now();
        if mode == WriteMode::DryRun {
            let token = token(request, "", now)?;
            let command = spine::Command::CreateToken(token.clone());
            let Outcome { record, .. } = self.submit_or_plan(caller, &command.into(), mode).await?;
            // A dry run has no secret.
            return Ok(created(&token, now, String::new(), record, Some(true)));
        }
        let secret = self.secrets.secret(caller, key, &request, now)?;
        let token = token(request, &secret, now)?;
        if let Some((present, made_at)) = self.present_token(&token) {
            return Ok(created(&present, made_at, secret, self.record(), None));
        }
        let command = spine::Command::CreateToken(token.clone());
        let outcome = self.submit_or_plan(caller, &command.into(), mode).await?;
        let (record, made_at) = (outcome.record, outcome.time);
        Ok(created(&token, made_at, secret, record, None))
    }

    /// Returns the token with the same secret, if it exists.
    fn present_token(&self, token: &Token) -> Option<(Token, Instant)> {
        let state = self.ledger.view().read();
        let mut all = state.spine.tokens.iter();
        let is_same = |(present, _): &(&Token, Instant)| present.sha256 == token.sha256;
        all.find(is_same)
            .map(|(present, made_at)| (present.clone(), made_at))
    }

    pub(crate) async fn revoke_token(
        &self,
        caller: &Caller,
        name: ObjectName,
        mode: WriteMode,
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
        let body = ApplyAnswer {
            results: vec![change],
            record,
            dry_run: (mode == WriteMode::DryRun).then_some(true),
        };
        Ok(Answer::ok(record, body))
    }

    pub(crate) fn tokens(
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
        Ok(Answer::ok(record, body))
    }

    /// Submits or plans a command of the spine; a refusal becomes a problem.
    pub(crate) async fn submit_or_plan(
        &self,
        caller: &Caller,
        command: &Command,
        mode: WriteMode,
    ) -> Result<Outcome, Problem> {
        let outcome = match mode {
            WriteMode::Real => self.submit_one(caller, command.clone()).await?,
            WriteMode::DryRun => self.plan(command).0,
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

impl SecretCache {
    /// Returns the secret of an earlier request with the same key, or a new one.
    fn secret(
        &self,
        caller: &Caller,
        key: Option<BookingId>,
        request: &TokenRequest,
        now: Instant,
    ) -> Result<String, Problem> {
        let Some(key) = key else { return secret() };
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cached.retain(|one| now < one.at.after(KEYS_KEPT));
        if let Some(one) = cached
            .iter()
            .find(|one| one.by == caller.name && one.key == key)
        {
            if one.request == *request {
                return Ok(one.secret.clone());
            }
            let detail = format!("key `{key}` was used for another token before");
            return Err(Problem::new(Code::IdReused, detail));
        }
        let secret = secret()?;
        if cached.len() == SECRETS_MAX {
            cached.pop_front();
        }
        let (by, request) = (caller.name.clone(), request.clone());
        cached.push_back(CachedSecret {
            by,
            key,
            request,
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

fn token(request: TokenRequest, secret: &str, now: Instant) -> Result<Token, Problem> {
    let lifetime = request
        .lifetime()
        .map_err(|wrong| Problem::invalid(vec![FieldError::new("expires", wrong)]))?;
    let expires = lifetime.unwrap_or(EXPIRES_DEFAULT);
    Ok(Token {
        name: request.name,
        sha256: sha256(secret.as_bytes()),
        roles: request.roles.into_iter().collect(),
        tenants: request.tenants.into_iter().collect(),
        owners: request.owners.into_iter().collect(),
        expires: now.after(expires),
        created: None,
    })
}

fn secret() -> Result<String, Problem> {
    Ok(format!("{SECRET_PREFIX}{}", random_digits()?))
}

pub(crate) fn random_name(prefix: &str) -> Result<String, Problem> {
    Ok(format!("{prefix}-{}", random_digits()?))
}

fn random_digits() -> Result<String, Problem> {
    let mut bytes = [0_u8; HASH_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| {
        let detail = format!("the system gave no random bytes: {error}");
        Problem::new(Code::Internal, detail)
    })?;
    Ok(Hash(bytes).to_string())
}

fn shown(token: &Token, created: Instant) -> ApiToken {
    ApiToken {
        name: token.name.clone(),
        roles: token.roles.iter().copied().collect(),
        tenants: token.tenants.iter().cloned().collect(),
        owners: token.owners.iter().cloned().collect(),
        created_at: created,
        expires_at: token.expires,
    }
}
