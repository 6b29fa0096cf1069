//! Details of calls, which are stored beside the tree and sealed so that they can be erased.
//!
//! ```text
//!   master key ─── wraps ──▶ a random key for each data subject ─┐
//!                                                                ├─▶ key of one call's details ── seals ──▶ details
//!                                keys of other data subjects ────┘          └─ keyed digest ──▶ the record
//! ```
//!
//! The details of a call can be opened only with the keys of all data subjects that the call concerned, so the destruction of
//! one of these keys erases them. The record contains a digest of the details that is keyed with the same keys. Without the
//! keys, the digest reveals nothing, and every proof remains valid. Calls that concern no data subject share a common key.

use std::collections::HashMap;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use aws_lc_rs::hmac;
use serde::Serialize;
use tokio::time::Instant;
use wardgate_domain::{About, Ambient, CallDetails, Digest, SealBroken, SealKey, derive_keys};
use wardgate_rpc::client::RecordDetails;

use crate::Error;
use crate::details_key::{DetailsKey, DetailsKeys, TagKey, common_tag, mac};
use crate::master_key::KeyInForce;
use crate::sealed_details::SealedDetails;
use crate::store::{NewSubjectKey, StoreReader};
use crate::writer::AppendQueue;

const SEALING: &[u8] = b"wardgate audit: details of a call v1";
const COMMITMENTS: &[u8] = b"wardgate audit: commitments to details v1";

/// Initial capacity in bytes of the buffer for details, which is enough for most calls.
const USUAL_BYTES: usize = 768;

/// Maximum number of keys in the cache.
const CACHED: usize = 4_096;

/// How often keys of new data subjects are added. The store refuses the first ones if a rotation of the master key has begun
/// since the key in force was read.
const ADDITIONS: u32 = 2;

/// Time for which a cached key is used without a query of the store. Details that a replica seals with a key that another
/// replica destroyed are erased with that key.
const CACHED_FOR: Duration = Duration::from_mins(1);

/// The key of the details of one call.
#[derive(Debug)]
struct CallKey {
    sealing: SealKey,
    commitment: hmac::Key,
}

impl CallKey {
    /// Derives the key from the keys of the data subjects, which are in the order of their tags.
    fn from_subject_keys(keys: &[[u8; 32]]) -> Self {
        let joined = Digest::of_parts(keys.iter().map(<[u8; 32]>::as_slice));
        let [sealing, commitment] = derive_keys(joined.as_bytes(), [SEALING, COMMITMENTS]);
        Self {
            sealing: SealKey::from_bytes(&sealing),
            commitment: hmac::Key::new(hmac::HMAC_SHA256, &commitment),
        }
    }
}

/// The keys of data subjects by their tags, and the time at which each key was read.
type CachedKeys = HashMap<Digest, (Instant, [u8; 32])>;

/// Seals and opens details.
#[derive(Debug)]
pub(crate) struct DetailsVault {
    keys: DetailsKeys,
    tags: TagKey,
    /// The master key that encrypts the keys of new data subjects.
    in_force: Mutex<DetailsKey>,
    reader: StoreReader,
    cached: Mutex<CachedKeys>,
    /// The key of calls that concern no data subject. It is derived once, because it is never destroyed.
    common: OnceLock<CallKey>,
}

impl DetailsVault {
    /// Opens the details in the store of `reader`. Fails if its master key is none of `keys`.
    pub(crate) async fn open(keys: DetailsKeys, reader: StoreReader) -> Result<Self, Error> {
        let in_force = KeyInForce::find(&keys, &reader).await?;
        Ok(Self::under(in_force, keys, reader))
    }

    /// Opens the details in a store for a service that seals details. A new store gets the current master key and the common
    /// key.
    pub(crate) async fn prepare(
        keys: DetailsKeys,
        reader: StoreReader,
        appends: &AppendQueue,
        ambient: &Ambient,
    ) -> Result<Self, Error> {
        let mut in_force = KeyInForce::find(&keys, &reader).await?;
        if !in_force.is_stored {
            let adoption = in_force.adoption(ambient);
            let adoption = adoption.map_err(|SealBroken| Error::NotDurable)?;
            appends.keep_up(adoption).await?;
            // If two processes adopted a key at the same time, the store has kept one of the two.
            in_force = KeyInForce::find(&keys, &reader).await?;
        }
        let vault = Self::under(in_force, keys, reader);
        let common = [common_tag()];
        let common = vault.keys_or_new(&common, appends, ambient).await?;
        vault
            .common
            .get_or_init(|| CallKey::from_subject_keys(&common));
        Ok(vault)
    }

    fn under(in_force: KeyInForce, keys: DetailsKeys, reader: StoreReader) -> Self {
        Self {
            keys,
            tags: in_force.tags,
            in_force: Mutex::new(in_force.key),
            reader,
            cached: Mutex::default(),
            common: OnceLock::new(),
        }
    }

    pub(crate) fn tags(&self) -> &TagKey {
        &self.tags
    }

