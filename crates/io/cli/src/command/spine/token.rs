//! `bursar token`: creates, lists and revokes tokens.

use bursar_client::api::cluster::ListBudgets;
use bursar_client::api::{Token, TokenRequest};
use bursar_client::client::Mode;
use bursar_engine::words;
use bursar_units::Label;
use serde_json::json;

use crate::command::{DRY_RUN, watch};
use crate::failure::Stop;
use crate::grammar::{Format, Noun, TokenVerb};
use crate::layout::{Column, REPORT_WORD, Shown, details};
use crate::list::{Filter, Listed};
use crate::session::Session;

pub(in crate::command) async fn run(
    session: &mut Session,
    noun: Noun<TokenVerb>,
) -> Result<(), Stop> {
    match noun.verb.unwrap_or(TokenVerb::List(noun.list)) {
        TokenVerb::Create {
            name,
            roles,
            tenants,
            owners,
            expires,
            dry_run,
        } => {
            let expires = expires.map(|expires| expires.to_string());
            let request = TokenRequest {
                name,
                roles,
                tenants,
                owners,
                expires,
            };
            create(session, &request, Mode::dry_run_if(dry_run)).await
        }
        TokenVerb::List(flags) => {
            let filter = Filter::read::<Token>(flags.filter.as_deref())?;
            let client = session.client().await?;
            let fetch = async || client.tokens().await;
            watch::list(session, &flags, &filter, fetch, &client).await
        }
        TokenVerb::Revoke { name, yes, dry_run } => {
            if !dry_run {
                session.confirm(yes, &format!("token {name} would stop working at once\n"))?;
            }
            let client = session.client().await?;
            let mode = Mode::dry_run_if(dry_run);
            let record = client.revoke_token(&name, mode).await?.record;
            let mut value = json!({"name": name, "revoked": !dry_run, "record": record});
            if let Some(fields) = value.as_object_mut().filter(|_| dry_run) {
                fields.insert("dryRun".to_owned(), true.into());
            }
            session.show(&value, &format!("token/{name}"), |_| {
                if dry_run {
                    return format!("token {name} would be revoked\n{DRY_RUN}");
                }
                format!("token {name} revoked (record {})\n", words::number(record))
            })
        }
    }
}

/// Prints only the secret to stdout, so that it can be redirected to a file. A dry run has none.
async fn create(session: &mut Session, request: &TokenRequest, mode: Mode) -> Result<(), Stop> {
    let client = session.client().await?;
    let key = session.new_id()?;
    let created = client.create_token(&key, request, mode).await;
    let created = created.map_err(|error| flags_named(error.into()))?;
    if matches!(session.common.output, Format::Table | Format::Wide) {
        let look = session.look();
        let token = &created.token;
        let mut lines = vec![("roles".to_owned(), roles(token, ", "))];
        if !token.tenants.is_empty() {
            lines.push(("tenants".to_owned(), names(&token.tenants, ", ")));
        }
        if !token.owners.is_empty() {
            lines.push(("owners".to_owned(), names(&token.owners, ", ")));
        }
        lines.push(("expires".to_owned(), look.moment(token.expires_at)));
        let (name, record) = (&token.name, words::number(created.record));
        let done = match mode {
            Mode::Do => format!("created (record {record}), its secret is shown only once"),
            Mode::DryRun => "would be created".to_owned(),
        };
        let lines = details(&lines, REPORT_WORD);
        session.aside(&format!("token {name} {done}\n{lines}"));
        for owner in &token.owners {
            let of_owner = ListBudgets {
                owner: Some(owner.clone()),
                ..ListBudgets::default()
            };
            // Who may create tokens sees all budgets; without an answer there is no note.
            let budgets = client.budgets(&of_owner).await;
            if budgets.is_ok_and(|budgets| budgets.items.is_empty()) {
                session.aside(&format!("note: no budget is of owner {owner}\n"));
            }
        }
    }
    let name = format!("token/{}", created.token.name);
    session.show(&created, &name, |_| match mode {
        Mode::Do => format!("{}\n", created.secret),
        Mode::DryRun => DRY_RUN.to_owned(),
    })
}

/// A refusal that names fields, with a hint that names the flags.
fn flags_named(stop: Stop) -> Stop {
    let Stop::Failed(mut failure) = stop else {
        return stop;
    };
    let errors = failure.problem.as_ref().map(|problem| &problem.errors);
    let mut errors = errors.into_iter().flatten();
    if errors.any(|error| matches!(error.path.as_str(), "tenants" | "owners")) {
        failure.hint = Some("name tenants with `--tenant`, owners with `--owner`".to_owned());
    }
    Stop::Failed(failure)
}

fn roles(token: &Token, separator: &str) -> String {
    let words: Vec<&str> = token.roles.iter().map(|role| role.word()).collect();
    words.join(separator)
}

fn names(labels: &[Label], separator: &str) -> String {
    let names: Vec<&str> = labels.iter().map(Label::as_str).collect();
    names.join(separator)
}

impl Listed for Token {
    const KIND: &'static str = "token";
    const NONE: &'static str = "no tokens";
    const FIRST: &'static str = "`bursar token create ci --role use --tenant acme` makes one";

    fn columns() -> &'static [Column<Self>] {
        const COLUMNS: &[Column<Token>] = &[
            Column::of_text("TOKEN", Shown::Always, |row, _| row.name.to_string()),
            Column::of_text("ROLES", Shown::Always, |row, _| roles(row, ",")),
            Column::of_text("TENANTS", Shown::Always, |row, _| names(&row.tenants, ",")),
            Column::of_text("OWNERS", Shown::Always, |row, _| names(&row.owners, ",")),
            Column::of_text("EXPIRES", Shown::Always, |row, look| {
                look.moment(row.expires_at)
            }),
            Column::of_text("CREATED", Shown::Wide, |row, look| {
                look.absolute(row.created_at)
            }),
        ];
        COLUMNS
    }

    fn name(&self) -> String {
        self.name.to_string()
    }
}
