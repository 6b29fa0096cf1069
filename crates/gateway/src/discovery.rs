//! Discovery: what the catalogue offers to a caller under the policy.

use wardgate_domain::OfferKind;
use wardgate_rpc::client::Skills;

use crate::authority::Authority;
use crate::catalogue::{Catalogue, View};

/// The catalogue, and the authority that decides who may see which part of it.
pub(crate) struct Discovery {
    catalogue: Catalogue,
    authority: Authority,
    /// Whether there is a memory service.
    has_memory: bool,
}

/// The content that a view offers, regardless of the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OfferedContent {
    pub(crate) prompts: bool,
    /// Whether sources offer resources. Conversations do not count.
    pub(crate) resources: bool,
    /// Whether the memory service offers conversations.
    pub(crate) conversations: bool,
    pub(crate) skills: Option<Skills>,
}

impl Discovery {
    pub(crate) fn new(catalogue: Catalogue, authority: Authority, has_memory: bool) -> Self {
        Self {
            catalogue,
            authority,
            has_memory,
        }
    }

    pub(crate) fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    pub(crate) fn authority(&self) -> &Authority {
        &self.authority
    }

    /// Returns which prompts, resources and skills `view` offers, according to the last known catalogue.
    pub(crate) fn offered_content(&self, view: &View) -> OfferedContent {
        let catalogue = self.catalogue.current();
        let offers = |kind| {
            let catalogue = catalogue.as_ref();
            catalogue.is_some_and(|catalogue| catalogue.content().offers(kind, view))
        };
        OfferedContent {
            prompts: offers(OfferKind::Prompts),
            resources: offers(OfferKind::Resources),
            conversations: self.has_memory && view.has_conversations(),
            skills: catalogue.as_ref().and_then(|it| it.content().skills(view)),
        }
    }

    /// Returns whether calls of any tool in `view` may become tasks, regardless of the caller.
    pub(crate) fn offers_tasks(&self, view: &View) -> bool {
        let catalogue = self.catalogue.current();
        catalogue.is_some_and(|catalogue| {
            let tools = view.tools(&catalogue);
            tools.iter().any(|seen| seen.tool.may_be_task)
        })
    }
}
