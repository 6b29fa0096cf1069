//! Tracking of HTTP/1 message boundaries, and detection of ambiguous framing (RFC 9112 §2.2, §6.3).
//!
//! hyper is lenient in cases that a proxy in front of it may interpret differently: a message with two lengths, an
//! unsupported transfer coding, a line that ends without CR. This module checks only the framing; hyper parses
//! everything else.

use super::refusals::FramingFault;

/// Maximum length of a message head that is checked, in bytes. hyper refuses longer heads.
pub(super) const MAX_HEAD: usize = 64 * 1024;
/// Maximum number of hexadecimal digits of a chunk size: one less than fit into a `u64`.
const MAX_SIZE_DIGITS: u32 = 15;

/// A tracker of the messages that a client sends.
#[derive(Debug, Default)]
pub(super) struct MessageFollower(MessagePart);

/// The part of a message that the tracker has reached.
#[derive(Debug)]
enum MessagePart {
    Head(HeadProgress),
    /// A body with this number of bytes left.
    Body(u64),
    Chunked(ChunkProgress),
    /// The head is too long. hyper refuses it and reads no further.
    TooLong,
}

impl Default for MessagePart {
    fn default() -> Self {
        Self::Head(HeadProgress::default())
    }
}

/// The parsed lines of a head.
#[derive(Debug, Default)]
struct HeadProgress {
    /// The length of the complete lines, in bytes.
    read: usize,
    /// Whether the request line was read.
    has_begun: bool,
    content_length: Option<u64>,
    transfer_encoding: Option<TransferEncoding>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TransferEncoding {
    Chunked,
    Other,
}

/// The position in a chunked body (RFC 9112 §7.1).
#[derive(Debug)]
enum ChunkProgress {
    Size {
        digits: u32,
        size: u64,
        rest: SizeRest,
    },
    Data(u64),
    /// The line break after the data of a chunk.
    DataEnd {
        has_cr: bool,
    },
    /// The trailer fields, with the length of the current line and whether its last byte was CR.
    Trailers {
        bytes: usize,
        has_cr: bool,
    },
}

/// What follows the digits of a chunk size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SizeRest {
    Digits,
    Extension,
    Cr,
}

/// A message that is refused because of its framing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RefusedMessage {
    pub(super) fault: FramingFault,
    /// The number of bytes before the message, which are valid.
    pub(super) at: usize,
}

impl MessageFollower {
    /// Returns how many of `bytes` may be passed on: all except an incomplete head at the end. The caller passes these
    /// remaining bytes again, together with the next ones.
    pub(super) fn follow(&mut self, bytes: &[u8]) -> Result<usize, RefusedMessage> {
        let mut at = 0;
        loop {
            let rest = bytes.get(at..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(at);
            }
            let refused = |fault| RefusedMessage { fault, at };
            let next = match &mut self.0 {
                MessagePart::TooLong => return Ok(bytes.len()),
                MessagePart::Head(head) => match head.read_lines(rest).map_err(refused)? {
                    Some(part) => {
                        at += head.read;
                        part
                    }
                    None if rest.len() > MAX_HEAD => MessagePart::TooLong,
                    None => return Ok(at),
                },
                MessagePart::Body(left) => {
                    let taken = usize::try_from(*left).unwrap_or(rest.len()).min(rest.len());
                    *left -= taken as u64;
                    at += taken;
                    if *left > 0 {
                        return Ok(at);
                    }
                    MessagePart::default()
                }
                MessagePart::Chunked(chunk) => {
                    let (taken, is_whole) = chunk.read_part(rest).map_err(refused)?;
                    at += taken;
                    if !is_whole {
                        return Ok(at);
                    }
                    MessagePart::default()
                }
            };
            self.0 = next;
        }
    }
}

impl HeadProgress {
    /// Reads the complete lines. Returns the part that follows the head once the head is complete.
    fn read_lines(&mut self, bytes: &[u8]) -> Result<Option<MessagePart>, FramingFault> {
        while let Some(rest) = bytes.get(self.read..)
            && let Some(end) = rest.iter().position(|byte| *byte == b'\n')
        {
            let line = rest.get(..end).unwrap_or_default();
            let line = line.strip_suffix(b"\r").ok_or(FramingFault::BareLineFeed)?;
            self.read += end + 1;
            match (line, self.has_begun) {
                // Empty lines before a request are ignored (RFC 9112 §2.2).
                ([], false) => {}
                ([], true) => return self.body().map(Some),
                (_, false) => self.has_begun = true,
                (line, true) => self.read_field(line)?,
            }
        }
        Ok(None)
    }