    /// Seals the details of the call `call_id` by a caller of `tenant`. Data subjects that have no key get one.
    pub(crate) async fn seal(
        &self,
        tenant: &str,
        call_id: &str,
        details: &CallDetails,
        appends: &AppendQueue,
        ambient: &Ambient,
    ) -> Result<SealedDetails, Error> {
        let named = details.result.subjects.named_subjects();
        let mut subjects: Vec<_> = named
            .map(|subject| (self.tags.tag(tenant, &subject.key), subject.rows))
            .collect();
        subjects.sort_unstable();
        let of_subjects;
        let call_key = match self.common.get() {
            Some(common) if subjects.is_empty() => common,
            _ => {
                let tags = tags_or_common(subjects.iter().map(|(tag, _)| *tag));
                of_subjects =
                    CallKey::from_subject_keys(&self.keys_or_new(&tags, appends, ambient).await?);
                &of_subjects
            }
        };
        let mut plain = Vec::with_capacity(USUAL_BYTES);
        serde_json::to_writer(&mut plain, &PlainDetails::from_details(details))
            .map_err(|_| Error::NotDurable)?;
        let sealed = call_key.sealing.seal(&about_call(call_id), &plain, ambient);
        Ok(SealedDetails {
            commitment: mac(&call_key.commitment, &plain),
            sealed: sealed.map_err(|SealBroken| Error::NotDurable)?,
            subjects,
            rows_of_others: details.result.subjects.rows_of_others(),
        })
    }

    /// Opens the details of the call `call_id`, which concerned the data subjects of `tags`. Returns `None` if the details do
    /// not match `commitment`, which is their keyed digest in the record.
    pub(crate) async fn open_details(
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
        let call_key = CallKey::from_subject_keys(&keys);
        // The details are sealed with other keys than the present ones: their keys were destroyed, and new ones were created
        // since.
        let Ok(plain) = call_key.sealing.open(&about_call(call_id), sealed) else {
            return Ok(Some(RecordDetails::Erased));
        };
        let is_recorded = mac(&call_key.commitment, &plain).to_hex() == commitment;
        Ok(is_recorded.then(|| RecordDetails::Open(plain.into())))
    }

    /// Removes a destroyed key from the cache.
    pub(crate) fn forget(&self, tag: Digest) {
        let mut cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        cached.remove(&tag);
    }

    /// Returns the keys of `tags` in the same order, and creates the missing ones.
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
        for addition in 0..=ADDITIONS {
            // If two processes created a key at the same time, the store has kept one of the two.
            let found = self.find(tags).await?;
            if let Some(keys) = in_order(&found) {
                return Ok(keys);
            }
            if addition == ADDITIONS {
                break;
            }
            if addition > 0 {
                self.read_key_in_force().await?;
            }
            let in_force = self.key_in_force();
            let missing = tags.iter().filter(|tag| !found.contains_key(tag));
            let new = missing.map(|tag| {
                Ok(NewSubjectKey {
                    tag: *tag,
                    wrapped: in_force.wrap(*tag, ambient)?,
                    known_by: in_force.known_by(),
                })
            });
            let new: Result<Vec<_>, SealBroken> = new.collect();
            let new = new.map_err(|SealBroken| Error::NotDurable)?;
            appends.add_subject_keys(new).await?;
        }
        Err(Error::NotDurable)
    }

    fn key_in_force(&self) -> DetailsKey {
        let in_force = self.in_force.lock();
        in_force.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reads which master key is in force from the store.
    async fn read_key_in_force(&self) -> Result<(), Error> {
        let found = KeyInForce::find(&self.keys, &self.reader).await?;
        let mut in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        *in_force = found.key;
        Ok(())
    }

    /// Returns the existing keys of `tags`, from the cache or from the store.
    async fn find(&self, tags: &[Digest]) -> Result<HashMap<Digest, [u8; 32]>, Error> {
        let mut found = self.cached_keys(tags);
        let missing: Vec<_> = (tags.iter().copied())
            .filter(|tag| !found.contains_key(tag))
            .collect();
        if missing.is_empty() {
            return Ok(found);
        }
        let stored = self.reader.subject_keys(&missing).await?;
        let now = Instant::now();
        let stored = stored.into_iter().map(|(tag, wrapped)| {
            let key = self.keys.unwrap(tag, &wrapped)?;
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

    fn cached_keys(&self, tags: &[Digest]) -> HashMap<Digest, [u8; 32]> {
        let cached = self.cached.lock().unwrap_or_else(PoisonError::into_inner);
        let known = tags.iter().filter_map(|tag| {
            let (since, key) = cached.get(tag)?;
            (since.elapsed() < CACHED_FOR).then_some((*tag, *key))
        });
        known.collect()
    }
}

/// Returns `tags`, or the tag of the common key if `tags` is empty.
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

/// The details before they are sealed: one JSON object.
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
    fn from_details(details: &'a CallDetails) -> Self {
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
        let subjects = details.result.subjects.named_subjects();
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
