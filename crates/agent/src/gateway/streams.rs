//! Streams that report changes of callers' tool lists: one stream per active caller.
//!
//! ```text
//!   opened ──▶ acknowledged: position 1 ──▶ a change: position 2 ──▶ …  ──▶ ended: no position
//! ```
//!
//! A list that was fetched at a position is valid while the caller's stream still has that position.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use wardgate_domain::Digest;
use wardgate_edge::EdgeClient;

use super::listen;
use crate::request::BearerToken;

/// Maximum number of open streams. Beyond it, the stream of the caller who was inactive the longest ends.
const MAX_STREAMS: usize = 256;

/// Time without a request after which a caller's stream ends.
const IDLE: Duration = Duration::from_mins(5);

/// Minimum interval between two attempts to open a stream for a caller whose stream ended or was refused.
const TRY_AGAIN: Duration = Duration::from_secs(30);

/// The position of a stream, which changes with each reported change. No two streams share a position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamPosition(u64);

/// The streams by the digest of their caller's token. Dropping this value ends all streams.
#[derive(Default)]
pub(super) struct ChangeStreams {
    by_caller: Mutex<HashMap<Digest, ChangeStream>>,
    positions: Arc<AtomicU64>,
}

struct ChangeStream {
    opened: Instant,
    /// The time of the caller's last request. The channel is closed once the stream has ended; dropping the sender ends the
    /// stream.
    last_active: watch::Sender<Instant>,
    /// The position of the stream, or `None` until the gateway acknowledged it.
    position: watch::Receiver<Option<StreamPosition>>,
}

impl ChangeStream {
    fn is_over(&self) -> bool {
        self.last_active.is_closed()
    }
}

impl ChangeStreams {
    /// Returns the position of the caller's stream, or `None` if no stream reports changes.
    pub(super) fn position(&self, caller: &Digest) -> Option<StreamPosition> {
        let streams = self.lock();
        let stream = streams.get(caller)?;
        let position = *stream.position.borrow();
        position.filter(|_| !stream.is_over())
    }

    /// Records that the caller has just sent a request, which keeps the caller's stream open.
    pub(super) fn note_activity(&self, caller: &Digest) {
        if let Some(stream) = self.lock().get(caller) {
            stream.last_active.send_replace(Instant::now());
        }
    }

    /// Opens a stream for the caller in the background unless there already is one or the last attempt was too recent.
    pub(super) fn follow(&self, caller: Digest, edge: &EdgeClient, token: &BearerToken) {
        let mut streams = self.lock();
        let now = Instant::now();
        if let Some(stream) = streams.get(&caller)
            && (!stream.is_over() || now < stream.opened + TRY_AGAIN)
        {
            return;
        }
        if streams.len() >= MAX_STREAMS {
            let last = streams.iter().min_by_key(|(_, stream)| {
                let last_active = *stream.last_active.borrow();
                (!stream.is_over(), last_active)
            });
            if let Some(last) = last.map(|(caller, _)| *caller) {
                streams.remove(&last);
            }
        }
        let (last_active, activity) = watch::channel(now);
        let (position_sender, position) = watch::channel(None);
        tokio::spawn(follow(
            edge.clone(),
            token.clone(),
            activity,
            position_sender,
            Arc::clone(&self.positions),
        ));
        let stream = ChangeStream {
            opened: now,
            last_active,
            position,
        };
        streams.insert(caller, stream);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, ChangeStream>> {
        self.by_caller
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Listens until the stream ends, the caller is inactive for [`IDLE`], or the stream is dropped.
async fn follow(
    edge: EdgeClient,
    token: BearerToken,
    activity: watch::Receiver<Instant>,
    position_sender: watch::Sender<Option<StreamPosition>>,
    positions: Arc<AtomicU64>,
) {
    let listening = async {
        let mut stream = match listen::open(&edge, &token).await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(%error, "changes of a caller's tools are not received");
                return;
            }
        };
        loop {
            position_sender.send_replace(Some(StreamPosition(
                positions.fetch_add(1, Ordering::Relaxed),
            )));
            if !stream.changed().await {
                return;
            }
        }
    };
    tokio::select! {
        () = listening => {}
        () = silence(activity) => {}
    }
}

/// Waits until the caller has been inactive for [`IDLE`] or the sender is dropped.
async fn silence(mut activity: watch::Receiver<Instant>) {
    while let Ok(Ok(())) = tokio::time::timeout(IDLE, activity.changed()).await {}
}