    fn read_field(&mut self, line: &[u8]) -> Result<(), FramingFault> {
        let Some(colon) = line.iter().position(|byte| *byte == b':') else {
            // hyper refuses such a line.
            return Ok(());
        };
        let (name, value) = line.split_at(colon);
        let value = value.get(1..).unwrap_or_default().trim_ascii();
        if name.eq_ignore_ascii_case(b"content-length") {
            let length = decimal(value).ok_or(FramingFault::ContentLength)?;
            if self.content_length.replace(length).is_some() {
                return Err(FramingFault::ContentLength);
            }
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let coding = if value.eq_ignore_ascii_case(b"chunked") {
                TransferEncoding::Chunked
            } else {
                TransferEncoding::Other
            };
            let is_second = self.transfer_encoding.is_some();
            self.transfer_encoding = Some(if is_second {
                TransferEncoding::Other
            } else {
                coding
            });
        }
        Ok(())
    }

    fn body(&self) -> Result<MessagePart, FramingFault> {
        match (self.content_length, self.transfer_encoding) {
            (Some(_), Some(_)) => Err(FramingFault::TwoLengths),
            (None, Some(TransferEncoding::Other)) => Err(FramingFault::TransferEncoding),
            (None, Some(TransferEncoding::Chunked)) => {
                Ok(MessagePart::Chunked(ChunkProgress::first()))
            }
            (Some(length), None) if length > 0 => Ok(MessagePart::Body(length)),
            (_, None) => Ok(MessagePart::default()),
        }
    }
}

impl ChunkProgress {
    fn first() -> Self {
        Self::Size {
            digits: 0,
            size: 0,
            rest: SizeRest::Digits,
        }
    }

    /// Reads part of a chunked body. Returns the number of bytes read, and whether they end the body.
    fn read_part(&mut self, bytes: &[u8]) -> Result<(usize, bool), FramingFault> {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..)
            && let Some(first) = rest.first()
        {
            if let Self::Data(left) = self {
                let taken = usize::try_from(*left).unwrap_or(rest.len()).min(rest.len());
                *left -= taken as u64;
                at += taken;
                if *left == 0 {
                    *self = Self::DataEnd { has_cr: false };
                }
                continue;
            }
            at += 1;
            if self.read_byte(*first)? {
                return Ok((at, true));
            }
        }
        Ok((at, false))
    }

    /// Reads a byte that is not part of the data. Returns whether it ends the body.
    fn read_byte(&mut self, byte: u8) -> Result<bool, FramingFault> {
        match self {
            Self::Size { digits, size, rest } => match (*rest, byte) {
                (SizeRest::Digits, _) if byte.is_ascii_hexdigit() => {
                    if *digits == MAX_SIZE_DIGITS {
                        return Err(FramingFault::Chunk);
                    }
                    *digits += 1;
                    let digit = char::from(byte).to_digit(16).unwrap_or_default();
                    *size = *size * 16 + u64::from(digit);
                }
                (SizeRest::Digits | SizeRest::Extension, b'\r') if *digits > 0 => {
                    *rest = SizeRest::Cr;
                }
                (SizeRest::Cr, b'\n') => {
                    *self = match *size {
                        0 => Self::Trailers {
                            bytes: 0,
                            has_cr: false,
                        },
                        size => Self::Data(size),
                    };
                }
                (_, b'\n') => return Err(FramingFault::BareLineFeed),
                (SizeRest::Digits, b';' | b' ' | b'\t') if *digits > 0 => {
                    *rest = SizeRest::Extension;
                }
                (SizeRest::Extension, _) => {}
                _ => return Err(FramingFault::Chunk),
            },
            Self::DataEnd { has_cr } => match (*has_cr, byte) {
                (false, b'\r') => *has_cr = true,
                (true, b'\n') => *self = Self::first(),
                _ => return Err(FramingFault::Chunk),
            },
            Self::Trailers { bytes, has_cr } => match (byte, *has_cr) {
                (b'\n', true) if *bytes == 1 => return Ok(true),
                (b'\n', true) => (*bytes, *has_cr) = (0, false),
                (b'\n', false) => return Err(FramingFault::BareLineFeed),
                (byte, _) => (*bytes, *has_cr) = (bytes.saturating_add(1), byte == b'\r'),
            },
            // `read_part` handles the data in blocks.
            Self::Data(_) => {}
        }
        Ok(false)
    }
}

