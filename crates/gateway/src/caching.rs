//! Cache hints: how long clients may keep a list (MCP 2026-07-28, "Caching").

use std::time::Duration;

use wardgate_domain::OfferKind;

use crate::catalogue::CatalogueSource;

/// Maximum time that a client may keep a list. The caller's rights, on which a list depends, may change at any time; every use
/// of an entry is authorized again.
const OWN: Duration = Duration::from_secs(5);

/// Returns the cache members of a list whose entries come from `sources`, with the shortest time to live of any of them. The
/// list depends on the caller, so only the caller's own cache may keep it.
pub(crate) fn hints<'s>(
    kind: OfferKind,
    sources: impl Iterator<Item = &'s CatalogueSource>,
) -> String {
    let ttls = sources.filter_map(|source| source.ttls.get(&kind).copied());
    let ttl = ttls.chain([OWN]).min().unwrap_or(OWN).as_millis();
    format!(r#","ttlMs":{ttl},"cacheScope":"private""#)
}
