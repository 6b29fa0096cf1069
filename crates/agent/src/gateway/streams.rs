//! The streams of changes to the callers' lists of tools: one for each caller, while the caller is active.
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

/// Streams that are open at once; for one more, the one whose caller was away longest ends.
const MAX_STREAMS: usize = 256;

/// The stream of a caller who sent nothing for this long ends.
const IDLE: Duration = Duration::from_mins(5);

/// From one try to the next, for a caller whose stream ended or was refused.
const TRY_AGAIN: Duration = Duration::from_secs(30);

/// The position of a stream: another one after each change. No two streams have one in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct StreamPosition(u64);

/// The streams, by the digest of their caller's token. They end with it.
#[derive(Default)]
pub(super) struct ChangeStreams {
    by_caller: Mutex<HashMap<Digest, ChangeStream>>,
    positions: Arc<AtomicU64>,
}

struct ChangeStream {
    opened: Instant,
    /// The time of the caller's last request. Closed once the stream has ended; dropping it ends the stream.
    last_active: watch::Sender<Instant>,
    /// None until it is acknowledged.
    position: watch::Receiver<Option<StreamPosition>>,
}

impl ChangeStream {
    fn is_over(&self) -> bool {
        self.last_active.is_closed()
    }
}

impl ChangeStreams {
    /// The position of the caller's stream; none when no stream reports changes.
    pub(super) fn position(&self, caller: &Digest) -> Option<StreamPosition> {
        let streams = self.lock();
        let stream = streams.get(caller)?;
        let position = *stream.position.borrow();
        position.filter(|_| !stream.is_over())
    }

    /// Keeps the caller's stream open: the caller has just sent a request.
    pub(super) fn note_activity(&self, caller: &Digest) {
        if let Some(stream) = self.lock().get(caller) {
            stream.last_active.send_replace(Instant::now());
        }
    }

    /// Sees to it that the caller has a stream, or soon will. Nobody waits for it.
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

/// Listens until the stream ends, the caller has long been silent, or nobody wants to know.
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
                tracing::debug!(%error, "changes of a caller's tools are not heard of");
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

/// Ends when the caller was silent for long.
async fn silence(mut activity: watch::Receiver<Instant>) {
    while let Ok(Ok(())) = tokio::time::timeout(IDLE, activity.changed()).await {}
}
