//! The real server on loopback, with clients on the same cores. Every request has a token, is durable
//! when answered, and its answer is read completely.

pub(super) mod client;
pub(super) mod server;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bursar_engine::spine::Command;
use bursar_engine::token::{Role, Token};
use bursar_journal::hash::sha256;
use bursar_units::{Instant as Moment, Millis, ObjectName};

use super::Scale;
use super::table::per_second;
use super::usage::Usage;
use super::world::{Ids, TENANT, World, label, near};
use client::Connection;
use server::Server;

#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) connections: usize,
    /// Operations per request.
    pub(super) batch: usize,
}

pub(super) const UNBATCHED: Shape = Shape {
    connections: 64,
    batch: 1,
};
/// As many outstanding operations as the ledger accepts from one caller: 1,024.
pub(super) const BATCHED: Shape = Shape {
    connections: 8,
    batch: 128,
};

pub(super) const SECRET: &str = "bursar_0123456789abcdef0123456789abcdef";

pub(super) struct Measurement {
    /// Operations; if unbatched, also requests.
    pub(super) per_second: u64,
    pub(super) near: String,
}

/// Serves a new ledger and books over HTTP; the warm-up is not counted.
pub(super) fn measure(directory: &Path, scale: Scale, shape: Shape) -> anyhow::Result<Measurement> {
    let world = World::begin(directory)?;
    world.submit(Command::CreateToken(token(world.ledger().now())?))?;
    let server = Server::start(&world)?;
    let clients = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start a runtime")?;
    let ids = Arc::new(Ids::new(8));
    let run = |time| clients.block_on(book(server.address(), &ids, shape, time));
    run(scale.warm_up)?;
    let (usage, commits) = (Usage::start(), world.commits.so_far());
    let operations = run(scale.measured)?;
    let (used, committed) = (usage.used(), world.commits.so_far().since(commits));
    server.stop()?;
    world.stop()?;
    Ok(Measurement {
        per_second: per_second(operations, used.took),
        near: near(&used, committed),
    })
}

/// Runs all connections on this thread; each reserves and releases until the time is over.
async fn book(address: SocketAddr, ids: &Ids, shape: Shape, time: Duration) -> anyhow::Result<u64> {
    let end = Instant::now() + time;
    let all = (0..shape.connections).map(|_| async move {
        let mut connection = Connection::open(address, SECRET).await?;
        let mut operations = 0;
        while Instant::now() < end {
            operations += match shape.batch {
                1 => connection.pair(ids).await?,
                batch => connection.batches(ids, batch).await?,
            };
        }
        anyhow::Ok(operations)
    });
    let operations: Vec<u64> = futures_util::future::try_join_all(all).await?;
    Ok(operations.into_iter().sum())
}

/// A token of an operator.
pub(super) fn operator(now: Moment) -> anyhow::Result<Token> {
    Ok(Token {
        roles: [Role::Operate].into(),
        ..token(now)?
    })
}

fn token(now: Moment) -> anyhow::Result<Token> {
    Ok(Token {
        name: ObjectName::new("bench")?,
        sha256: sha256(SECRET.as_bytes()),
        roles: [Role::Use].into(),
        tenants: [label(TENANT)?].into(),
        owners: [].into(),
        expires: now.after(Millis::from_hours(1)),
        created: None,
    })
}
