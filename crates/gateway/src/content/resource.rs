//! Lookup of a source's resource by the URI that a client uses.

use bytes::Bytes;
use wardgate_domain::{Caller, OfferKind, ToolFacts};

use super::content_request::ContentName;
use super::reader;
use crate::catalogue::{Catalogue, View};

/// A resource, with the facts that its authorization needs.
#[derive(Debug)]
pub(crate) struct ResolvedResource {
    /// The name of the source.
    pub(crate) source: String,
    /// The URI that the source uses.
    pub(crate) own_uri: String,
    pub(crate) facts: ToolFacts,
    /// The arguments that the policy decides on.
    pub(crate) decided: Bytes,
    /// Whether the source derives its credentials from the caller's token.
    pub(crate) needs_caller_token: bool,
}

/// Returns the resource at `uri` in `view`, or `None` if there is none or its source is switched off for `caller`.
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
        decided: reader::policy_arguments(OfferKind::Resources, &found.own_name),
        source: found.source,
        own_uri: found.own_name,
        facts: facts.clone(),
        needs_caller_token: source.needs_caller_token,
    })
}
