//! Connections to a legacy server for clients that can be asked: such a server is told once a connection what it may
//! ask, so there is one for each set of that, beside the one on which it may ask nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use wardgate_egress::EgressError;

use super::link::Link;
use super::participation::ClientProfile;

/// How long one that nobody uses is kept.
const IDLE: Duration = Duration::from_mins(5);

pub(super) struct ProfileLinks {
    /// At the same time.
    most: usize,
    links: Mutex<HashMap<ClientProfile, CachedLink>>,
}

struct CachedLink {
    link: Arc<Link>,
    used: Instant,
}

impl CachedLink {
    /// Nobody has a request on it, open or waiting.
    fn is_free(&self) -> bool {
        Arc::strong_count(&self.link) == 1
    }
}

impl ProfileLinks {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            links: Mutex::default(),
        }
    }

    /// The connection for clients that can be asked so much, made by `open` when it is first needed; none where there
    /// is no room for another.
    pub(super) fn link(
        self: &Arc<Self>,
        profile: ClientProfile,
        open: impl FnOnce() -> Result<Link, EgressError>,
    ) -> Result<Option<Arc<Link>>, EgressError> {
        let mut links = self.lock();
        if let Some(cached) = links.get_mut(&profile) {
            cached.used = Instant::now();
            return Ok(Some(Arc::clone(&cached.link)));
        }
        if links.len() >= self.most {
            let free = links.iter().filter(|(_, cached)| cached.is_free());
            let longest = free.min_by_key(|(_, cached)| cached.used);
            let longest = longest.map(|(profile, _)| *profile);
            let Some(removed) = longest.and_then(|profile| links.remove(&profile)) else {
                return Ok(None);
            };
            removed.link.disconnect();
        }
        let link = Arc::new(open()?);
        let cached = CachedLink {
            link: Arc::clone(&link),
            used: Instant::now(),
        };
        links.insert(profile, cached);
        tokio::spawn(disconnect_when_idle(Arc::downgrade(self), profile));
        Ok(Some(link))
    }

    /// All of them, to be ended.
    pub(super) fn take(&self) -> Vec<Arc<Link>> {
        self.lock().drain().map(|(_, cached)| cached.link).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClientProfile, CachedLink>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the connection goes on; an idle one is disconnected.
    fn goes_on(&self, profile: ClientProfile) -> bool {
        let mut links = self.lock();
        let Some(cached) = links.get_mut(&profile) else {
            return false;
        };
        if !cached.is_free() {
            cached.used = Instant::now();
        }
        if cached.used.elapsed() < IDLE {
            return true;
        }
        if let Some(cached) = links.remove(&profile) {
            cached.link.disconnect();
        }
        false
    }
}

async fn disconnect_when_idle(profiles: Weak<ProfileLinks>, profile: ClientProfile) {
    loop {
        sleep(IDLE / 5).await;
        match profiles.upgrade() {
            Some(profiles) if profiles.goes_on(profile) => {}
            _ => return,
        }
    }
}
