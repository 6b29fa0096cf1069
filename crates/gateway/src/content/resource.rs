//! A resource of a source, found by the URI that a client has for it.

use bytes::Bytes;
use wardgate_domain::{Caller, OfferKind, ToolFacts};

use super::content_request::{self, ContentName};
use crate::catalogue::{Catalogue, View};

/// What there is to decide on, for whoever wants to read it.
#[derive(Debug)]
pub(crate) struct ResolvedResource {
    /// Name of the source.
    pub(crate) source: String,
    /// What the source calls it.
    pub(crate) own_uri: String,
    pub(crate) facts: ToolFacts,
    /// What the policy decides on.
    pub(crate) decided: Bytes,
    /// Its source makes credentials of the caller's token.
    pub(crate) needs_caller_token: bool,
}

/// The resource at `uri` in `view`, unless its source is off for `caller`.
pub(crate) fn resolve_resource(
    catalogue: &Catalogue,
    caller: &Caller,
    view: &View,
    uri: &str,
) -> Option<ResolvedResource> {
    let catalogue = catalogue.current()?;
    let content = catalogue.content();
    let found = ContentName::Resource(uri.to_owned()).find(content, view)?;
    let is_seen = view.has(content.source(&found.source)?);
    let source = catalogue.source(&found.source).filter(|_| is_seen)?;
    let facts = source.facts.get(&OfferKind::Resources)?;
    source.switches.allow(caller).then(|| ResolvedResource {
        decided: content_request::policy_arguments(OfferKind::Resources, &found.own_name),
        source: found.source,
        own_uri: found.own_name,
        facts: facts.clone(),
        needs_caller_token: source.needs_caller_token,
    })
}
