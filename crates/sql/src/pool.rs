//! A pool of sessions that are kept between calls.
//!
//! Unlike a general pool, this one makes no round trip to test a session that was in use a moment ago. A session whose
//! work was not finished is never reused: dropping its lease ends the session and its work.
//!
//! ```text
//!   lease ─┬─ give_back ─▶ idle ─▶ the next lease
//!          └─ dropped ───▶ stop ─▶ its slot is free once the work has stopped
//! ```

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use metrics::counter;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tracing::warn;
use wardgate_telemetry::names;

use super::SourceError;
use super::backend::Backend;

/// Maximum time that a call waits for a free session, and maximum time for connecting.
const ACQUIRE_LIMIT: Duration = Duration::from_secs(5);

/// Maximum time for telling a server to stop a statement. The slot stays in use meanwhile, so that abandoned work
/// cannot accumulate on the server.
const STOP_LIMIT: Duration = Duration::from_secs(5);

/// Idle time after which a session is tested before it is used, because the server may have restarted.
const TRUSTED_IDLE: Duration = Duration::from_secs(1);

pub(super) struct Pool<B: Backend> {
    backend: B,
    free: Arc<Semaphore>,
    idle: Mutex<Vec<IdleSession<B::Session>>>,
}

struct IdleSession<S> {
    session: S,
    since: Instant,
}

/// A session in use. Call `give_back` when its work is done. If the lease is dropped instead, the session is closed and
/// its work is stopped.
pub(super) struct Lease<'p, B: Backend> {
    pool: &'p Pool<B>,
    /// The session is declared before `work`, so that its connection is closed first.
    session: B::Session,
    work: LeasedWork<B>,
}

/// The work of a lease. If it is dropped before it is done, it is stopped in the database.
struct LeasedWork<B: Backend> {
    handle: Option<B::Handle>,
    slot: Option<OwnedSemaphorePermit>,
}

impl<B: Backend> LeasedWork<B> {
    fn disarm(mut self) {
        self.handle = None;
    }
}

impl<B: Backend> Drop for LeasedWork<B> {
    fn drop(&mut self) {
        let Some(handle) = self.handle.take() else {
            return;
        };
        counter!(names::STOPPED_STATEMENTS).increment(1);
        let slot = self.slot.take();
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move {
                if timeout(STOP_LIMIT, B::stop(handle)).await.is_err() {
                    warn!("a statement could not be cancelled in time");
                }
                drop(slot);
            });
        }
    }
}

impl<B: Backend> Pool<B> {
    pub(super) fn new(backend: B, max_sessions: usize) -> Self {
        Self {
            backend,
            free: Arc::new(Semaphore::new(max_sessions)),
            idle: Mutex::new(Vec::new()),
        }
    }

    pub(super) async fn lease(&self) -> Result<Lease<'_, B>, SourceError> {
        let busy = || SourceError::Busy(ACQUIRE_LIMIT);
        let free = Arc::clone(&self.free);
        let slot = timeout(ACQUIRE_LIMIT, free.acquire_owned()).await;
        // The semaphore is never closed, so the only error is the timeout.
        let slot = slot.ok().and_then(Result::ok).ok_or_else(busy)?;
        let session = timeout(ACQUIRE_LIMIT, self.session()).await;
        let session = session
            .map_err(|_| busy())?
            .map_err(SourceError::Unreachable)?;
        Ok(Lease {
            pool: self,
            work: LeasedWork {
                handle: Some(B::handle(&session)),
                slot: Some(slot),
            },
            session,
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

    fn take_idle(&self) -> Option<IdleSession<B::Session>> {
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
        let idle = IdleSession {
            session: self.session,
            since: Instant::now(),
        };
        self.pool
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(idle);
        self.work.disarm();
    }
}
