//! `bursar booking logs`: stdout and stderr of a detached execution, each to its own stream.
//!
//! Files and pipes get the bytes as they are. A terminal would obey control characters, so it gets
//! text with hidden characters escaped.

use bursar_client::api::LogStream;
use bursar_client::client::{Error, Follow, Logs};
use bursar_units::hidden::escape;

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
        // A single stream is the result of the command, so it goes to stdout.
        Some(stream) => (Some(open(stream).await?), None),
        None => (
            Some(open(LogStream::Stdout).await?),
            Some(open(LogStream::Stderr).await?),
        ),
    };
    let (mut data_text, mut words_text) = (
        session.terminal.data.then(Text::default),
        session.terminal.words.then(Text::default),
    );
    while data.is_some() || words.is_some() {
        let (stream, bytes) = tokio::select! {
            biased;
            bytes = next(&mut data), if data.is_some() => (Stream::Data, bytes?),
            bytes = next(&mut words), if words.is_some() => (Stream::Words, bytes?),
        };
        let text = match stream {
            Stream::Data => &mut data_text,
            Stream::Words => &mut words_text,
        };
        let bytes = match text {
            Some(text) => text.next(bytes).into_bytes(),
            None => bytes.unwrap_or_default(),
        };
        session.console.raw(stream, &bytes)?;
    }
    Ok(())
}

/// Conversion of a byte stream to text for a terminal.
#[derive(Default)]
struct Text {
    /// First bytes of an incomplete character.
    begun: Vec<u8>,
}

impl Text {
    /// The next piece. Hidden characters except line feed and tab are escaped, and U+FFFD replaces
    /// bytes that are not UTF-8. `None` ends the stream.
    fn next(&mut self, bytes: Option<Vec<u8>>) -> String {
        let is_end = bytes.is_none();
        let mut all = std::mem::take(&mut self.begun);
        all.extend(bytes.unwrap_or_default());
        let mut text = String::with_capacity(all.len());
        let mut chunks = all.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            text.push_str(&escape(chunk.valid(), &['\n', '\t']));
            let invalid = chunk.invalid();
            let may_go_on = !is_end
                && chunks.peek().is_none()
                && str::from_utf8(invalid).is_err_and(|error| error.error_len().is_none());
            if may_go_on {
                self.begun = invalid.to_vec();
            } else if !invalid.is_empty() {
                text.push(char::REPLACEMENT_CHARACTER);
            }
        }
        text
    }
}

/// The next bytes; closes the stream at its end.
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

#[cfg(test)]
mod tests {
    use super::Text;

    #[test]
    fn a_character_in_two_pieces_is_joined_and_invalid_bytes_are_replaced() {
        let mut text = Text::default();
        let mut shown = String::new();
        for piece in [
            b"a\xe2\x80".as_slice(),
            b"\xaeb\xff\xe2",
            b"\x82\xac\t\n\xf0\x9f",
        ] {
            shown += &text.next(Some(piece.to_vec()));
        }
        assert_eq!(shown, "a\\u{202e}b\u{fffd}€\t\n");
        assert_eq!(text.next(None), "\u{fffd}");
    }
}
