//! `bursar booking logs`: what a detached execution wrote, each stream to the one of its name.

use bursar_client::api::LogStream;
use bursar_client::client::{Error, Follow, Logs};

use crate::console::Stream;
use crate::failure::{Failure, Stop};
use crate::grammar::LogsArguments;
use crate::session::Session;

pub(super) async fn run(session: &mut Session, arguments: &LogsArguments) -> Result<(), Stop> {
    if arguments.follow && session.is_virtual() {
        return Err(Failure::usage("a scenario has no end to follow: leave out `-f`").into());
    }
    let client = session.client().await?;
    let follow = if arguments.follow {
        Follow::UntilEnded
    } else {
        Follow::Now
    };
    let open = async |stream| client.logs(&arguments.id, stream, follow).await;
    let (mut data, mut words) = match arguments.stream {
        // Whoever asks for one of them wants it as a result.
        Some(stream) => (Some(open(stream).await?), None),
        None => (
            Some(open(LogStream::Stdout).await?),
            Some(open(LogStream::Stderr).await?),
        ),
    };
    while data.is_some() || words.is_some() {
        let (stream, bytes) = tokio::select! {
            biased;
            bytes = next(&mut data), if data.is_some() => (Stream::Data, bytes?),
            bytes = next(&mut words), if words.is_some() => (Stream::Words, bytes?),
        };
        if let Some(bytes) = bytes {
            session.console.raw(stream, &bytes)?;
        }
    }
    Ok(())
}

/// The next bytes; at the end of a stream there is none, and it is put away.
async fn next(logs: &mut Option<Logs>) -> Result<Option<Vec<u8>>, Error> {
    let Some(open) = logs else {
        return Ok(None);
    };
    let bytes = open.chunk().await?;
    if bytes.is_none() {
        *logs = None;
    }
    Ok(bytes.map(Into::into))
}
