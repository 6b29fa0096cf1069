//! Skills (SEP-2640, a draft extension of MCP 2026-07-28): directories of files that are resources.
//!
//! A skill is listed and returned to callers who may read its SKILL.md, and only if every text of its source is shown to them
//! unredacted: otherwise the digests would not match what they read. Of its files, each caller sees those that they may read.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use wardgate_domain::{Caller, ColumnTier, ToolFacts, source_uri};
use wardgate_gateway_store::{Purpose, Sealer};
use wardgate_json::replace_part;
use wardgate_mcp_server::{RpcError, object, text_of};

use super::reader::{self, ContentReader};
use crate::authority::Grant;
use crate::catalogue::View;

/// Returns whether `grant` shows all content that `facts` describe, without redaction.
pub(super) fn sees_all(grant: &Grant, facts: &ToolFacts) -> bool {
    grant.permit.unverified_terms().is_ok_and(|terms| {
        let is_clear = |class| terms.tier(class) == ColumnTier::Clear;
        terms.row_rule.is_none() && facts.classes.iter().all(is_clear)
    })
}

/// Returns those of `resources`, objects with the URIs of the catalogue, that the caller may read.
async fn readable<'r>(
    reader: &ContentReader<'_>,
    resources: &[&'r RawValue],
) -> Result<Vec<&'r RawValue>, RpcError> {
    let may_read = |resource| may_read(reader, resource);
    reader::filter_allowed(resources, resources.len(), may_read).await
}

async fn may_read(reader: &ContentReader<'_>, resource: &RawValue) -> Result<bool, RpcError> {
    #[derive(Deserialize)]
    struct UriMember<'a> {
        #[serde(borrow)]
        uri: &'a RawValue,
    }
    let uri = object::<UriMember<'_>>(resource.get()).and_then(|named| text_of(named.uri));
    let Some((_, own_uri)) = uri.as_deref().and_then(source_uri::inward) else {
        return Ok(false);
    };
    Ok(reader.right(&own_uri).await?.is_some())
}

/// Returns `entry`, a skill, with those of its files that the caller may read.
pub(super) async fn filter_files(
    reader: &ContentReader<'_>,
    entry: String,
) -> Result<String, RpcError> {
    #[derive(Deserialize)]
    struct SkillFiles<'a> {
        #[serde(borrow)]
        resources: &'a RawValue,
    }
    let SkillFiles { resources } = object(&entry).ok_or_else(RpcError::not_decided)?;
    // A skill without a list of files has a string in its place.
    let Ok(files) = serde_json::from_str::<Vec<&RawValue>>(resources.get()) else {
        return Ok(entry);
    };
    let readable_files = readable(reader, &files).await?;
    if readable_files.len() == files.len() {
        return Ok(entry);
    }
    Ok(replace_part(
        &entry,
        resources.get(),
        &list(&readable_files),
    ))
}

/// Returns the result of `skills/get` with those files of its skill that the caller may read.
pub(super) async fn filter_skill(
    reader: &ContentReader<'_>,
    result: String,
) -> Result<String, RpcError> {
    #[derive(Deserialize)]
    struct SkillResult<'a> {
        #[serde(borrow)]
        skill: &'a RawValue,
    }
    let SkillResult { skill } = object(&result).ok_or_else(RpcError::not_decided)?;
    let shown = self::filter_files(reader, skill.get().to_owned()).await?;
    Ok(replace_part(&result, skill.get(), &shown))
}

/// Returns the result of `resources/directory/read` with the entries that the caller may read. Its cursor is sealed.
pub(super) async fn filter_directory(
    reader: &ContentReader<'_>,
    sealer: &Sealer,
    view: &View,
    uri: &str,
    result: String,
) -> Result<String, RpcError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct DirectoryResult<'a> {
        #[serde(borrow)]
        resources: Vec<&'a RawValue>,
        #[serde(default)]
        next_cursor: Option<String>,
    }
    let read = object::<DirectoryResult<'_>>(&result).ok_or_else(RpcError::not_decided)?;
    let readable_files = list(&readable(reader, &read.resources).await?);
    let next = read
        .next_cursor
        .and_then(|own| sealer.seal(Purpose::Directory, reader.caller, &within(view, uri), &own));
    let next = next.map(|next| format!(r#","nextCursor":{}"#, json!(next)));
    Ok(format!(
        r#"{{"resources":{readable_files}{}}}"#,
        next.unwrap_or_default()
    ))
}

/// Returns the server's own cursor from the sealed one that the client received for the directory at `uri`.
pub(super) fn cursor(
    sealer: &Sealer,
    caller: &Caller,
    view: &View,
    uri: &str,
    given: &str,
) -> Option<String> {
    sealer.open(Purpose::Directory, caller, &within(view, uri), given)
}

fn within(view: &View, uri: &str) -> String {
    format!("{:?} {uri}", view.path())
}

fn list(entries: &[&RawValue]) -> String {
    let entries: Vec<_> = entries.iter().map(|entry| entry.get()).collect();
    format!("[{}]", entries.join(","))
}
