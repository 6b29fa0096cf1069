//! Pins: the approved definitions of the tools of MCP upstreams.
//!
//! ```text
//!   tools.lock ─▶ Pins ─┐
//!                       ├─ judge ─▶ approved │ new │ drifted (diff, grade) │ gone │ refused
//!   tools/list ─────────┘            └ offered   └─ quarantined, each alone ─┘
//! ```
//!
//! No description of a tool that an upstream sends, nor the upstream's description of itself (its `instructions`), reaches
//! a model before a person approved it. A definition is pinned as a whole by the SHA-256 of its canonical form, so any
//! change requires a new approval.

mod diff;
mod display;
mod escape;
mod grade;
mod judge;
mod lock;
mod names;
mod pointer;
mod suspicion;

use std::collections::BTreeMap;

use wardgate_domain::Timestamp;
use wardgate_mcp_client::{CanonicalDefinition, INSTRUCTIONS};

pub use diff::{Change, Diff};
pub use escape::EscapedText;
pub use grade::Grade;
pub use judge::{JudgedTool, PinJudgement, UpstreamOffer};
pub use names::Names;
pub use suspicion::{Finding, SuspicionKind};

/// The approved definitions, by source and by the upstream's names of its tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pins {
    sources: BTreeMap<String, BTreeMap<String, Pin>>,
    /// The approved instructions of servers, by source.
    instructions: BTreeMap<String, Pin>,
}

/// One approval.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Pin {
    definition: CanonicalDefinition,
    approved_at: Timestamp,
    approved_by: String,
}

impl Pins {
    /// Approves `definition`, which replaces any earlier approval.
    pub fn approve(
        &mut self,
        source: &str,
        definition: CanonicalDefinition,
        by: &str,
        at: Timestamp,
    ) {
        let tool = definition.name().to_owned();
        let pin = Pin {
            definition,
            approved_at: at,
            approved_by: by.to_owned(),
        };
        if pin.definition.instructions().is_some() {
            self.instructions.insert(source.to_owned(), pin);
            return;
        }
        self.sources
            .entry(source.to_owned())
            .or_default()
            .insert(tool, pin);
    }

    /// Removes the approval of a tool that no longer exists.
    pub fn forget(&mut self, source: &str, tool: &str) {
        if let Some(tools) = self.sources.get_mut(source) {
            tools.remove(tool);
            if tools.is_empty() {
                self.sources.remove(source);
            }
        }
    }

    /// Returns whether any tool of `source` is approved.
    pub fn knows(&self, source: &str) -> bool {
        self.sources.contains_key(source)
    }

    /// Returns the approved definition of a tool.
    pub fn approved_definition(&self, source: &str, tool: &str) -> Option<&CanonicalDefinition> {
        let pin = self.sources.get(source)?.get(tool)?;
        Some(&pin.definition)
    }

    /// Returns the name of the approver of a tool, or of the instructions if `tool` is [`INSTRUCTIONS`].
    pub fn approver(&self, source: &str, tool: &str) -> Option<&str> {
        let pin = match tool {
            INSTRUCTIONS => self.instructions.get(source)?,
            tool => self.sources.get(source)?.get(tool)?,
        };
        Some(&pin.approved_by)
    }

    /// Returns the approved instructions of the server of `source`.
    pub fn instructions(&self, source: &str) -> Option<&CanonicalDefinition> {
        Some(&self.instructions.get(source)?.definition)
    }

    /// Copies the approvals of `source` from `others`, unless a tool of `source` is approved here.
    pub fn adopt(&mut self, source: &str, others: &Self) {
        if let Some(tools) = others.sources.get(source).filter(|_| !self.knows(source)) {
            self.sources.insert(source.to_owned(), tools.clone());
            if let Some(pin) = others.instructions.get(source) {
                self.instructions.insert(source.to_owned(), pin.clone());
            }
        }
    }

    /// Returns the approved definitions of `source`, ordered by name.
    pub fn definitions(&self, source: &str) -> impl Iterator<Item = &CanonicalDefinition> {
        self.sources
            .get(source)
            .into_iter()
            .flat_map(|tools| tools.values().map(|pin| &pin.definition))
    }
}

#[cfg(test)]
mod tests;
