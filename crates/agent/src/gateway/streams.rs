//! The callers whose lists are followed: one stream of changes for each, for as long as they talk.
//!
//! ```text
//!   opened ──▶ acknowledged: mark 1 ──▶ a change: mark 2 ──▶ …  ──▶ ended: no mark
//! ```
//!
//! A list that was asked for under a mark is good while the caller's stream still stands at that mark.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use wardgate_domain::Digest;
use wardgate_edge::Door;

use super::listen;
use crate::request::BearerToken;

/// Streams that are open at once; for one more, the one whose caller was away longest ends.
const MAX_STREAMS: usize = 256;

/// A caller who has not talked for so long is not listened for.
const IDLE: Duration = Duration::from_mins(5);

/// From one try to the next, for a caller whose stream ended or was refused.
const TRY_AGAIN: Duration = Duration::from_secs(30);

/// How far a stream has told. No two streams have one in common.
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
    /// When the caller last talked. Who follows ends once nobody tells it; once it ended, nobody hears this.
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
    /// Where the caller's stream stands; none when changes are not heard of.
    pub(super) fn position(&self, caller: &Digest) -> Option<StreamPosition> {
        let streams = self.lock();
        let stream = streams.get(caller)?;
        let position = *stream.position.borrow();
        position.filter(|_| !stream.is_over())
    }

    /// The caller talks.
    pub(super) fn note_activity(&self, caller: &Digest) {
        if let Some(stream) = self.lock().get(caller) {
            stream.last_active.send_replace(Instant::now());
        }
    }

    /// Sees to it that the caller has a stream, or soon will. Nobody waits for it.
    pub(super) fn follow(&self, caller: Digest, door: &Door, token: &BearerToken) {
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
        let (last_active, note_activity) = watch::channel(now);
        let (tell, position) = watch::channel(None);
        tokio::spawn(follow(
            door.clone(),
            token.clone(),
            note_activity,
            tell,
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
    door: Door,
    token: BearerToken,
    note_activity: watch::Receiver<Instant>,
    tell: watch::Sender<Option<StreamPosition>>,
    positions: Arc<AtomicU64>,
) {
    let listening = async {
        let mut stream = match listen::open(&door, &token).await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::debug!(%error, "changes of a caller's tools are not heard of");
                return;
            }
        };
        loop {
            tell.send_replace(Some(StreamPosition(
                positions.fetch_add(1, Ordering::Relaxed),
            )));
            if !stream.changed().await {
                return;
            }
        }
    };
    tokio::select! {
        () = listening => {}
        () = silence(note_activity) => {}
    }
}

/// Ends when the caller was silent for long.
async fn silence(mut note_activity: watch::Receiver<Instant>) {
    while let Ok(Ok(())) = tokio::time::timeout(IDLE, note_activity.changed()).await {}
}
