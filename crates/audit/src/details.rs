//! Details of calls: what the record holds beside its tree, sealed so that it can be erased.
//!
//! ```text
//!   master key ─┬─ wraps ──▶ a random key for each data subject ─┐
//!               └─ keyed digest of the data subject ─▶ its tag   ├─▶ key of one call's details ── seals ──▶ details
//!                                            keys of others ─────┘          └─ keyed digest ──▶ the record
//! ```
//!
//! The details of a call open only with the keys of all data subjects that it concerned, so to destroy one of these keys is to
//! erase them. The record holds a keyed digest under the same keys: it says nothing once they are gone, and every proof stays
//! valid. Calls that concern nobody have a key in common.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use aws_lc_rs::hmac;
use serde::Serialize;
use tokio::time::Instant;
use wardgate_domain::{About, Ambient, CallDetails, Digest, SealBroken, SealKey, derive_keys};
use wardgate_rpc::client::RecordDetails;

use crate::Error;
use crate::details_key::{DetailsKey, mac};
use crate::sealed_details::SealedDetails;
use crate::store::{StoreReader, SubjectKeys};
use crate::writer::AppendQueue;

const SEALING: &[u8] = b"wardgate audit: details of a call v1";
const COMMITMENTS: &[u8] = b"wardgate audit: commitments to details v1";

/// Stands for the key that calls have in common which concern nobody. It is the same under every master key, so that a wrong
/// one shows.
fn common_tag() -> Digest {
    About::new("no data subject").digest()
}

/// Room for the details of most calls.
const USUAL_BYTES: usize = 768;

/// Keys in memory at most.
const CACHED: usize = 4_096;

/// How long a key is used without asking the store for it: what a replica seals under a key that another one destroyed is
/// erased with it.
const CACHED_FOR: Duration = Duration::from_mins(1);

/// The key of the details of one call.
#[derive(Debug)]
struct CallKey {
    sealing: SealKey,
    commitment: hmac::Key,
}

impl CallKey {
    /// Of the keys of the data subjects, in the order of their tags.
    fn of(keys: &[[u8; 32]]) -> Self {
        let joined = Digest::of_parts(keys.iter().map(<[u8; 32]>::as_slice));
        let [sealing, commitment] = derive_keys(joined.as_bytes(), [SEALING, COMMITMENTS]);
        Self {
            sealing: SealKey::from_bytes(&sealing),
            commitment: hmac::Key::new(hmac::HMAC_SHA256, &commitment),
        }
    }
}

/// The keys of data subjects by their tags, and when each was read.
type CachedKeys = HashMap<Digest, (Instant, [u8; 32])>;

/// Seals details, and opens them.
#[derive(Debug, Clone)]
pub(crate) struct DetailsVault {
    key: DetailsKey,
    reader: StoreReader,
    cached: Arc<Mutex<CachedKeys>>,
    /// Of calls that concern nobody: derived once, since it is never destroyed.
    common: Arc<OnceLock<CallKey>>,
}

impl DetailsVault {
    pub(crate) fn new(key: DetailsKey, reader: StoreReader) -> Self {
        Self {
            key,
            reader,
            cached: Arc::default(),
            common: Arc::default(),
        }
    }

    pub(crate) fn key(&self) -> &DetailsKey {
        &self.key
    }

    /// Makes the common key, or sees that it is under this master key.
    pub(crate) async fn prepare(
        &self,
        appends: &AppendQueue,
        ambient: &Ambient,
    ) -> Result<(), Error> {
        let keys = self.keys_or_new(&[common_tag()], appends, ambient).await?;
        self.common.get_or_init(|| CallKey::of(&keys));
        Ok(())
    }

    /// The details of a call by a caller of `tenant`, sealed about the call `call_id`. Data subjects that have no key get one.
    pub(crate) async fn seal(
        &self,
        tenant: &str,
        call_id: &str,
        details: &CallDetails,
        appends: &AppendQueue,
        ambient: &Ambient,
    ) -> Result<SealedDetails, Error> {
        let named = details.result.subjects.named();
        let mut subjects: Vec<_> = named
            .map(|subject| (self.key.tag(tenant, &subject.key), subject.rows))
            .collect();
        subjects.sort_unstable();
        let of_subjects;
        let call_key = match self.common.get() {
            Some(common) if subjects.is_empty() => common,
            _ => {
                let tags = tags_or_common(subjects.iter().map(|(tag, _)| *tag));
                of_subjects = CallKey::of(&self.keys_or_new(&tags, appends, ambient).await?);
                &of_subjects
            }
        };
        let mut plain = Vec::with_capacity(USUAL_BYTES);
        serde_json::to_writer(&mut plain, &PlainDetails::of(details))
            .map_err(|_| Error::NotDurable)?;
        let sealed = call_key.sealing.seal(&about_call(call_id), &plain, ambient);
        Ok(SealedDetails {
            commitment: mac(&call_key.commitment, &plain),
            sealed: sealed.map_err(|SealBroken| Error::NotDurable)?,
            subjects,
            rows_of_others: details.result.subjects.rows_of_others(),
        })
    }

    /// The details that were sealed about the call `call_id`, which concerned the data subjects of `tags`. `commitment` is
    /// what the record says of them; none where that are other details.
    pub(crate) async fn open(
        &self,
        call_id: &str,
        tags: Vec<Digest>,
        commitment: &str,
        sealed: Vec<u8>,
    ) -> Result<Option<RecordDetails>, Error> {
        let tags = tags_or_common(tags);
        let keys = self.find(&tags).await?;
        let keys: Option<Vec<_>> = tags.iter().map(|tag| keys.get(tag).copied()).collect();
        let Some(keys) = keys else {
            return Ok(Some(RecordDetails::Erased));
        };
        let call_key = CallKey::of(&keys);
        // Not under the keys that there are: those that it was sealed under were destroyed, and new ones made since.
        let Ok(plain) = call_key.sealing.open(&about_call(call_id), sealed) else {
            return Ok(Some(RecordDetails::Erased));
        };
        let is_recorded = mac(&call_key.commitment, &plain).to_hex() == commitment;
        Ok(is_recorded.then(|| RecordDetails::Open(plain.into())))
    }

