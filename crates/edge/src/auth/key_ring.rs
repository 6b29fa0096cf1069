//! The current keys of every issuer, and how they stay current.
//!
//! ```text
//!   every refresh_seconds ──────────────┐
//!   (1 s, 2 s, 4 s … after a failure)   ├──▶ refresh: one reading at a time ──▶ current keys, readiness
//!   unknown kid, once in 10 s ──────────┘    unreadable: the last good set stays, until its time to live
//!                                            readable, but empty: the issuer withdrew its keys
//! ```

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures::future::join_all;
use tokio::sync::{Mutex, watch};
use tokio_util::task::AbortOnDropHandle;
use wardgate_domain::{Ambient, Digest, Timestamp};
use wardgate_rpc::Readiness;
use wardgate_telemetry::names;

use super::keys::{Key, KeySet};
use super::source::KeySource;
use super::{Error, IssuerConfig, JwksSource, TokenRefusal};
use crate::error::KeySetError;

/// Tokens with unknown key ids cause at most one reading of the source in this time.
const DEMAND_INTERVAL: Duration = Duration::from_secs(10);
/// How soon a failed reading is tried again at first; each further failure doubles it.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Longer key ids are known to be unknown.
const MAX_KEY_ID: usize = 256;

/// The keys of every issuer, in the order of the configuration.
pub(super) struct KeyRing {
    /// None of an issuer that is asked about its tokens.
    issuers: Vec<Option<IssuerKeys>>,
    ambient: Ambient,
    readiness: watch::Sender<Readiness>,
}

/// The keys of one issuer.
struct IssuerKeys {
    issuer: String,
    source: KeySource,
    refresh: Duration,
    ttl: Duration,
    current: ArcSwapOption<CurrentKeys>,
    /// Held while the source is read; says when a token last caused that.
    reading: Mutex<Option<Timestamp>>,
}

/// A key set that was read.
pub(super) struct CurrentKeys {
    keys: Arc<KeySet>,
    version: Digest,
    read_at: Timestamp,
}

impl CurrentKeys {
    /// The key for a token, if the set has it.
    pub(super) fn find(&self, id: Option<&str>) -> Option<&Key> {
        self.keys.find(id)
    }

    /// Changes with every change of the set.
    pub(super) fn version(&self) -> Digest {
        self.version
    }
}

impl KeyRing {
    /// Reads every key set once. A file that cannot be used is an error; a URL that cannot is tried again
    /// by [`KeyRing::keep_current`].
    pub(super) async fn load(
        configs: &[IssuerConfig],
        ambient: Ambient,
    ) -> Result<Arc<Self>, Error> {
        let issuers = configs
            .iter()
            .enumerate()
            .map(|(index, config)| match config.introspection {
                Some(_) => Ok(None),
                None => IssuerKeys::new(config, index).map(Some),
            })
            .collect::<Result<Vec<_>, _>>()?;
        let readiness =
            watch::Sender::new(Readiness::NotReady("no key set was read yet".to_owned()));
        let ring = Arc::new(Self {
            issuers,
            ambient,
            readiness,
        });
        let readings = join_all((0..configs.len()).map(|index| ring.refresh(index))).await;
        // No reading reports where there are no keys to read.
        ring.report();
        for (reading, config) in readings.into_iter().zip(configs) {
            if let (Err(cause), Some(JwksSource::File(path))) = (reading, &config.jwks) {
                return Err(Error::KeyFile {
                    issuer: config.issuer.clone(),
                    path: path.clone(),
                    cause,
                });
            }
        }
        Ok(ring)
    }

    /// Reads the sources again and again, for as long as the handles live.
    pub(super) fn keep_current(self: &Arc<Self>) -> Vec<AbortOnDropHandle<()>> {
        let poll = |index| AbortOnDropHandle::new(tokio::spawn(poll(Arc::clone(self), index)));
        (0..self.issuers.len()).map(poll).collect()
    }

    /// Ready while every issuer has keys.
    pub(super) fn readiness(&self) -> watch::Receiver<Readiness> {
        self.readiness.subscribe()
    }

    /// The version of an issuer's keys, if it has any that may be used now.
    pub(super) fn version(&self, index: usize) -> Option<Digest> {
        self.usable(index).map(|keys| keys.version)
    }

    /// An issuer's keys with the key `id` among them. An unknown id has the source read again.
    pub(super) async fn keys_with(
        self: &Arc<Self>,
        index: usize,
        id: Option<&str>,
    ) -> Result<Arc<CurrentKeys>, TokenRefusal> {
        let has_key = |keys: &Arc<CurrentKeys>| keys.find(id).is_some();
        if let Some(keys) = self.usable(index).filter(has_key) {
            return Ok(keys);
        }
        if id.is_some_and(|id| id.len() > MAX_KEY_ID) {
            return Err(TokenRefusal::KeyUnknown);
        }
        self.refresh_on_demand(index).await;
        let keys = self.usable(index).ok_or(TokenRefusal::KeysUnavailable)?;
        if has_key(&keys) {
            Ok(keys)
        } else {
            Err(TokenRefusal::KeyUnknown)
        }
    }

