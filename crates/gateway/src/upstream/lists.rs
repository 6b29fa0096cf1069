//! Lists of an upstream, without the entries that the caller may not use.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use wardgate_domain::{OfferKind, ToolName};
use wardgate_json::{replace_part, scan};

use super::RouteRequest;
use super::right::{AccessError, AccessRight};
use super::upstream_request::ListKind;
use crate::Gateway;
use crate::catalogue::Source;
use crate::edit::ResponseResult;
use crate::mcp::{object, text_of};
use crate::rpc_error::RpcError;
use crate::view::View;

/// Entries of one page.
const MAX_ENTRIES: usize = 10_000;

/// How a tool is called, which versions before 2026-07-28 say and later ones do not: a server may have been asked in a
/// version without it when the tool was approved.
const OF_OLDER: &str = "execution";

/// The reason for which a list is not shown.
pub(super) enum ListError {
    /// The result is not a list, or too long.
    Misfit,
    /// The policy service did not decide; the error for the client.
    Undecided(RpcError),
}

/// `message`, said in answer to a list request, without what is not for the caller; what is no result stays as it is.
/// Whose result it says it is does not matter: ids can be written in more than one way.
pub(super) async fn filter_list(
    gateway: &Gateway,
    source: &Source,
    route_request: &RouteRequest,
    list: ListKind,
    message: String,
) -> Result<String, ListError> {
    // What readers of JSON take for different lists is none.
    let depth = gateway.limits().depth;
    scan(message.as_bytes(), depth).map_err(|_| ListError::Misfit)?;
    let result = ResponseResult::parse(&message)
        .ok_or(ListError::Misfit)?
        .result;
    let Some(result) = result else {
        return Ok(message);
    };
    let members: BTreeMap<String, &RawValue> = object(result.get()).ok_or(ListError::Misfit)?;
    let entries = members.get(list.member()).ok_or(ListError::Misfit)?.get();
    let each: Vec<&RawValue> = serde_json::from_str(entries).map_err(|_| ListError::Misfit)?;
    if each.len() > MAX_ENTRIES {
        return Err(ListError::Misfit);
    }
    let mut kept = Vec::with_capacity(each.len());
    match list {
        ListKind::Tools => {
            let visible = visible_tools(gateway, source, route_request).await?;
            kept.extend(each.iter().filter(|entry| {
                name(entry, "name").is_some_and(|name| {
                    let pinned = visible.get(&*name);
                    pinned.is_some_and(|pinned| is_as_pinned(entry, pinned))
                })
            }));
        }
        ListKind::Resources | ListKind::Templates | ListKind::Prompts => {
            for entry in &each {
                if may_use(gateway, source, route_request, list, entry).await? {
                    kept.push(entry);
                }
            }
        }
    }
    if kept.len() == each.len() {
        return Ok(message);
    }
    let kept: Vec<&str> = kept.into_iter().map(|entry| entry.get()).collect();
    Ok(replace_part(
        &message,
        entries,
        &format!("[{}]", kept.join(",")),
    ))
}

/// The definitions of the tools that the caller may see, by the upstream's own names.
async fn visible_tools(
    gateway: &Gateway,
    source: &Source,
    route_request: &RouteRequest,
) -> Result<BTreeMap<String, Value>, ListError> {
    let undecided = || ListError::Undecided(RpcError::not_decided());
    let catalogue = gateway.catalogue().current().ok_or_else(undecided)?;
    let source = catalogue.source(&source.name).ok_or_else(undecided)?;
    // Its definitions are its own, names and URIs too.
    let view = View::of_upstream(Arc::clone(source), &catalogue);
    let mut tools = view.tools(&catalogue);
    tools.retain(|seen| seen.tool.switches.allow(&route_request.caller));
    let facts = tools.iter().map(|seen| &seen.tool.facts);
    let visible = gateway
        .authority()
        .visible(&route_request.caller, facts)
        .await;
    let visible = visible.map_err(|error| ListError::Undecided(gateway.undecided(&error)))?;
    let is_visible = |name: &ToolName| visible.iter().any(|visible| *visible == name.as_str());
    let tools = tools.into_iter();
    let tools = tools.filter(|seen| is_visible(&seen.tool.facts.name));
    let definitions = tools.filter_map(|seen| {
        let mut definition: Value = serde_json::from_str(&view.approved(seen)).ok()?;
        definition["name"] = seen.name().into();
        Some((seen.name().to_owned(), definition))
    });
    Ok(definitions.collect())
}

/// One that says anything else than what was approved is another tool, and there before the catalogue has heard of it.
/// What a version has no words for is left out.
fn is_as_pinned(entry: &RawValue, pinned: &Value) -> bool {
    let entry: Option<Map<String, Value>> = serde_json::from_str(entry.get()).ok();
    entry.is_some_and(|entry| {
        entry.iter().all(|(member, now)| match pinned.get(member) {
            Some(approved) => approved == now,
            None => member == OF_OLDER,
        })
    })
}

async fn may_use(
    gateway: &Gateway,
    source: &Source,
    route_request: &RouteRequest,
    list: ListKind,
    entry: &RawValue,
) -> Result<bool, ListError> {
    let (kind, member) = match list {
        ListKind::Prompts => (OfferKind::Prompts, "name"),
        ListKind::Templates => (OfferKind::Resources, "uriTemplate"),
        ListKind::Resources | ListKind::Tools => (OfferKind::Resources, "uri"),
    };
    let Some(name) = name(entry, member) else {
        return Ok(false);
    };
    let Some(right) = AccessRight::for_offer(source, kind, &name) else {
        return Ok(false);
    };
    match right.decide(gateway, route_request).await {
        Ok(_) => Ok(true),
        Err(AccessError::Denied { .. } | AccessError::Gone) => Ok(false),
        Err(AccessError::Undecided(error)) => Err(ListError::Undecided(error)),
    }
}

/// The text `member` of an entry.
fn name(entry: &RawValue, member: &str) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(transparent)]
    struct EntryMembers<'a>(#[serde(borrow)] BTreeMap<String, &'a RawValue>);
    let entry: EntryMembers<'_> = object(entry.get())?;
    text_of(entry.0.get(member)?).map(std::borrow::Cow::into_owned)
}

impl ListKind {
    /// The member of the result that holds the entries.
    fn member(self) -> &'static str {
        match self {
            Self::Tools => "tools",
            Self::Resources => "resources",
            Self::Templates => "resourceTemplates",
            Self::Prompts => "prompts",
        }
    }
}
