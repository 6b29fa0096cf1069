//! Sessions, kept between calls.
//!
//! Unlike a general pool, it spends no round trip on a session that was in use a moment ago, and a session
//! whose work was not finished is never used again: dropping its lease ends session and work together.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use metrics::counter;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;
use wardgate_telemetry::names;

use super::SourceError;
use super::backend::Backend;

/// How long a call waits for a free session, and how long connecting may take.
const ACQUIRE_LIMIT: Duration = Duration::from_secs(5);

/// A session idle for longer is tested before it is used: the server may have restarted.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);

pub(super) struct Pool<B: Backend> {
    backend: B,
    free: Semaphore,
    idle: Mutex<Vec<Idle<B::Session>>>,
}

struct Idle<S> {
    session: S,
    since: Instant,
}

/// A session in use. Give it back when its work is done; dropped, it is closed and its work stopped.
pub(super) struct Lease<'p, B: Backend> {
    pool: &'p Pool<B>,
    session: B::Session,
    unfinished: Unfinished,
    _slot: SemaphorePermit<'p>,
}

/// Counts the leases that were dropped before their work was done.
struct Unfinished;

impl Drop for Unfinished {
    fn drop(&mut self) {
        counter!(names::STOPPED_STATEMENTS).increment(1);
    }
}

impl<B: Backend> Pool<B> {
    pub(super) fn new(backend: B, max_sessions: usize) -> Self {
        Self {
            backend,
            free: Semaphore::new(max_sessions),
            idle: Mutex::new(Vec::new()),
        }
    }

    pub(super) async fn lease(&self) -> Result<Lease<'_, B>, SourceError> {
        let busy = || SourceError::Busy(ACQUIRE_LIMIT);
        let slot = timeout(ACQUIRE_LIMIT, self.free.acquire()).await;
        // The semaphore is never closed.
        let slot = slot.ok().and_then(Result::ok).ok_or_else(busy)?;
        let session = timeout(ACQUIRE_LIMIT, self.session()).await;
        let session = session
            .map_err(|_| busy())?
            .map_err(SourceError::Unreachable)?;
        Ok(Lease {
            pool: self,
            session,
            unfinished: Unfinished,
            _slot: slot,
        })
    }

    async fn session(&self) -> Result<B::Session, sqlx::Error> {
        while let Some(mut idle) = self.take_idle() {
            if idle.since.elapsed() < TRUSTED_IDLE || B::is_alive(&mut idle.session).await {
                return Ok(idle.session);
            }
        }
        self.backend.connect().await
    }

    fn take_idle(&self) -> Option<Idle<B::Session>> {
        self.idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
    }
}

impl<B: Backend> Lease<'_, B> {
    pub(super) fn session(&mut self) -> &mut B::Session {
        &mut self.session
    }

    pub(super) fn give_back(self) {
        std::mem::forget(self.unfinished);
        let idle = Idle {
            session: self.session,
            since: Instant::now(),
        };
        self.pool
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(idle);
    }
}
