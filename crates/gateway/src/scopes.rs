//! OAuth scopes: what the token of a request must contain for an operation, in addition to the rights of its holder.
//!
//! A scope is what a person lets a client request, and a right is what the person has. An operation needs both. The policy is
//! asked first: the error for a missing scope is returned only for operations that the user may perform, so that a 403 reveals
//! no hidden tool, and nobody is asked to consent to an operation that would be denied anyway.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use wardgate_domain::{OfferKind, ToolFacts};
use wardgate_edge::Scopes;
use wardgate_mcp_server::RpcError;

/// The scopes that operations need. By default they need none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScopesConfig {
    /// The scopes that every token needs.
    pub required: Vec<String>,
    /// The further scopes that a method needs, by its name, such as `tools/call`.
    pub methods: BTreeMap<String, Vec<String>>,
    /// The further scopes that the call of a tool needs if the tool may write.
    pub writes: Vec<String>,
    /// The further scopes that the use of a tool, prompt or resource needs, by a tag of it or of its source.
    pub tags: BTreeMap<String, Vec<String>>,
    /// The scopes that a scope includes. They may include further scopes.
    pub includes: BTreeMap<String, Vec<String>>,
}

impl ScopesConfig {
    /// Checks that each scope has the form of RFC 6749 §3.3. Returns an invalid scope as the error.
    pub(crate) fn validate(&self) -> Result<(), &str> {
        let lists = [&self.methods, &self.tags, &self.includes];
        let in_lists = lists.into_iter().flat_map(BTreeMap::values);
        let named = in_lists.chain([&self.required, &self.writes]).flatten();
        let mut all = named.chain(self.includes.keys());
        let plain = |byte: u8| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\';
        let bad = all.find(|scope| scope.is_empty() || !scope.bytes().all(plain));
        bad.map_or(Ok(()), |scope| Err(scope))
    }

    /// Returns the scopes that the tags of `facts` need.
    fn of_tags<'r>(&'r self, facts: &'r ToolFacts) -> impl Iterator<Item = &'r String> {
        let of_tag = |tag| self.tags.get(tag);
        facts.tags.iter().filter_map(of_tag).flatten()
    }

    /// Returns whether `held`, with all scopes that it includes, contains all of `needed`.
    fn are_held(&self, needed: &BTreeSet<&str>, held: &Scopes) -> bool {
        let mut have: BTreeSet<&str> = held.iter().collect();
        let mut new: Vec<&str> = have.iter().copied().collect();
        while let Some(scope) = new.pop() {
            let included = self.includes.get(scope).into_iter().flatten();
            new.extend(included.map(String::as_str).filter(|it| have.insert(it)));
        }
        needed.is_subset(&have)
    }
}

/// The scopes of a request's token, the resource that it is used at, and the configured rules.
#[derive(Debug, Clone)]
pub(crate) struct TokenAccess {
    scopes: Arc<Scopes>,
    rules: Arc<ScopesConfig>,
    /// The URL of the resource's metadata.
    metadata: Arc<str>,
}

impl TokenAccess {
    pub(crate) fn new(scopes: Arc<Scopes>, rules: &Arc<ScopesConfig>, metadata: String) -> Self {
        Self {
            scopes,
            rules: Arc::clone(rules),
            metadata: metadata.into(),
        }
    }

    /// Checks the scopes that every token needs.
    pub(crate) fn check_required(&self) -> Result<(), RpcError> {
        self.has(&self.rules.required)
    }

    /// Checks the scopes that the method needs, and those that every token needs.
    pub(crate) fn check_method(&self, method: &str) -> Result<(), RpcError> {
        let rules = &self.rules;
        let of_method = rules.methods.get(method).into_iter().flatten();
        self.has(of_method.chain(&rules.required))
    }

    /// Checks the scopes that the use of a tool or source needs, and those that every token needs.
    pub(crate) fn check_use(&self, method: &str, facts: &ToolFacts) -> Result<(), RpcError> {
        let rules = &self.rules;
        let of_method = rules.methods.get(method).into_iter().flatten();
        let of_tags = rules.of_tags(facts);
        let may_write = facts.kind == OfferKind::Tool && !facts.read_only;
        let of_writes = rules.writes.iter().filter(|_| may_write);
        let of_use = of_method.chain(of_tags).chain(of_writes);
        self.has(of_use.chain(&rules.required))
    }

    /// Checks the scopes that the route of a server needs, and those that every token needs.
    pub(crate) fn check_route(&self, facts: &ToolFacts) -> Result<(), RpcError> {
        let rules = &self.rules;
        self.has(rules.of_tags(facts).chain(&rules.required))
    }

    fn has<'a>(&self, needed: impl IntoIterator<Item = &'a String>) -> Result<(), RpcError> {
        let needed: BTreeSet<&str> = needed.into_iter().map(String::as_str).collect();
        if needed.is_empty() || self.rules.are_held(&needed, &self.scopes) {
            return Ok(());
        }
        let needed: Vec<&str> = needed.into_iter().collect();
        Err(RpcError::insufficient_scope(
            &needed.join(" "),
            &self.metadata,
        ))
    }
}

#[cfg(test)]
mod tests;
