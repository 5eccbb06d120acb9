//! Parser of server-sent events, as in the HTML standard.

#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(super) struct RawEvent {
    pub(super) id: Option<String>,
    pub(super) name: String,
    pub(super) data: String,
}

/// Maximum size of one event; events of the server have at most some kilobytes.
const EVENT_BYTES_MAX: usize = 1 << 20;

/// An event is longer than [`EVENT_BYTES_MAX`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct TooLong;

#[derive(Debug, Default)]
pub(super) struct Parser {
    line: Vec<u8>,
    /// The last line ended in a carriage return; a line feed after it belongs to the line end.
    after_return: bool,
    event: RawEvent,
    has_data: bool,
}

impl Parser {
    /// Adds bytes and returns the events that they complete.
    pub(super) fn push(&mut self, bytes: &[u8]) -> Result<Vec<RawEvent>, TooLong> {
        let mut events = Vec::new();
        for byte in bytes {
            let follows_return = std::mem::take(&mut self.after_return);
            match byte {
                b'\n' if follows_return => {}
                b'\n' | b'\r' => {
                    self.after_return = *byte == b'\r';
                    let line = std::mem::take(&mut self.line);
                    events.extend(self.end_line(&String::from_utf8_lossy(&line)));
                }
                _ => self.line.push(*byte),
            }
            if self.line.len() + self.event.data.len() > EVENT_BYTES_MAX {
                return Err(TooLong);
            }
        }
        Ok(events)
    }

    fn end_line(&mut self, line: &str) -> Option<RawEvent> {
        if line.is_empty() {
            let has_data = std::mem::take(&mut self.has_data);
            let event = std::mem::take(&mut self.event);
            return has_data.then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            "event" => value.clone_into(&mut self.event.name),
            "id" => self.event.id = Some(value.to_owned()),
            // Comments keep the stream open. Other fields are ignored.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test may panic")]

    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::{EVENT_BYTES_MAX, Parser, TooLong};

    const PAGE: &str = "id: 48212.1\nevent: run.cut\ndata: {\"a\":1,\ndata:  \"b\":2}\n\n";

    #[test]
    fn an_event_of_the_page_is_read() {
        let events = Parser::default().push(PAGE.as_bytes()).unwrap();
        assert_eq!(events.len(), 1);
        assert_eq!(events.first().unwrap().id.as_deref(), Some("48212.1"));
        assert_eq!(events.first().unwrap().name, "run.cut");
        assert_eq!(events.first().unwrap().data, "{\"a\":1,\n \"b\":2}");
    }

    #[test]
    fn comments_and_empty_events_say_nothing() {
        let events = Parser::default()
            .push(b": alive\n\nevent: x\n\n:\n\n")
            .unwrap();
        assert!(events.is_empty());
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let long = vec![b'a'; EVENT_BYTES_MAX + 1];
        assert_eq!(Parser::default().push(&long), Err(TooLong));
    }

    proptest! {
        #[test]
        fn where_the_bytes_are_cut_does_not_matter(
            text in "((id|event|data|)(: ?)?[a-c]{0,3}(\r\n|\n|\r)){0,20}\n\n",
            cuts in proptest::collection::vec(0_usize..200, 0..10),
        ) {
            let whole = Parser::default().push(text.as_bytes());
            let mut parser = Parser::default();
            let mut events = Vec::new();
            let mut rest = text.as_bytes();
            for cut in cuts {
                let (head, tail) = rest.split_at(cut.min(rest.len()));
                events.extend(parser.push(head).unwrap());
                rest = tail;
            }
            events.extend(parser.push(rest).unwrap());
            prop_assert_eq!(whole, Ok(events));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = Parser::default().push(&bytes);
        }
    }
}