/// Parses a number that consists only of decimal digits.
fn decimal(text: &[u8]) -> Option<u64> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn follow(text: &str) -> Result<usize, RefusedMessage> {
        MessageFollower::default().follow(text.as_bytes())
    }

    /// Returns the number of bytes that are passed on if the text arrives in pieces, as from the stream.
    fn follow_in_pieces(text: &str, piece: usize) -> Result<usize, FramingFault> {
        let mut follower = MessageFollower::default();
        let (mut passed, mut come) = (0, 0);
        for piece in text.as_bytes().chunks(piece) {
            come += piece.len();
            let held = &text.as_bytes()[passed..come];
            passed += follower.follow(held).map_err(|refused| refused.fault)?;
        }
        Ok(passed)
    }

    const POST: &str = "POST /mcp HTTP/1.1\r\nHost: a\r\n";

    #[test]
    fn messages_that_can_be_read_in_one_way_pass_whole_in_any_pieces() {
        for bodies in [
            "\r\n".to_owned(),
            "Content-Length: 0\r\n\r\n".to_owned(),
            "content-length:  5 \r\n\r\nhello".to_owned(),
            "Transfer-Encoding: Chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n".to_owned(),
            "Transfer-Encoding: chunked\r\n\r\n5;a=\"b\"\r\nhel\nl\r\nA \r\n0123456789\r\n0\r\nExpires: never\r\nA: b\r\n\r\n"
                .to_owned(),
        ] {
            // A second message follows the first one after an empty line.
            let text = format!("{POST}{bodies}\r\n{POST}{bodies}");
            for piece in 1..=text.len() {
                let passed = follow_in_pieces(&text, piece);
                assert_eq!(passed, Ok(text.len()), "{text:?} by {piece}");
            }
        }
    }

    #[test]
    fn the_beginning_of_a_head_is_held_back() {
        assert_eq!(follow(POST), Ok(0));
        let first = format!("{POST}Content-Length: 2\r\n\r\nab");
        assert_eq!(follow(&format!("{first}{POST}")), Ok(first.len()));
    }

    #[test]
    fn ambiguous_messages_are_refused_in_any_pieces_even_behind_a_good_one() {
        for (fields, fault) in [
            (
                "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                FramingFault::TwoLengths,
            ),
            (
                "Transfer-Encoding: chunked\r\ncontent-length: 3\r\n\r\n",
                FramingFault::TwoLengths,
            ),
            (
                "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
                FramingFault::TransferEncoding,
            ),
            (
                "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n",
                FramingFault::TransferEncoding,
            ),
            (
                "Transfer-Encoding: identity\r\n\r\n",
                FramingFault::TransferEncoding,
            ),
            (
                "Transfer-Encoding: chunked, chunked\r\n\r\n",
                FramingFault::TransferEncoding,
            ),
            ("Transfer-Encoding:\r\n\r\n", FramingFault::TransferEncoding),
            (
                "Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc",
                FramingFault::ContentLength,
            ),
            (
                "Content-Length: 3, 3\r\n\r\nabc",
                FramingFault::ContentLength,
            ),
            ("Content-Length: +3\r\n\r\nabc", FramingFault::ContentLength),
            (
                "Content-Length: 99999999999999999999\r\n\r\n",
                FramingFault::ContentLength,
            ),
            ("A: b\n\r\n", FramingFault::BareLineFeed),
            ("A: b\r\n\n", FramingFault::BareLineFeed),
            (
                "Transfer-Encoding: chunked\r\n\r\n1\na\r\n",
                FramingFault::BareLineFeed,
            ),
            (
                "Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\n\r\n",
                FramingFault::BareLineFeed,
            ),
            (
                "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
                FramingFault::Chunk,
            ),
            (
                "Transfer-Encoding: chunked\r\n\r\n-1\r\n",
                FramingFault::Chunk,
            ),
            (
                "Transfer-Encoding: chunked\r\n\r\n\r\n",
                FramingFault::Chunk,
            ),
            (
                "Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n",
                FramingFault::Chunk,
            ),
        ] {
            let good = format!("{POST}Content-Length: 2\r\n\r\nab");
            for before in ["", &good] {
                let text = format!("{before}{POST}{fields}");
                for piece in 1..=text.len() {
                    let result = follow_in_pieces(&text, piece);
                    assert_eq!(result, Err(fault), "{text:?} by {piece}");
                }
            }
        }
        assert_eq!(
            follow("POST / HTTP/1.1\nHost: a\r\n\r\n"),
            Err(RefusedMessage {
                fault: FramingFault::BareLineFeed,
                at: 0
            })
        );
    }

    #[test]
    fn a_head_that_is_too_long_is_left_to_hyper() {
        let text = format!("{POST}A: {}", "b".repeat(MAX_HEAD));
        assert_eq!(follow(&text), Ok(text.len()));
    }
}
