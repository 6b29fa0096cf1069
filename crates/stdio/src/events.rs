//! Streams of events, read event by event, none larger than a message may be.

use std::time::Duration;

use reqwest::Response;
use wardgate_mcp::event_stream::EventReader;

use crate::fault::RequestFault;

/// The pause before a stream is taken up again, unless the gateway names one; and the longest.
pub(crate) const PAUSE: Duration = Duration::from_secs(1);
pub(crate) const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// One stream.
pub(crate) struct Events {
    pub(crate) response: Response,
    pub(crate) reader: EventReader,
}

impl Events {
    /// The next message; none at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Vec<u8>>, RequestFault> {
        loop {
            while let Some(data) = self.reader.next_event() {
                // An event with empty data only has an id.
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

/// The pause before the stream of `reader` is taken up again.
pub(crate) fn pause(reader: &EventReader) -> Duration {
    reader.retry().unwrap_or(PAUSE).min(LONGEST_PAUSE)
}
