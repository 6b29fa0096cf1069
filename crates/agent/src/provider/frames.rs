//! Splits the body of an answer into frames: server-sent events, or consecutive JSON values. The first byte determines the
//! format, because some servers answer a streaming request with a single document, and some send a wrong content type.

use bytes::{Buf, Bytes};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use wardgate_mcp::event_stream::EventReader;

use crate::model::ModelError;

/// The bytes of an answer as they arrive. It ends after its first error.
pub(super) type ByteStream = BoxStream<'static, Result<Bytes, ModelError>>;

/// Maximum size of an event or a JSON value, in bytes.
const MAX_FRAME_BYTES: usize = 4 << 20;

pub(super) enum Frames {
    Events(Events),
    Values(Values),
}

impl Frames {
    /// Waits for the first byte and determines the format.
    pub(super) async fn open(mut body: ByteStream) -> Result<Self, ModelError> {
        let mut head = Vec::new();
        loop {
            match kind_of(&head) {
                Some(FrameKind::Events) => {
                    let body = with_head(head, body);
                    return Ok(Self::Events(Events::new(body, MAX_FRAME_BYTES)));
                }
                Some(FrameKind::Values) => {
                    let body = with_head(head, body);
                    return Ok(Self::Values(Values::new(body, MAX_FRAME_BYTES)));
                }
                Some(FrameKind::Page) => return Err(ModelError::Unreadable),
                None if head.len() > MAX_FRAME_BYTES => return Err(ModelError::TooLarge),
                None => {}
            }
            match body.next().await {
                Some(bytes) => head.extend_from_slice(&bytes?),
                None => return Err(ModelError::Cut),
            }
        }
    }

    /// Returns the text of the next frame, or `None` when the body has ended regularly.
    pub(super) async fn next(&mut self) -> Result<Option<String>, ModelError> {
        match self {
            Self::Events(events) => events.next().await,
            Self::Values(values) => values.next().await,
        }
    }
}

enum FrameKind {
    Events,
    Values,
    /// An HTML page of a proxy or of a wrong address.
    Page,
}

fn kind_of(head: &[u8]) -> Option<FrameKind> {
    match start(head).first()? {
        b'{' | b'[' => Some(FrameKind::Values),
        b'<' => Some(FrameKind::Page),
        // These may be the first bytes of a byte order mark.
        0xEF if start(head).len() < 3 => None,
        _ => Some(FrameKind::Events),
    }
}

/// Returns `head` without a leading byte order mark and white space.
fn start(head: &[u8]) -> &[u8] {
    head.strip_prefix(b"\xEF\xBB\xBF")
        .unwrap_or(head)
        .trim_ascii_start()
}

fn with_head(head: Vec<u8>, body: ByteStream) -> ByteStream {
    let skipped = head.len() - start(&head).len();
    let mut head = Bytes::from(head);
    head.advance(skipped);
    stream::once(async { Ok(head) }).chain(body).boxed()
}

/// A reader of server-sent events. It returns only their data, because all supported APIs repeat the event name in the data.
pub(super) struct Events {
    body: ByteStream,
    events: EventReader,
}

impl Events {
    fn new(body: ByteStream, max_bytes: usize) -> Self {
        // A last event without its terminating empty line is accepted; its content shows whether it is complete.
        let end = stream::once(async { Ok(Bytes::from_static(b"\n\n")) });
        Self {
            body: body.chain(end).boxed(),
            events: EventReader::new(max_bytes),
        }
    }

    async fn next(&mut self) -> Result<Option<String>, ModelError> {
        loop {
            if let Some(data) = self.events.next_event() {
                let text = String::from_utf8(data).map_err(|_| ModelError::Unreadable)?;
                return Ok(Some(text));
            }
            let Some(bytes) = self.body.try_next().await? else {
                return Ok(None);
            };
            let fed = self.events.feed(&bytes);
            fed.map_err(|_| ModelError::TooLarge)?;
        }
    }
}

/// A reader of JSON objects or arrays: a single document, or one value per line.
pub(super) struct Values {
    body: ByteStream,
    /// Bytes that have arrived but have not been read yet.
    rest: Bytes,
    /// The bytes of the value that is being read.
    value: Vec<u8>,
    depth: usize,
    in_text: bool,
    escaped: bool,
    max_bytes: usize,
}

impl Values {
    fn new(body: ByteStream, max_bytes: usize) -> Self {
        Self {
            body,
            rest: Bytes::new(),
            value: Vec::new(),
            depth: 0,
            in_text: false,
            escaped: false,
            max_bytes,
        }
    }

