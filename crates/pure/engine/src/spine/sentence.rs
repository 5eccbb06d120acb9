//! Sentences of the ledger itself, of nodes and of tokens.

use bursar_plane::{Node, Notice};
use bursar_units::words;
use bursar_units::{Amount, Instant, Label};

use super::Event;
use crate::token::{Role, Token};

/// Data of an event of the spine.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Data {
    /// Of `node.*`: its capacity, unless it left.
    Node(Option<Amount>),
    /// Of `token.*`: its roles and its end, unless it was revoked.
    Token(Option<(Vec<Role>, Instant)>),
    /// Of `ledger.*`, which have none.
    Ledger,
}

/// The notice of an event.
pub(super) fn notice(event: &Event) -> Notice<Data> {
    match event {
        Event::Genesis { ledger, .. } => {
            of_ledger("ledger.begun", format!("ledger {ledger} begun"))
        }
        Event::Level { n } => {
            let summary = format!("the records of level {} begin", words::number(*n));
            of_ledger("ledger.upgraded", summary)
        }
        Event::Resumed { .. } => {
            let summary = "a term began, every holder has its full ttl".to_owned();
            of_ledger("ledger.resumed", summary)
        }
        Event::KeyRotated { .. } => {
            let summary = "a new key signs checkpoints; an earlier key signs for 30 days more";
            of_ledger("ledger.rekeyed", summary.to_owned())
        }
        Event::Anchored { record, .. } => {
            let summary = format!("snapshot of record {} anchored", words::number(*record));
            of_ledger("ledger.anchored", summary)
        }
        Event::Pruned { below } => {
            let summary = format!("payloads of {} deleted", words::count(*below, "record"));
            of_ledger("ledger.pruned", summary)
        }
        Event::Restored {
            generation,
            tokens_ended,
            ..
        } => {
            let tokens = if *tokens_ended {
                ", all tokens ended"
            } else {
                ""
            };
            let generation = words::number(*generation);
            let summary = format!("ledger restored from a copy, generation {generation}{tokens}");
            of_ledger("ledger.restored", summary)
        }
        Event::TokenCreated(token) => token_created(token),
        Event::TokenRevoked { name } => {
            let summary = format!("token {name} revoked");
            let data = Data::Token(None);
            Notice::new("token.revoked", format!("token/{name}"), summary, data)
        }
        Event::NodeSet(node) => node_set(node),
        Event::NodeDropped { name } => {
            let summary = format!("node {name} left");
            let data = Data::Node(None);
            Notice::new("node.lost", format!("node/{name}"), summary, data)
        }
        Event::Keyed { key, .. } => Notice {
            stream: None,
            ..of_ledger("", format!("done once under key {key}"))
        },
    }
}

fn of_ledger(stream: &'static str, summary: String) -> Notice<Data> {
    Notice::new(stream, "ledger".to_owned(), summary, Data::Ledger)
}

/// A node that is new or changed: its record does not say which.
fn node_set(node: &Node) -> Notice<Data> {
    let (name, capacity) = (&node.name, node.capacity());
    let cordoned = if node.unschedulable { ", cordoned" } else { "" };
    let capacity_words = words::resources(&capacity);
    let summary = format!("node {name} declared: {capacity_words}{cordoned}");
    let data = Data::Node(Some(capacity));
    Notice::new("node.joined", format!("node/{name}"), summary, data)
}

fn token_created(token: &Token) -> Notice<Data> {
    let roles: Vec<Role> = token.roles.iter().copied().collect();
    let role_words: Vec<&str> = roles.iter().map(|role| role.word()).collect();
    let accounts = token.tenants.iter().chain(&token.owners);
    let accounts: Vec<&str> = accounts.map(Label::as_str).collect();
    let whose = if accounts.is_empty() {
        String::new()
    } else {
        format!(" for {}", accounts.join(", "))
    };
    let name = &token.name;
    let summary = format!("token {name} created: may {}{whose}", role_words.join(", "));
    let data = Data::Token(Some((roles, token.expires)));
    Notice::new("token.created", format!("token/{name}"), summary, data)
}
