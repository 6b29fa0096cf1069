//! Which master key encrypts the keys of data subjects in a store.

use wardgate_domain::{Ambient, SealBroken};

use crate::Error;
use crate::details_key::{DetailsKey, DetailsKeys, TagKey, common_tag};
use crate::store::{MasterKeyState, StoreReader, StoreUpkeep};

/// The master key that encrypts the keys of new data subjects, and the key of the tags.
#[derive(Debug, Clone)]
pub(crate) struct KeyInForce {
    pub(crate) key: DetailsKey,
    pub(crate) tags: TagKey,
    /// Whether the store states which key is in force. A new store and a store of an earlier release do not.
    pub(crate) is_stored: bool,
}

impl KeyInForce {
    /// Finds the key in force among `keys`. In a store that does not state it, it is the key that decrypts the common key, or the
    /// current key if the store has no keys. Fails if it is none of `keys`, or if the key that the store is being moved from is
    /// none of them.
    pub(crate) async fn find(keys: &DetailsKeys, reader: &StoreReader) -> Result<Self, Error> {
        if let Some(stored) = reader.master_key().await? {
            let key = keys.find(stored.known_by).ok_or(Error::OtherDetailsKey)?;
            check_former(keys, &stored)?;
            let tags = key.unwrap_tag_key(stored.tag_key);
            return Ok(Self {
                key: key.clone(),
                tags: tags.map_err(|SealBroken| Error::OtherDetailsKey)?,
                is_stored: true,
            });
        }
        let common = reader.subject_keys(&[common_tag()]).await?;
        let key = match common.first() {
            Some((tag, wrapped)) => keys.find_wrapping(*tag, wrapped),
            None => Some(keys.current()),
        };
        let key = key.ok_or(Error::OtherDetailsKey)?;
        Ok(Self {
            key: key.clone(),
            tags: key.first_tags().clone(),
            is_stored: false,
        })
    }

    /// Returns the change of the store that states which key is in force.
    pub(crate) fn adoption(&self, ambient: &Ambient) -> Result<StoreUpkeep, SealBroken> {
        Ok(StoreUpkeep::AdoptMasterKey {
            known_by: self.key.known_by(),
            tag_key: self.key.wrap_tag_key(&self.tags, ambient)?,
        })
    }
}

/// Checks that the key that the store is being moved from, if there is one, is among `keys`.
pub(crate) fn check_former(keys: &DetailsKeys, stored: &MasterKeyState) -> Result<(), Error> {
    match stored.former {
        Some(former) if keys.find(former).is_none() => Err(Error::FormerDetailsKey),
        _ => Ok(()),
    }
}
