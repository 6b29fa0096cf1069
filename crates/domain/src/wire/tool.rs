//! Conversions of tools and column tiers.

use wardgate_proto::common;

use super::parse;
use crate::{ColumnTier, Digest, InvalidMessage, OfferKind, ToolFacts};

impl TryFrom<common::v1::ToolFacts> for ToolFacts {
    type Error = InvalidMessage;

    fn try_from(tool: common::v1::ToolFacts) -> Result<Self, Self::Error> {
        Ok(Self {
            kind: tool.kind().into(),
            name: parse(&tool.name, "tool.name")?,
            definition_digest: Digest::from_wire(
                &tool.definition_digest,
                "tool.definition_digest",
            )?,
            read_only: tool.read_only,
            tags: tool.tags.into(),
            entity: (!tool.entity.is_empty()).then_some(tool.entity),
            classes: tool
                .classes
                .iter()
                .map(|class| parse(class, "tool.classes"))
                .collect::<Result<_, _>>()?,
            argument_defaults: tool.argument_defaults.into_iter().collect(),
        })
    }
}

impl From<&ToolFacts> for common::v1::ToolFacts {
    fn from(tool: &ToolFacts) -> Self {
        Self {
            kind: common::v1::OfferKind::from(tool.kind).into(),
            name: tool.name.to_string(),
            definition_digest: tool.definition_digest.to_wire(),
            read_only: tool.read_only,
            tags: tool.tags.to_vec(),
            entity: tool.entity.clone().unwrap_or_default(),
            classes: tool.classes.iter().map(ToString::to_string).collect(),
            argument_defaults: tool.argument_defaults.clone().into_iter().collect(),
        }
    }
}

impl From<common::v1::OfferKind> for OfferKind {
    fn from(kind: common::v1::OfferKind) -> Self {
        use common::v1::OfferKind as Wire;
        match kind {
            Wire::Unspecified | Wire::Tool => Self::Tool,
            Wire::Connect => Self::Connect,
            Wire::Resources => Self::Resources,
            Wire::Prompts => Self::Prompts,
        }
    }
}

impl From<OfferKind> for common::v1::OfferKind {
    fn from(kind: OfferKind) -> Self {
        match kind {
            OfferKind::Tool => Self::Tool,
            OfferKind::Connect => Self::Connect,
            OfferKind::Resources => Self::Resources,
            OfferKind::Prompts => Self::Prompts,
        }
    }
}

impl TryFrom<common::v1::ColumnTier> for ColumnTier {
    type Error = InvalidMessage;

    fn try_from(tier: common::v1::ColumnTier) -> Result<Self, Self::Error> {
        use common::v1::ColumnTier as Wire;
        match tier {
            Wire::Unspecified => Err(InvalidMessage::field("column_tier", "is unspecified")),
            Wire::Clear => Ok(Self::Clear),
            Wire::Partial => Ok(Self::Partial),
            Wire::Pseudonym => Ok(Self::Pseudonym),
            Wire::Generalised => Ok(Self::Generalised),
            Wire::Dropped => Ok(Self::Dropped),
        }
    }
}

impl From<ColumnTier> for common::v1::ColumnTier {
    fn from(tier: ColumnTier) -> Self {
        match tier {
            ColumnTier::Clear => Self::Clear,
            ColumnTier::Partial => Self::Partial,
            ColumnTier::Pseudonym => Self::Pseudonym,
            ColumnTier::Generalised => Self::Generalised,
            ColumnTier::Dropped => Self::Dropped,
        }
    }
}
