//! Reads streams of events event by event, and limits the size of each to that of a message.

use std::time::Duration;

use reqwest::Response;
use wardgate_mcp::event_stream::EventReader;

use crate::fault::RequestFault;

/// Pause before a stream is resumed, unless the gateway specifies one, and the maximum pause.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A stream of events.
pub(crate) struct Events {
    pub(crate) response: Response,
    pub(crate) reader: EventReader,
}

impl Events {
    /// Returns the data of the next event, or `None` at the end of the stream.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, RequestFault> {
        loop {
            while let Some(data) = self.reader.next_event() {
                // An event with empty data carries only an id.
                if !data.is_empty() {
                    return Ok(Some(data));
                }
            }
            let chunk = self.response.chunk().await;
            let Some(chunk) = chunk.map_err(|_| RequestFault::Lost)? else {
                return Ok(None);
            };
            let fed = self.reader.feed(&chunk);
            fed.map_err(|_| RequestFault::TooLarge)?;
        }
    }
}

/// Returns the pause before the stream of `reader` is resumed.
pub(crate) fn pause(reader: &EventReader) -> Duration {
    reader.retry().unwrap_or(PAUSE).min(LONGEST_PAUSE)
}