    /// Forgets a key that was destroyed.
    pub(crate) fn forget(&self, tag: Digest) {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        cached.remove(&tag);
    }

    /// The keys of `tags`, in their order.
    async fn keys_or_new(
        &self,
        tags: &[Digest],
        appends: &AppendQueue,
        ambient: &Ambient,
    ) -> Result<Vec<[u8; 32]>, Error> {
        let in_order = |found: &HashMap<Digest, [u8; 32]>| {
            let keys = tags.iter().map(|tag| found.get(tag).copied());
            keys.collect::<Option<Vec<_>>>()
        };
        let found = self.find(tags).await?;
        if let Some(keys) = in_order(&found) {
            return Ok(keys);
        }
        let missing = tags.iter().filter(|tag| !found.contains_key(tag));
        let wrapped = missing.map(|tag| Ok((*tag, self.key.wrap(*tag, ambient)?)));
        let wrapped: Result<SubjectKeys, SealBroken> = wrapped.collect();
        appends
            .add_subject_keys(wrapped.map_err(|SealBroken| Error::NotDurable)?)
            .await?;
        // Of two that were made at once the store has kept one.
        let found = self.find(tags).await?;
        in_order(&found).ok_or(Error::NotDurable)
    }

    /// Those keys of `tags` that there are.
    async fn find(&self, tags: &[Digest]) -> Result<HashMap<Digest, [u8; 32]>, Error> {
        let mut found = self.cached(tags);
        let missing: Vec<_> = (tags.iter().copied())
            .filter(|tag| !found.contains_key(tag))
            .collect();
        if missing.is_empty() {
            return Ok(found);
        }
        let stored = self.reader.subject_keys(&missing).await?;
        let now = Instant::now();
        let stored = stored.into_iter().map(|(tag, wrapped)| {
            let key = self.key.unwrap(tag, wrapped)?;
            Ok((tag, key))
        });
        let stored = stored.collect::<Result<Vec<_>, Error>>()?;
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        if cached.len() + stored.len() > CACHED {
            cached.clear();
        }
        for (tag, key) in stored {
            cached.insert(tag, (now, key));
            found.insert(tag, key);
        }
        Ok(found)
    }

    fn cached(&self, tags: &[Digest]) -> HashMap<Digest, [u8; 32]> {
        let cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let known = tags.iter().filter_map(|tag| {
            let (since, key) = cached.get(tag)?;
            (since.elapsed() < CACHED_FOR).then_some((*tag, *key))
        });
        known.collect()
    }
}

/// `tags`, or that of the common key where there are none.
fn tags_or_common(tags: impl IntoIterator<Item = Digest>) -> Vec<Digest> {
    let mut tags: Vec<_> = tags.into_iter().collect();
    if tags.is_empty() {
        tags.push(common_tag());
    }
    tags
}

fn about_call(call_id: &str) -> About {
    About::new("details of a call").and(call_id.as_bytes())
}

/// The details as they are sealed: one JSON object.
#[derive(Serialize)]
struct PlainDetails<'a> {
    caller_digest: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    client: &'a str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    actors: &'a [String],
    arguments: Vec<PlainArgument<'a>>,
    arguments_undeclared: u64,
    columns: Vec<PlainColumn<'a>>,
    columns_unclassified: u64,
    columns_not_permitted: u64,
    data_subjects: Vec<PlainSubject>,
    rows_undecided: u64,
    stages_us: Vec<(&'a str, u64)>,
    #[serde(skip_serializing_if = "str::is_empty")]
    trace_id: &'a str,
}

#[derive(Serialize)]
struct PlainArgument<'a> {
    name: &'a str,
    r#type: &'a str,
    size: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    value: &'a str,
}

#[derive(Serialize)]
struct PlainColumn<'a> {
    name: &'a str,
    class: String,
    tier: &'static str,
    r#type: &'a str,
}

#[derive(Serialize)]
struct PlainSubject {
    key: String,
    rows: u64,
}

impl<'a> PlainDetails<'a> {
    fn of(details: &'a CallDetails) -> Self {
        let arguments = details.arguments.declared.iter();
        let arguments = arguments.map(|argument| PlainArgument {
            name: &argument.name,
            r#type: &argument.kind,
            size: argument.size,
            value: &argument.value,
        });
        let columns = details.result.columns.iter().map(|column| PlainColumn {
            name: &column.name,
            class: column.class.to_string(),
            tier: column.tier.as_str(),
            r#type: &column.kind,
        });
        let subjects = details.result.subjects.named();
        let stages = details.stages.iter().map(|(stage, spent)| {
            let micros = u64::try_from(spent.as_micros()).unwrap_or(u64::MAX);
            (stage.as_str(), micros)
        });
        Self {
            caller_digest: details.caller_digest.to_string(),
            client: &details.client,
            actors: &details.actors,
            arguments: arguments.collect(),
            arguments_undeclared: details.arguments.undeclared,
            columns: columns.collect(),
            columns_unclassified: details.columns_unclassified,
            columns_not_permitted: details.columns_not_permitted,
            data_subjects: subjects
                .map(|subject| PlainSubject {
                    key: subject.key,
                    rows: subject.rows,
                })
                .collect(),
            rows_undecided: details.result.rows_undecided,
            stages_us: stages.collect(),
            trace_id: &details.trace_id,
        }
    }
}
