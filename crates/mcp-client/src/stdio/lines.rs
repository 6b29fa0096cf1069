//! Lines of a program's output, with a limit on the number of bytes kept of a line.

use tokio::io::{AsyncBufRead, AsyncBufReadExt};

/// A line without its line ending.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    Whole(&'a [u8]),
    /// The start of a line that is longer than the limit.
    Cut(&'a [u8]),
}

/// The reason why there are no more lines.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum EndOfLines {
    Closed,
    /// A line exceeded the number of bytes that may be skipped.
    Endless,
}

pub(super) struct Lines<R> {
    input: R,
    line: Vec<u8>,
    max_bytes: usize,
    max_skipped: usize,
}

impl<R: AsyncBufRead + Unpin> Lines<R> {
    /// Creates a reader that keeps `max_bytes` of a line and skips up to `max_skipped` more.
    pub(super) fn new(input: R, max_bytes: usize, max_skipped: usize) -> Self {
        Self {
            input,
            line: Vec::new(),
            max_bytes,
            max_skipped,
        }
    }

    /// Reads the next line. An unterminated last line is discarded, because it may be an incomplete message.
    pub(super) async fn next(&mut self) -> Result<Line<'_>, EndOfLines> {
        self.line.clear();
        let mut skipped = 0;
        loop {
            let Ok(bytes) = self.input.fill_buf().await else {
                return Err(EndOfLines::Closed);
            };
            if bytes.is_empty() {
                return Err(EndOfLines::Closed);
            }
            let end = bytes.iter().position(|&byte| byte == b'\n');
            let part = &bytes[..end.unwrap_or(bytes.len())];
            let kept = part.len().min(self.max_bytes - self.line.len());
            self.line.extend_from_slice(&part[..kept]);
            skipped += part.len() - kept;
            let used = part.len() + usize::from(end.is_some());
            self.input.consume(used);
            if skipped > self.max_skipped {
                return Err(EndOfLines::Endless);
            }
            if end.is_some() {
                break;
            }
        }
        // A buffer that was grown by a large line is shrunk for the small lines after it.
        if self.line.len() < 64 * 1024 {
            self.line.shrink_to(64 * 1024);
        }
        Ok(if skipped > 0 {
            Line::Cut(&self.line)
        } else {
            Line::Whole(self.line.strip_suffix(b"\r").unwrap_or(&self.line))
        })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::BufReader;

    use super::*;

    #[tokio::test]
    async fn lines_are_the_same_however_the_bytes_arrive() {
        let text = b"one\r\n\ntwo\nhalf";
        for size in 1..=text.len() {
            let mut lines = Lines::new(BufReader::with_capacity(size, &text[..]), 100, 0);
            assert_eq!(lines.next().await, Ok(Line::Whole(b"one")));
            assert_eq!(lines.next().await, Ok(Line::Whole(b"")));
            assert_eq!(lines.next().await, Ok(Line::Whole(b"two")));
            assert_eq!(lines.next().await, Err(EndOfLines::Closed));
        }
    }

    #[tokio::test]
    async fn a_long_line_is_cut_and_the_next_one_read() {
        let mut lines = Lines::new(&b"123456789\nnext\n"[..], 4, 100);
        assert_eq!(lines.next().await, Ok(Line::Cut(b"1234")));
        assert_eq!(lines.next().await, Ok(Line::Whole(b"next")));
    }

    #[tokio::test]
    async fn an_endless_line_ends_the_reading_and_is_not_kept() {
        let mut lines = Lines::new(BufReader::new(tokio::io::repeat(b'x')), 1000, 100_000);
        assert_eq!(lines.next().await, Err(EndOfLines::Endless));
        assert!(lines.line.capacity() <= 2000);
    }
}
