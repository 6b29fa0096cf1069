//! Standard input and output, with one message per line.
//!
//! Each has its own thread, so that a blocking read or write does not keep the process from exiting.

use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::thread;

use bytes::Bytes;
use tokio::sync::{mpsc, oneshot};

use crate::{Error, MAX_MESSAGE_BYTES};

/// Maximum number of lines that were read but not handled, and of lines that wait to be written. The number is small,
/// so that a slow side slows down the other.
const QUEUE: usize = 8;

/// Returns the non-empty lines of `input`, up to its end or to a line that is too long.
pub(crate) fn lines(input: impl Read + Send + 'static) -> mpsc::Receiver<Result<Bytes, Error>> {
    let (sender, receiver) = mpsc::channel(QUEUE);
    thread::spawn(move || {
        let mut input = BufReader::new(input);
        while let Some(line) = line(&mut input) {
            let last = line.is_err();
            if sender.blocking_send(line).is_err() || last {
                break;
            }
        }
    });
    receiver
}

fn line(input: &mut impl BufRead) -> Option<Result<Bytes, Error>> {
    let most = MAX_MESSAGE_BYTES as u64 + 1;
    loop {
        let mut line = Vec::new();
        match input.take(most).read_until(b'\n', &mut line) {
            Ok(0) => return None,
            Ok(_) if line.len() > MAX_MESSAGE_BYTES && !line.ends_with(b"\n") => {
                return Some(Err(Error::LineTooLong));
            }
            Ok(_) => {
                let kept = line.trim_ascii();
                if !kept.is_empty() {
                    return Some(Ok(Bytes::copy_from_slice(kept)));
                }
            }
            Err(error) => return Some(Err(Error::Input(error))),
        }
    }
}

/// The output to the client, which consists of whole lines.
#[derive(Debug, Clone)]
pub(crate) struct Output(mpsc::Sender<Vec<u8>>);

impl Output {
    /// Writes one JSON text as a line. Line breaks can occur only between JSON tokens, so they are replaced with
    /// spaces.
    pub(crate) async fn write(&self, text: impl Into<Vec<u8>>) {
        let mut line = text.into();
        for byte in &mut line {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
        line.push(b'\n');
        // The error is ignored because it only means that the client no longer reads.
        let _ = self.0.send(line).await;
    }

    /// Completes when the client no longer reads.
    pub(crate) async fn closed(&self) {
        self.0.closed().await;
    }
}

/// Returns an output that writes lines to `output`, and a receiver that completes when everything is written or the
/// client no longer reads.
pub(crate) fn output(output: impl Write + Send + 'static) -> (Output, oneshot::Receiver<()>) {
    let (sender, mut lines) = mpsc::channel::<Vec<u8>>(QUEUE);
    let (end, ended) = oneshot::channel();
    thread::spawn(move || {
        let mut output = BufWriter::new(output);
        while let Some(line) = lines.blocking_recv() {
            let written = output.write_all(&line);
            // The buffer is flushed only when no line is queued, so that a burst of lines costs one write.
            if written.is_err() || lines.is_empty() && output.flush().is_err() {
                break;
            }
        }
        drop(lines);
        let _ = end.send(());
    });
    (Output(sender), ended)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_lines(text: &[u8]) -> Vec<Result<Bytes, Error>> {
        let mut input = text;
        std::iter::from_fn(|| line(&mut input)).collect()
    }

    #[test]
    fn lines_end_as_on_any_system_and_empty_ones_are_none() {
        let lines = read_lines(b"{\"a\":1}\r\n\n  \n{}\n[1]");
        let lines: Vec<_> = lines.into_iter().map(Result::unwrap).collect();
        assert_eq!(lines, ["{\"a\":1}", "{}", "[1]"]);
    }

    #[test]
    fn a_line_has_so_many_bytes_and_no_more() {
        let mut text = vec![b'1'; MAX_MESSAGE_BYTES];
        text.push(b'\n');
        assert_eq!(
            read_lines(&text)[0].as_ref().unwrap().len(),
            MAX_MESSAGE_BYTES
        );
        text.insert(0, b'1');
        assert!(matches!(read_lines(&text)[0], Err(Error::LineTooLong)));
    }

    #[tokio::test]
    async fn a_message_is_one_line_whatever_its_layout() {
        let (reader, writer) = std::io::pipe().unwrap();
        let (out, ended) = output(writer);
        out.write("{\r\n  \"a\": \"\\n\"\n}").await;
        drop(out);
        ended.await.unwrap();
        let text = std::io::read_to_string(reader).unwrap();
        assert_eq!(text, "{    \"a\": \"\\n\" }\n");
    }
}
