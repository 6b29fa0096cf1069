//! How long clients may keep a list (MCP 2026-07-28, "Caching").

use std::time::Duration;

use wardgate_domain::OfferKind;

use crate::catalogue::CatalogueSource;

/// Of what is the gateway's own, rights among it, which change at any time. A list is a courtesy: every use is decided
/// anew.
const OWN: Duration = Duration::from_secs(5);

/// The members of a list made of what is of these sources: the shortest time that any of them says. It depends on the
/// caller, so only the caller's own cache may keep it.
pub(crate) fn hints<'s>(
    kind: OfferKind,
    sources: impl Iterator<Item = &'s CatalogueSource>,
) -> String {
    let ttls = sources.filter_map(|source| source.ttls.get(&kind).copied());
    let ttl = ttls.chain([OWN]).min().unwrap_or(OWN).as_millis();
    format!(r#","ttlMs":{ttl},"cacheScope":"private""#)
}
