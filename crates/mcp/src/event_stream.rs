//! Incremental parsing of server-sent events, with a limit on the size of each event (HTML Living Standard, "Parsing an event
//! stream").

use std::collections::VecDeque;
use std::time::Duration;

/// The error for an event that is larger than allowed.
#[derive(Debug, PartialEq, Eq)]
pub struct EventTooLarge;

/// An incremental parser of one event stream. It returns the data of events, without their types because MCP and model providers
/// use only one type. An incomplete event at the end of the stream is discarded.
#[derive(Debug)]
pub struct EventReader {
    /// Maximum number of bytes of one event, including comments before it.
    max_bytes: usize,
    /// Number of bytes since the last complete event.
    pending: usize,
    /// The line being read.
    line: Vec<u8>,
    /// The data of the event being read.
    data: Option<Vec<u8>>,
    /// The id for the next complete event. It becomes `last_id` when the event is complete.
    id: Option<String>,
    /// The data of complete events that were not returned yet.
    events: VecDeque<Vec<u8>>,
    /// Whether the last byte was a carriage return. A line feed after it does not end another line.
    after_return: bool,
    at_start: bool,
    last_id: Option<String>,
    retry: Option<Duration>,
}

impl EventReader {
    /// Creates a parser for events of at most `max_bytes`.
    pub fn new(max_bytes: usize) -> Self {
        Self {
            max_bytes,
            pending: 0,
            line: Vec::new(),
            data: None,
            id: None,
            events: VecDeque::new(),
            after_return: false,
            at_start: true,
            last_id: None,
            retry: None,
        }
    }

    /// Creates a parser for the stream that continues this one after a reconnection.
    #[must_use]
    pub fn into_resumed(self) -> Self {
        Self {
            id: self.last_id.clone(),
            last_id: self.last_id,
            retry: self.retry,
            ..Self::new(self.max_bytes)
        }
    }

    /// Returns the id of the last complete event, for the header `Last-Event-ID`. An event without an id inherits the
    /// id of the event before.
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref()
    }

    /// Returns the delay before a reconnection that the server asked for, or `None` if it did not.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Parses the next bytes of the stream.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), EventTooLarge> {
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) {
            let ends_nothing = at == 0 && rest[0] == b'\n' && self.after_return;
            if !ends_nothing {
                self.extend_line(&rest[..at])?;
                let line = std::mem::take(&mut self.line);
                self.end_line(&line);
            }
            self.after_return = rest[at] == b'\r';
            rest = &rest[at + 1..];
        }
        if !rest.is_empty() {
            self.after_return = false;
            self.extend_line(rest)?;
        }
        Ok(())
    }

    /// Returns the data of the next complete event that has data.
    pub fn next_event(&mut self) -> Option<Vec<u8>> {
        self.events.pop_front()
    }

    fn extend_line(&mut self, part: &[u8]) -> Result<(), EventTooLarge> {
        self.pending += part.len();
        if self.pending > self.max_bytes {
            return Err(EventTooLarge);
        }
        self.line.extend_from_slice(part);
        Ok(())
    }

    fn end_line(&mut self, line: &[u8]) {
        let line = match line.strip_prefix(b"\xEF\xBB\xBF") {
            Some(rest) if self.at_start => rest,
            _ => line,
        };
        self.at_start = false;
        if line.is_empty() {
            self.pending = 0;
            self.last_id.clone_from(&self.id);
            self.events.extend(self.data.take());
            return;
        }
        let (field, value) = match line.iter().position(|&byte| byte == b':') {
            Some(at) => (&line[..at], &line[at + 1..]),
            None => (line, &[][..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match (field, std::str::from_utf8(value)) {
            (b"data", _) => match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => self.data = Some(value.to_vec()),
            },
            (b"id", Ok(id)) if !id.contains('\0') => {
                self.id = (!id.is_empty()).then(|| id.to_owned());
            }
            (b"retry", Ok(retry)) if retry.bytes().all(|byte| byte.is_ascii_digit()) => {
                self.retry = retry.parse().ok().map(Duration::from_millis);
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "\u{feff}: comment\r\nid: 7\r\nretry: 250\ndata: {\"a\":\rdata:1}\n\nevent: x\r\rdata\n\n\
                          unknown: y\nodd\ndata: é\r\n\r\nid: 8\n\nid: 9\ndata: unfinished";

    #[test]
    fn events_are_the_same_however_the_bytes_arrive() {
        for size in 1..=STREAM.len() {
            let mut reader = EventReader::new(1024);
            let mut events = Vec::new();
            for piece in STREAM.as_bytes().chunks(size) {
                reader.feed(piece).unwrap();
                events.extend(std::iter::from_fn(|| reader.next_event()));
            }
            let expected = ["{\"a\":\n1}", "", "é"].map(|data| data.as_bytes().to_vec());
            assert_eq!(events, expected, "pieces of {size}");
            assert_eq!(reader.last_id(), Some("8"), "9 is not whole");
            assert_eq!(reader.retry(), Some(Duration::from_millis(250)));
            let resumed = reader.into_resumed();
            assert_eq!(resumed.last_id(), Some("8"));
            assert!(resumed.line.is_empty() && resumed.data.is_none());
        }
    }

    #[test]
    fn an_endless_event_is_refused_at_the_limit() {
        for endless in [&b"dddd"[..], b"data: x\n", b": comment\n"] {
            let mut reader = EventReader::new(1000);
            assert!((0..2000).any(|_| reader.feed(endless) == Err(EventTooLarge)));
            assert!(reader.line.len() + reader.data.unwrap_or_default().len() <= 1000);
        }
        let mut many = EventReader::new(1000);
        for _ in 0..2000 {
            many.feed(b"data: x\n\n: alive\n\n").unwrap();
            assert_eq!(many.next_event(), Some(b"x".to_vec()));
        }
    }
}