    async fn next(&mut self) -> Result<Option<String>, ModelError> {
        loop {
            while self.rest.has_remaining() {
                let byte = self.rest.get_u8();
                if self.ends_value(byte)? {
                    let value = std::mem::take(&mut self.value);
                    let text = String::from_utf8(value).map_err(|_| ModelError::Unreadable)?;
                    return Ok(Some(text));
                }
            }
            match self.body.next().await {
                Some(bytes) => self.rest = bytes?,
                None if self.depth == 0 => return Ok(None),
                None => return Err(ModelError::Cut),
            }
        }
    }

    fn ends_value(&mut self, byte: u8) -> Result<bool, ModelError> {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' if self.in_text => self.escaped = true,
            b'"' => self.in_text = !self.in_text,
            _ if self.in_text => {}
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => {
                self.depth = self.depth.checked_sub(1).ok_or(ModelError::Unreadable)?;
                self.value.push(byte);
                return Ok(self.depth == 0);
            }
            _ => {}
        }
        if self.depth == 0 {
            return if byte.is_ascii_whitespace() {
                Ok(false)
            } else {
                Err(ModelError::Unreadable)
            };
        }
        if self.value.len() >= self.max_bytes {
            return Err(ModelError::TooLarge);
        }
        self.value.push(byte);
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(pieces: &[&[u8]]) -> ByteStream {
        let pieces: Vec<_> = pieces
            .iter()
            .map(|piece| Ok(Bytes::copy_from_slice(piece)))
            .collect();
        stream::iter(pieces).boxed()
    }

    async fn read_frames(body: ByteStream) -> (Vec<String>, Option<ModelError>) {
        let mut texts = Vec::new();
        let mut frames = match Frames::open(body).await {
            Ok(frames) => frames,
            Err(error) => return (texts, Some(error)),
        };
        loop {
            match frames.next().await {
                Ok(Some(text)) => texts.push(text),
                Ok(None) => return (texts, None),
                Err(error) => return (texts, Some(error)),
            }
        }
    }

    async fn assert_read(bytes: &[u8], expected: &[&str], error: Option<ModelError>) {
        for size in 1..=bytes.len() {
            let pieces: Vec<_> = bytes.chunks(size).collect();
            let (texts, failed) = read_frames(body(&pieces)).await;
            assert_eq!(texts, expected, "pieces of {size}");
            assert_eq!(failed, error, "pieces of {size}");
        }
    }

    #[tokio::test]
    async fn the_last_event_may_lack_its_empty_line() {
        let bytes = "\u{feff}: keep-alive\r\n\r\ndata: é\n\ndata: [DONE]".as_bytes();
        assert_read(bytes, &["é", "[DONE]"], None).await;
    }

    #[tokio::test]
    async fn json_is_read_by_the_line_and_as_one_document() {
        let lines = "\u{feff}\n{\"a\":\"}\\\"é\"}\r\n{\"b\":[{}]}\n".as_bytes();
        assert_read(lines, &["{\"a\":\"}\\\"é\"}", "{\"b\":[{}]}"], None).await;
        let document = b" {\n \"a\": {\n }\n}\n";
        assert_read(document, &["{\n \"a\": {\n }\n}"], None).await;
    }

    #[tokio::test]
    async fn what_is_cut_or_no_answer_at_all_is_an_error() {
        assert_read(b"{\"a\":1}{\"b\"", &["{\"a\":1}"], Some(ModelError::Cut)).await;
        assert_read(b"{} x", &["{}"], Some(ModelError::Unreadable)).await;
        assert_read(b"<html>", &[], Some(ModelError::Unreadable)).await;
        assert_read(b" \n", &[], Some(ModelError::Cut)).await;
        assert_eq!(
            read_frames(body(&[])).await,
            (vec![], Some(ModelError::Cut))
        );
        assert_read(b"data: \xff\n\n", &[], Some(ModelError::Unreadable)).await;
    }

    #[tokio::test]
    async fn an_endless_frame_is_refused_at_the_limit() {
        let endless =
            |bytes: &'static [u8]| stream::repeat_with(move || Ok(Bytes::from_static(bytes)));
        let mut events = Events::new(endless(b"data: x\n").boxed(), 1_000);
        assert_eq!(events.next().await, Err(ModelError::TooLarge));
        let body = with_head(b"{".to_vec(), endless(b"\"x\",").boxed());
        let mut values = Values::new(body, 1_000);
        assert_eq!(values.next().await, Err(ModelError::TooLarge));
    }
}
