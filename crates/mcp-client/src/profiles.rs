//! Connections to a legacy server for clients that can be asked: such a server is told once a connection what it may
//! ask, so there is one for each set of that, beside the one on which it may ask nothing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::link::Link;
use super::participation::ClientProfile;
use wardgate_egress::EgressError;

/// How long one that nobody uses is kept.
const IDLE: Duration = Duration::from_mins(5);

pub(super) struct Profiles {
    /// At the same time.
    most: usize,
    links: Mutex<HashMap<ClientProfile, CachedUpstream>>,
}

struct CachedUpstream {
    link: Arc<Link>,
    used: Instant,
}

impl CachedUpstream {
    /// Nobody has a request on it, open or waiting.
    fn is_free(&self) -> bool {
        Arc::strong_count(&self.link) == 1
    }
}

impl Profiles {
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
        if let Some(kept) = links.get_mut(&profile) {
            kept.used = Instant::now();
            return Ok(Some(Arc::clone(&kept.link)));
        }
        if links.len() >= self.most {
            let free = links.iter().filter(|(_, kept)| kept.is_free());
            let longest = free.min_by_key(|(_, kept)| kept.used);
            let longest = longest.map(|(profile, _)| *profile);
            let Some(removed) = longest.and_then(|profile| links.remove(&profile)) else {
                return Ok(None);
            };
            removed.link.let_go();
        }
        let link = Arc::new(open()?);
        let kept = CachedUpstream {
            link: Arc::clone(&link),
            used: Instant::now(),
        };
        links.insert(profile, kept);
        tokio::spawn(let_go_when_idle(Arc::downgrade(self), profile));
        Ok(Some(link))
    }

    /// All of them, to be ended.
    pub(super) fn take(&self) -> Vec<Arc<Link>> {
        self.lock().drain().map(|(_, kept)| kept.link).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ClientProfile, CachedUpstream>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the connection goes on; one that is idle is let go.
    fn goes_on(&self, profile: ClientProfile) -> bool {
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

async fn let_go_when_idle(profiles: Weak<Profiles>, profile: ClientProfile) {
    loop {
        sleep(IDLE / 5).await;
        match profiles.upgrade() {
            Some(profiles) if profiles.goes_on(profile) => {}
            _ => return,
        }
    }
}
