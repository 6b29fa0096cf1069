//! Connections to a legacy server for clients that can be asked: such a server is told once a connection what it may
//! ask, so there is one for each set of that, beside the one on which it may ask nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::error::UpstreamError;
use super::link::Link;
use super::participation::Profile;

/// Connections to one server at the same time, each a process where the server is a program.
const MOST: usize = 4;

/// How long one that nobody uses is kept.
const IDLE: Duration = Duration::from_mins(5);

#[derive(Default)]
pub(super) struct Profiles(Mutex<HashMap<Profile, Kept>>);

struct Kept {
    link: Arc<Link>,
    used: Instant,
}

impl Kept {
    /// Nobody has a request on it, open or waiting.
    fn is_free(&self) -> bool {
        Arc::strong_count(&self.link) == 1
    }
}

impl Profiles {
    /// The connection for clients that can be asked so much, made by `open` when it is first needed.
    pub(super) fn link(
        self: &Arc<Self>,
        profile: Profile,
        open: impl FnOnce() -> Result<Link, UpstreamError>,
    ) -> Result<Arc<Link>, UpstreamError> {
        let mut links = self.lock();
        if let Some(kept) = links.get_mut(&profile) {
            kept.used = Instant::now();
            return Ok(Arc::clone(&kept.link));
        }
        if links.len() >= MOST {
            let free = links.iter().filter(|(_, kept)| kept.is_free());
            let longest = free.min_by_key(|(_, kept)| kept.used);
            let longest = longest.map(|(profile, _)| *profile);
            let removed = longest.and_then(|profile| links.remove(&profile));
            removed.ok_or(UpstreamError::Busy)?.link.let_go();
        }
        let link = Arc::new(open()?);
        let kept = Kept {
            link: Arc::clone(&link),
            used: Instant::now(),
        };
        links.insert(profile, kept);
        tokio::spawn(let_go_when_idle(Arc::downgrade(self), profile));
        Ok(link)
    }

    /// All of them, to be ended.
    pub(super) fn take(&self) -> Vec<Arc<Link>> {
        self.lock().drain().map(|(_, kept)| kept.link).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Profile, Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the connection goes on; one that is idle is let go.
    fn goes_on(&self, profile: Profile) -> bool {
        let mut links = self.lock();
        let Some(kept) = links.get_mut(&profile) else {
            return false;
        };
        if !kept.is_free() {
            kept.used = Instant::now();
        }
        if kept.used.elapsed() < IDLE {
            return true;
        }
        if let Some(kept) = links.remove(&profile) {
            kept.link.let_go();
        }
        false
    }
}

async fn let_go_when_idle(profiles: Weak<Profiles>, profile: Profile) {
    loop {
        sleep(IDLE / 5).await;
        match profiles.upgrade() {
            Some(profiles) if profiles.goes_on(profile) => {}
            _ => return,
        }
    }
}
