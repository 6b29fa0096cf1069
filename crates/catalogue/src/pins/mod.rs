//! Pins: what the tools of MCP upstreams were when somebody approved them.
//!
//! ```text
//!   tools.lock ─▶ Pins ─┐
//!                       ├─ judge ─▶ approved │ new │ drifted (diff, grade) │ gone │ refused
//!   tools/list ─────────┘            └ offered   └─ quarantined, each alone ─┘
//! ```
//!
//! One job: nothing that an upstream says of a tool, or of itself (its `instructions`), reaches a model before a person saw it. A definition is
//! pinned whole, by the SHA-256 of its canonical form; whoever changes any of it offers another tool.

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

/// The approved definitions, by source and by the upstream's own names of its tools.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pins {
    sources: BTreeMap<String, BTreeMap<String, Pin>>,
    /// By source: what its server says of itself.
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
    /// Somebody approves `definition` as it is, in place of what was approved before.
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

    /// Somebody agrees that a tool is gone.
    pub fn forget(&mut self, source: &str, tool: &str) {
        if let Some(tools) = self.sources.get_mut(source) {
            tools.remove(tool);
            if tools.is_empty() {
                self.sources.remove(source);
            }
        }
    }

    /// True when any tool of `source` was ever approved.
    pub fn knows(&self, source: &str) -> bool {
        self.sources.contains_key(source)
    }

    /// What was approved under that name.
    pub fn pinned(&self, source: &str, tool: &str) -> Option<&CanonicalDefinition> {
        let pin = self.sources.get(source)?.get(tool)?;
        Some(&pin.definition)
    }

    /// Who approved it.
    pub fn approver(&self, source: &str, tool: &str) -> Option<&str> {
        let pin = match tool {
            INSTRUCTIONS => self.instructions.get(source)?,
            tool => self.sources.get(source)?.get(tool)?,
        };
        Some(&pin.approved_by)
    }

    /// What the server was approved to say of itself.
    pub fn instructions(&self, source: &str) -> Option<&CanonicalDefinition> {
        Some(&self.instructions.get(source)?.definition)
    }

    /// Takes over what `others` know of `source`, unless anything of it was approved here.
    pub fn adopt(&mut self, source: &str, others: &Self) {
        if let Some(tools) = others.sources.get(source).filter(|_| !self.knows(source)) {
            self.sources.insert(source.to_owned(), tools.clone());
            if let Some(pin) = others.instructions.get(source) {
                self.instructions.insert(source.to_owned(), pin.clone());
            }
        }
    }

    /// What was approved of `source`, by name.
    pub fn of(&self, source: &str) -> impl Iterator<Item = &CanonicalDefinition> {
        self.sources
            .get(source)
            .into_iter()
            .flat_map(|tools| tools.values().map(|pin| &pin.definition))
    }
}

#[cfg(test)]
mod tests;
