//! Check that the digests in the store were made with the configured key.

use wardgate_domain::Digest;

use crate::store::{StoreReader, StoreUpkeep};
use crate::writer::AppendQueue;
use crate::{Error, MacKey};

/// Fails if the digests in the store were made with another key than `key`. If `former` is the check value of that other key,
/// `key` replaces it instead.
pub(crate) async fn check_mac_key(
    key: &MacKey,
    former: Option<Digest>,
    reader: &StoreReader,
    appends: &AppendQueue,
) -> Result<(), Error> {
    let own = key.check_value();
    let stored = reader.mac_check().await?;
    if stored == Some(own) {
        return Ok(());
    }
    if let Some(stored) = stored
        && former != Some(stored)
    {
        return Err(Error::OtherMacKey { stored });
    }
    let change = StoreUpkeep::SetMacCheck {
        from: stored,
        to: own,
    };
    if appends.keep_up(change).await? {
        return Ok(());
    }
    // Another process has set a key in the meantime, and its key counts.
    match reader.mac_check().await? {
        Some(stored) if stored != own => Err(Error::OtherMacKey { stored }),
        _ => Ok(()),
    }
}