    fn issuer(&self, index: usize) -> Option<&IssuerKeys> {
        self.issuers.get(index)?.as_ref()
    }

    fn usable(&self, index: usize) -> Option<Arc<CurrentKeys>> {
        let issuer = self.issuer(index)?;
        let keys = issuer.current.load_full()?;
        (apart(self.ambient.now(), keys.read_at) <= issuer.ttl).then_some(keys)
    }

    /// In a task of its own: a client that hangs up must not end a reading that others wait for.
    async fn refresh_on_demand(self: &Arc<Self>, index: usize) {
        let ring = Arc::clone(self);
        let reading = tokio::spawn(async move {
            let Some(issuer) = ring.issuer(index) else {
                return;
            };
            let mut last_demand = issuer.reading.lock().await;
            let now = ring.ambient.now();
            if last_demand.is_some_and(|last| apart(now, last) < DEMAND_INTERVAL) {
                return;
            }
            *last_demand = Some(now);
            // What went wrong is logged; whoever asked looks at the keys there are.
            drop(ring.read(issuer).await);
        });
        drop(reading.await);
    }

    /// Reads an issuer's source now.
    pub(super) async fn refresh(&self, index: usize) -> Result<(), KeySetError> {
        let Some(issuer) = self.issuer(index) else {
            return Ok(());
        };
        let _reading = issuer.reading.lock().await;
        self.read(issuer).await
    }

    async fn read(&self, issuer: &IssuerKeys) -> Result<(), KeySetError> {
        let result = issuer.read(self.ambient.now()).await;
        let outcome = if result.is_ok() { "ok" } else { "failed" };
        metrics::counter!(names::KEY_SET_READINGS, "outcome" => outcome).increment(1);
        if let Err(error) = &result {
            tracing::warn!(
                issuer = issuer.issuer,
                error = error as &dyn std::error::Error,
                former_keys_stay = issuer.current.load().is_some(),
                "an issuer's key set cannot be used"
            );
        }
        self.report();
        result
    }

    fn report(&self) {
        let without_keys = (0..self.issuers.len()).filter(|index| self.usable(*index).is_none());
        let names: Vec<_> = without_keys
            .filter_map(|index| self.issuer(index))
            .map(|keys| &*keys.issuer)
            .collect();
        let now = if names.is_empty() {
            Readiness::Ready
        } else {
            Readiness::NotReady(format!(
                "no usable key set of the issuer {}",
                names.join(", ")
            ))
        };
        self.readiness.send_if_modified(|readiness| {
            let changed = *readiness != now;
            *readiness = now;
            changed
        });
    }
}

impl IssuerKeys {
    fn new(config: &IssuerConfig, index: usize) -> Result<Self, Error> {
        Ok(Self {
            issuer: config.issuer.clone(),
            source: KeySource::new(config, index)?,
            refresh: config.refresh(),
            ttl: config.key_ttl(),
            current: ArcSwapOption::empty(),
            reading: Mutex::new(None),
        })
    }

    async fn read(&self, now: Timestamp) -> Result<(), KeySetError> {
        let bytes = self.source.read().await?;
        let version = Digest::of(&bytes);
        let keys = match self.current.load_full() {
            Some(current) if current.version == version => Arc::clone(&current.keys),
            _ => {
                let keys =
                    KeySet::parse(&bytes).inspect_err(|error| self.clear_withdrawn(error))?;
                tracing::info!(issuer = self.issuer, "an issuer's new key set is in use");
                Arc::new(keys)
            }
        };
        self.current.store(Some(Arc::new(CurrentKeys {
            keys,
            version,
            read_at: now,
        })));
        Ok(())
    }

    /// An issuer that publishes a set without any key has withdrawn its keys; that is no outage to bridge.
    fn clear_withdrawn(&self, error: &KeySetError) {
        if matches!(error, KeySetError::NoUsableKey) {
            self.current.store(None);
        }
    }
}

/// Reads one issuer's source at its interval, and sooner after a failure.
async fn poll(ring: Arc<KeyRing>, index: usize) {
    let Some(refresh) = ring.issuer(index).map(|issuer| issuer.refresh) else {
        return;
    };
    let mut retry = FIRST_RETRY;
    let mut wait = if ring.usable(index).is_some() {
        refresh
    } else {
        retry
    };
    loop {
        tokio::time::sleep(wait).await;
        if ring.refresh(index).await.is_ok() {
            retry = FIRST_RETRY;
            wait = refresh;
        } else {
            wait = retry.min(refresh);
            retry = wait * 2;
        }
    }
}

/// The time between two instants, whichever is first: a clock that steps back neither keeps keys in use
/// for longer nor holds up reading them.
pub(super) fn apart(one: Timestamp, other: Timestamp) -> Duration {
    one.since(other).max(other.since(one))
}
