//! Connections to a legacy server for clients that can be asked for input. The features that such a server may use
//! are declared once per connection, so there is one connection for each set of features, in addition to the plain
//! connection without features.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep};
use wardgate_egress::EgressError;

use super::link::Link;
use super::participation::ClientProfile;

/// Time after which an unused connection is closed.
const IDLE: Duration = Duration::from_mins(5);

pub(super) struct ProfileLinks {
    /// Maximum number of concurrent connections.
    most: usize,
    links: Mutex<HashMap<ClientProfile, CachedLink>>,
}

struct CachedLink {
    link: Arc<Link>,
    used: Instant,
}

impl CachedLink {
    /// Returns whether no request is open or waiting on the connection.
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

    /// Returns the connection for clients with the features of `profile`, which `open` creates if there is none. Returns `None`
    /// if there is no room for another connection.
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

    /// Removes and returns all connections, so that they can be closed.
    pub(super) fn take_links(&self) -> Vec<Arc<Link>> {
        self.lock().drain().map(|(_, cached)| cached.link).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClientProfile, CachedLink>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the connection is kept. An idle connection is closed.
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
