//! The current keys of all issuers, kept up to date.
//!
//! ```text
//!   every refresh_seconds ──────────────┐
//!   (1 s, 2 s, 4 s … after a failure)   ├──▶ refresh: one read at a time ──▶ current keys, readiness
//!   unknown kid, once in 10 s ──────────┘    read fails: the last good set stays until its time to live ends
//!                                            set is empty: the issuer has withdrawn its keys
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

/// Minimum interval between two reads of the source that tokens with unknown key ids cause.
const DEMAND_INTERVAL: Duration = Duration::from_secs(10);
/// Delay before the first retry of a failed read. Each further failure doubles the delay.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Maximum length of a key id, in bytes. Longer ids are refused without reading the source.
const MAX_KEY_ID: usize = 256;

/// The keys of all issuers, in the order of the configuration.
pub(super) struct KeyRing {
    /// The keys of each issuer, or `None` for an issuer with introspection.
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
    /// A lock that is held while the source is read. Its value is the time of the last read that a token caused.
    reading: Mutex<Option<Timestamp>>,
}

/// A key set, with the time at which it was read.
pub(super) struct CurrentKeys {
    keys: Arc<KeySet>,
    version: Digest,
    read_at: Timestamp,
}

impl CurrentKeys {
    /// Returns the key with this id, if the set contains it.
    pub(super) fn find(&self, id: Option<&str>) -> Option<&Key> {
        self.keys.find(id)
    }

    /// Returns the version of the set, which changes with every change of the set.
    pub(super) fn version(&self) -> Digest {
        self.version
    }
}

impl KeyRing {
    /// Reads every key set once. A file that is not usable is an error; a URL that is not usable is retried by
    /// [`KeyRing::keep_current`].
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
        let readiness = watch::Sender::new(Readiness::NotReady(
            "no key set has been read yet".to_owned(),
        ));
        let ring = Arc::new(Self {
            issuers,
            ambient,
            readiness,
        });
        let readings = join_all((0..configs.len()).map(|index| ring.refresh(index))).await;
        // Without keys to read, no read has reported the readiness.
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

    /// Starts tasks that read the sources periodically, as long as the handles live.
    pub(super) fn keep_current(self: &Arc<Self>) -> Vec<AbortOnDropHandle<()>> {
        let poll = |index| AbortOnDropHandle::new(tokio::spawn(poll(Arc::clone(self), index)));
        (0..self.issuers.len()).map(poll).collect()
    }

    /// Returns a readiness that is ready while every issuer has keys.
    pub(super) fn readiness(&self) -> watch::Receiver<Readiness> {
        self.readiness.subscribe()
    }

    /// Returns the version of an issuer's keys, if it has keys that may be used now.
    pub(super) fn version(&self, index: usize) -> Option<Digest> {
        self.usable(index).map(|keys| keys.version)
    }

    /// Returns the keys of an issuer if they contain the key `id`. An unknown id causes the source to be read again.
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

    /// Reads an issuer's source unless that happened recently. The read is a separate task, because a client that
    /// disconnects must not cancel a read for which other requests wait.
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
            // An error is logged, and the caller uses the existing keys.
            drop(ring.refresh_issuer(issuer).await);
        });
        drop(reading.await);
    }

    /// Reads an issuer's source now.
    pub(super) async fn refresh(&self, index: usize) -> Result<(), KeySetError> {
        let Some(issuer) = self.issuer(index) else {
            return Ok(());
        };
        let _reading = issuer.reading.lock().await;
        self.refresh_issuer(issuer).await
    }

    async fn refresh_issuer(&self, issuer: &IssuerKeys) -> Result<(), KeySetError> {
        let result = issuer.refresh_keys(self.ambient.now()).await;
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

    async fn refresh_keys(&self, now: Timestamp) -> Result<(), KeySetError> {
        let bytes = self.source.read_key_set().await?;
        let version = Digest::compute(&bytes);
        let keys = match self.current.load_full() {
            Some(current) if current.version == version => Arc::clone(&current.keys),
            _ => {
                let keys =
                    KeySet::parse(&bytes).inspect_err(|error| self.clear_withdrawn(error))?;
                tracing::info!(issuer = self.issuer, "a new key set of an issuer is in use");
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

    /// Removes the keys if the issuer publishes a set without any usable key. The issuer has then withdrawn its keys;
    /// this is not an outage that has to be bridged.
    fn clear_withdrawn(&self, error: &KeySetError) {
        if matches!(error, KeySetError::NoUsableKey) {
            self.current.store(None);
        }
    }
}

/// Reads an issuer's source at its interval, and earlier after a failure.
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

/// Returns the time between two instants in either order. A clock that is set back therefore neither extends the use of
/// keys nor delays reading them.
pub(super) fn apart(one: Timestamp, other: Timestamp) -> Duration {
    one.since(other).max(other.since(one))
}
