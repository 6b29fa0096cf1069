//! Streams of events, read event by event, none larger than a message may be.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use reqwest::Response;
use sse_stream::SseByteStream;

use crate::MAX_MESSAGE_BYTES;
use crate::fault::RequestFault;

/// The longest pause before a stream is taken up again that a gateway may ask for.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// One stream.
pub(crate) struct Events {
    stream: SseByteStream<BoxStream<'static, Result<Bytes, RequestFault>>>,
    /// Bytes since the last event, counted where they go into the parser, which has no limit of its own.
    pending: Arc<AtomicUsize>,
    /// The last event, to go on from.
    pub(crate) last_id: Option<String>,
    /// The pause before that, if the gateway named one.
    pub(crate) pause: Option<Duration>,
}

impl Events {
    /// The stream that goes on after the event `last_id`, if there was one.
    pub(crate) fn of(response: Response, last_id: Option<String>) -> Self {
        let pending = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&pending);
        let chunks = stream::try_unfold(response, move |mut response| {
            let counter = Arc::clone(&counter);
            async move {
                let Some(chunk) = response.chunk().await.map_err(|_| RequestFault::Lost)? else {
                    return Ok(None);
                };
                let before = counter.fetch_add(chunk.len(), Ordering::Relaxed);
                if before + chunk.len() > MAX_MESSAGE_BYTES {
                    return Err(RequestFault::TooLarge);
                }
                Ok(Some((chunk, response)))
            }
        });
        Self {
            stream: SseByteStream::new(chunks.boxed()),
            pending,
            last_id,
            pause: None,
        }
    }

    /// The next message; none at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<String>, RequestFault> {
        while let Some(event) = self.stream.try_next().await.map_err(fault)? {
            self.pending.store(0, Ordering::Relaxed);
            if let Some(id) = event.id {
                self.last_id = Some(id);
            }
            if let Some(retry) = event.retry {
                self.pause = Some(Duration::from_millis(retry).min(LONGEST_PAUSE));
            }
            // An event without data only has an id.
            if let Some(data) = event.data.filter(|data| !data.is_empty()) {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

fn fault(error: sse_stream::Error) -> RequestFault {
    match error {
        sse_stream::Error::Body(error) => error
            .downcast()
            .map_or(RequestFault::Lost, |error: Box<RequestFault>| *error),
        _ => RequestFault::NotMcp,
    }
}
