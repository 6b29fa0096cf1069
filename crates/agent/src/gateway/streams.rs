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
pub(super) struct Mark(u64);

/// The streams, by the digest of their caller's token. They end with it.
#[derive(Default)]
pub(super) struct Streams {
    by_caller: Mutex<HashMap<Digest, Stream>>,
    marks: Arc<AtomicU64>,
}

struct Stream {
    opened: Instant,
    /// When the caller last talked. Who follows ends once nobody tells it; once it ended, nobody hears this.
    talked: watch::Sender<Instant>,
    /// None until it is acknowledged.
    mark: watch::Receiver<Option<Mark>>,
}

impl Stream {
    fn is_over(&self) -> bool {
        self.talked.is_closed()
    }
}

impl Streams {
    /// Where the caller's stream stands; none when changes are not heard of.
    pub(super) fn mark(&self, caller: &Digest) -> Option<Mark> {
        let streams = self.lock();
        let stream = streams.get(caller)?;
        let mark = *stream.mark.borrow();
        mark.filter(|_| !stream.is_over())
    }

    /// The caller talks.
    pub(super) fn talks(&self, caller: &Digest) {
        if let Some(stream) = self.lock().get(caller) {
            stream.talked.send_replace(Instant::now());
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
                let talked = *stream.talked.borrow();
                (!stream.is_over(), talked)
            });
            if let Some(last) = last.map(|(caller, _)| *caller) {
                streams.remove(&last);
            }
        }
        let (talked, talks) = watch::channel(now);
        let (tell, mark) = watch::channel(None);
        tokio::spawn(follow(
            door.clone(),
            token.clone(),
            talks,
            tell,
            Arc::clone(&self.marks),
        ));
        let stream = Stream {
            opened: now,
            talked,
            mark,
        };
        streams.insert(caller, stream);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, Stream>> {
        self.by_caller
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Listens until the stream ends, the caller has long been silent, or nobody wants to know.
async fn follow(
    door: Door,
    token: BearerToken,
    talks: watch::Receiver<Instant>,
    tell: watch::Sender<Option<Mark>>,
    marks: Arc<AtomicU64>,
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
            tell.send_replace(Some(Mark(marks.fetch_add(1, Ordering::Relaxed))));
            if !stream.changed().await {
                return;
            }
        }
    };
    tokio::select! {
        () = listening => {}
        () = silence(talks) => {}
    }
}

/// Ends when the caller was silent for long.
async fn silence(mut talks: watch::Receiver<Instant>) {
    while let Ok(Ok(())) = tokio::time::timeout(IDLE, talks.changed()).await {}
}
