//! Skills (SEP-2640, a draft of an extension of 2026-07-28): directories of files that are resources.
//!
//! A skill is listed and given to whoever may read its SKILL.md, and only where every text of its source is shown as it
//! is: else the digests would not be those of what is read. Of its files each caller is told those that they may read.

use std::sync::Arc;

use futures::future::join_all;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use wardgate_domain::{Caller, ColumnTier, OfferKind, ToolFacts, source_uri};

use super::wish::named;
use crate::Gateway;
use crate::authority::{Authorization, Grant};
use crate::edit::replaced;
use crate::mcp::{object, text_of};
use crate::session::Purpose;
use crate::view::View;

/// Decisions asked for at a time.
const AT_ONCE: usize = 8;

/// The policy cannot be asked now, or not about what was given.
#[derive(Debug)]
pub(super) struct Undecided;

/// Who reads, and what the policy knows of the source's resources.
#[derive(Clone, Copy)]
pub(super) struct Reader<'a> {
    pub(super) gateway: &'a Gateway,
    pub(super) caller: &'a Caller,
    pub(super) client_ip: &'a str,
    pub(super) facts: &'a ToolFacts,
}

/// Whether whoever has `grant` sees everything of what `facts` are of as it is.
pub(super) fn sees_all(grant: &Grant, facts: &ToolFacts) -> bool {
    grant.permit.unverified_terms().is_ok_and(|terms| {
        let is_clear = |class| terms.tier(class) == ColumnTier::Clear;
        terms.row_rule.is_none() && facts.classes.iter().all(is_clear)
    })
}

impl Reader<'_> {
    /// The right to read the resource that its source calls so, if there is one.
    pub(super) async fn right(&self, own_uri: &str) -> Result<Option<Arc<Grant>>, Undecided> {
        let asked = named(OfferKind::Resources, own_uri);
        let authority = self.gateway.authority();
        let asked = authority.authorize(self.caller, self.facts, &asked, self.client_ip);
        match asked.await {
            Ok(Authorization::Allowed(grant)) => Ok(Some(grant)),
            Ok(Authorization::Denied { .. }) => Ok(None),
            Err(_) => Err(Undecided),
        }
    }

    /// Those of `resources`, objects with the URIs that clients know, that may be read.
    async fn readable<'r>(
        &self,
        resources: &[&'r RawValue],
    ) -> Result<Vec<&'r RawValue>, Undecided> {
        let mut kept = Vec::with_capacity(resources.len());
        for some in resources.chunks(AT_ONCE) {
            let decided = join_all(some.iter().map(|resource| self.may_read(resource)));
            for (resource, decided) in some.iter().zip(decided.await) {
                if decided? {
                    kept.push(*resource);
                }
            }
        }
        Ok(kept)
    }

    async fn may_read(&self, resource: &RawValue) -> Result<bool, Undecided> {
        #[derive(Deserialize)]
        struct Named<'a> {
            #[serde(borrow)]
            uri: &'a RawValue,
        }
        let uri = object::<Named<'_>>(resource.get()).and_then(|named| text_of(named.uri));
        let Some((_, own_uri)) = uri.as_deref().and_then(source_uri::inward) else {
            return Ok(false);
        };
        Ok(self.right(&own_uri).await?.is_some())
    }

    /// `entry`, a skill, with those of its files that may be read.
    pub(super) async fn skill(&self, entry: String) -> Result<String, Undecided> {
        #[derive(Deserialize)]
        struct Skill<'a> {
            #[serde(borrow)]
            resources: &'a RawValue,
        }
        let Skill { resources } = object(&entry).ok_or(Undecided)?;
        // What has no list of files says so in a word.
        let Ok(files) = serde_json::from_str::<Vec<&RawValue>>(resources.get()) else {
            return Ok(entry);
        };
        let kept = self.readable(&files).await?;
        if kept.len() == files.len() {
            return Ok(entry);
        }
        Ok(replaced(&entry, resources.get(), &list(&kept)))
    }

    /// The result of `skills/get`, the same of the skill in it.
    pub(super) async fn got(&self, result: String) -> Result<String, Undecided> {
        #[derive(Deserialize)]
        struct Got<'a> {
            #[serde(borrow)]
            skill: &'a RawValue,
        }
        let Got { skill } = object(&result).ok_or(Undecided)?;
        let shown = self.skill(skill.get().to_owned()).await?;
        Ok(replaced(&result, skill.get(), &shown))
    }

    /// The result of `resources/directory/read`, with what of it may be read. It goes on at a place for this caller alone.
    pub(super) async fn directory(
        &self,
        (view, uri): (&View, &str),
        result: String,
    ) -> Result<String, Undecided> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Read<'a> {
            #[serde(borrow)]
            resources: Vec<&'a RawValue>,
            #[serde(default)]
            next_cursor: Option<String>,
        }
        let read = object::<Read<'_>>(&result).ok_or(Undecided)?;
        let kept = list(&self.readable(&read.resources).await?);
        let next = read.next_cursor.and_then(|own| {
            let sealer = self.gateway.sealer();
            sealer.seal(Purpose::Directory, self.caller, &within(view, uri), &own)
        });
        let next = next.map(|next| format!(r#","nextCursor":{}"#, json!(next)));
        Ok(format!(
            r#"{{"resources":{kept}{}}}"#,
            next.unwrap_or_default()
        ))
    }
}

/// The server's own cursor, of the one that its client was given for the directory at `uri`.
pub(super) fn cursor(
    gateway: &Gateway,
    caller: &Caller,
    (view, uri): (&View, &str),
    given: &str,
) -> Option<String> {
    let sealer = gateway.sealer();
    sealer.open(Purpose::Directory, caller, &within(view, uri), given)
}

fn within(view: &View, uri: &str) -> String {
    format!("{:?} {uri}", view.path())
}

fn list(entries: &[&RawValue]) -> String {
    let entries: Vec<_> = entries.iter().map(|entry| entry.get()).collect();
    format!("[{}]", entries.join(","))
}
