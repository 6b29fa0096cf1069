//! Server-sent events, read piece by piece with a limit on each.

/// An event is larger than allowed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

/// One event, with what it says itself. Its type is not told: MCP has only one.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// For `Last-Event-ID`.
    pub id: Option<String>,
    /// How long to wait before a reconnection, in milliseconds.
    pub retry: Option<u64>,
    /// Empty also where there is none.
    pub data: Vec<u8>,
}

/// Reads a stream of events. `last_id` and `retry` are what a reconnection goes by.
#[derive(Debug)]
pub(super) struct Parser {
    max_bytes: usize,
    /// The line being read.
    line: Vec<u8>,
    event: Event,
    has_data: bool,
    /// The last byte was a carriage return, and a line feed after it ends no second line.
    after_return: bool,
    at_start: bool,
    /// The id of the last event that had one.
    pub(super) last_id: Option<String>,
    /// How long to wait before a reconnection, in milliseconds.
    pub(super) retry: Option<u64>,
}

impl Parser {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            line: Vec::new(),
            event: Event::default(),
            has_data: false,
            after_return: false,
            at_start: true,
            last_id: None,
            retry: None,
        }
    }

    /// A parser of the stream that goes on where this one ended.
    pub(super) fn resumed(self) -> Self {
        Self {
            last_id: self.last_id,
            retry: self.retry,
            ..Self::new(self.max_bytes)
        }
    }

    /// Reads on, and gives the events that end in `bytes`.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<Event>, TooLarge> {
        let mut events = Vec::new();
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let ends_nothing = at == 0 && rest[0] == b'\n' && self.after_return;
            if !ends_nothing {
                self.take(&rest[..at])?;
                let line = std::mem::take(&mut self.line);
                events.extend(self.end_line(&line));
            }
            self.after_return = rest[at] == b'\r';
            rest = &rest[at + 1..];
        }
        if !rest.is_empty() {
            self.after_return = false;
            self.take(rest)?;
        }
        Ok(events)
    }

    fn take(&mut self, part: &[u8]) -> Result<(), TooLarge> {
        if self.line.len() + self.event.data.len() + part.len() > self.max_bytes {
            return Err(TooLarge);
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    fn end_line(&mut self, line: &[u8]) -> Option<Event> {
        let line = match line.strip_prefix(b"\xEF\xBB\xBF") {
            Some(rest) if self.at_start => rest,
            _ => line,
        };
        self.at_start = false;
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            let has_data = std::mem::take(&mut self.has_data);
            return (has_data || event != Event::default()).then_some(event);
        }
        let (field, value) = match line.iter().position(|&byte| byte == b':') {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"data" => {
                if self.has_data {
                    self.event.data.push(b'\n');
                }
                self.has_data = true;
                self.event.data.extend_from_slice(value);
            }
            b"id" if !value.contains(&0) => {
                self.event.id = String::from_utf8(value.to_vec()).ok();
                self.last_id.clone_from(&self.event.id);
            }
            b"retry" => {
                self.event.retry = std::str::from_utf8(value)
                    .ok()
                    .and_then(|value| value.parse().ok());
                self.retry = self.event.retry;
            }
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "\u{feff}: comment\r\nid: 7\r\nretry: 250\ndata: {\"a\":\rdata:1}\n\nevent: x\r\rdata\n\n\
                          data: é\r\n\r\nid: 8\n\ndata: unfinished";

    fn event(id: Option<&str>, retry: Option<u64>, data: &str) -> Event {
        Event {
            id: id.map(str::to_owned),
            retry,
            data: data.into(),
        }
    }

    #[test]
    fn events_are_the_same_however_the_bytes_arrive() {
        for size in 1..=STREAM.len() {
            let mut parser = Parser::new(1024);
            let mut events = Vec::new();
            for piece in STREAM.as_bytes().chunks(size) {
                events.extend(parser.feed(piece).unwrap());
            }
            let expected = [
                event(Some("7"), Some(250), "{\"a\":\n1}"),
                event(None, None, ""),
                event(None, None, "é"),
                event(Some("8"), None, ""),
            ];
            assert_eq!(events, expected, "pieces of {size}");
            assert_eq!(parser.last_id.as_deref(), Some("8"));
            assert_eq!(parser.retry, Some(250));
        }
    }

    #[test]
    fn an_endless_event_is_refused_at_the_limit() {
        let mut one_line = Parser::new(1000);
        assert!((0..2000).any(|_| one_line.feed(b"dddd") == Err(TooLarge)));
        assert!(one_line.line.len() <= 1000);

        let mut many_lines = Parser::new(1000);
        assert!((0..2000).any(|_| many_lines.feed(b"data: x\n") == Err(TooLarge)));
        assert!(many_lines.event.data.len() <= 1000);
    }
}
