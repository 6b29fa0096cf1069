//! `tools/list`: the tools this caller may see.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use wardgate_domain::ToolName;

use super::envelope::Request;
use super::repeated::Repeated;
use super::{Post, Version};
use crate::Gateway;
use crate::catalogue::Tool;
use crate::reply::{Answer, RpcError};

/// How long a client may keep its list, milliseconds. A list is a courtesy: every call is decided anew.
const TTL_MS: u32 = 5_000;

/// Key of the upstreams that do not answer, in `_meta` of a list.
pub(crate) const MISSING_UPSTREAMS: &str = "dev.wardgate/missingUpstreams";

/// A tool's definition as each version wants it: JSON text, schemas byte for byte as configured.
#[derive(Debug)]
pub(crate) struct Definition {
    /// Bytes of each up to the end of the name.
    named: usize,
    modern: String,
    with_structured_content: String,
    with_annotations: String,
    oldest: String,
    /// The arguments that modern clients repeat as headers.
    pub(crate) repeated: Vec<Repeated>,
}

impl Definition {
    /// From the definition without `name`; none when it is no JSON object.
    pub(crate) fn new(name: &ToolName, definition: &str) -> Option<Self> {
        let members: BTreeMap<String, &RawValue> = serde_json::from_str(definition).ok()?;
        let write = |keep: &dyn Fn(&str, &str) -> bool| {
            let mut text = format!(r#"{{"name":"{name}""#);
            for (member, value) in &members {
                if keep(member, value.get()) {
                    text += &format!(r#","{member}":{}"#, value.get());
                }
            }
            text.push('}');
            text
        };
        let schema = members.get("inputSchema").map(|schema| schema.get());
        Some(Self {
            repeated: schema.map(Repeated::of_schema).unwrap_or_default(),
            named: format!(r#"{{"name":"{name}""#).len(),
            modern: write(&|_, _| true),
            // Until 2025-11-25 structured content is an object, so its schema describes one.
            with_structured_content: write(&|member, value| {
                member != "outputSchema" || is_schema_of_object(value)
            }),
            with_annotations: write(&|member, _| !matches!(member, "title" | "outputSchema")),
            oldest: write(&|member, _| !matches!(member, "title" | "outputSchema" | "annotations")),
        })
    }

    pub(crate) fn of_version(&self, version: Version) -> &str {
        if version.is_modern() {
            &self.modern
        } else if version.has_structured_content() {
            &self.with_structured_content
        } else if version.has_audio() {
            &self.with_annotations
        } else {
            &self.oldest
        }
    }

    /// The same under another name.
    pub(crate) fn renamed(&self, version: Version, name: &str) -> String {
        let rest = &self.of_version(version)[self.named..];
        format!(r#"{{"name":{}{rest}"#, serde_json::json!(name))
    }
}

/// Whether the root of a JSON Schema is `type: object`.
fn is_schema_of_object(schema: &str) -> bool {
    #[derive(Deserialize)]
    struct Root<'a> {
        #[serde(borrow, rename = "type")]
        kind: Cow<'a, str>,
    }
    serde_json::from_str(schema).is_ok_and(|root: Root<'_>| root.kind == "object")
}

pub(super) async fn list_tools(
    gateway: &Gateway,
    post: &Post,
    request: &Request<'_>,
    version: Version,
) -> Result<Answer, RpcError> {
    let caller = &*post.caller;
    if request.params.cursor.is_some() {
        return Err(RpcError::invalid_params(
            "unknown `cursor`: the list has one page",
        ));
    }
    let catalogue = gateway.catalogue().known()?;
    let mut enabled = post.view.tools(&catalogue);
    enabled.retain(|seen| seen.tool.switches.allow(caller));
    let visible = gateway
        .authority()
        .visible(caller, enabled.iter().map(|seen| &seen.tool.facts))
        .await
        .map_err(|_| RpcError::policy_away())?;
    let is_visible = |tool: &Tool| visible.iter().any(|name| *name == tool.facts.name.as_str());
    enabled.retain(|seen| is_visible(seen.tool));
    let meta = missing(catalogue.missing_upstreams(), || {
        enabled.iter().map(|seen| seen.tool)
    });
    let listed = enabled.iter();
    let listed: Vec<_> = listed
        .map(|seen| post.view.definition(*seen, version))
        .collect();
    let mut members = format!(r#""tools":[{}"#, listed.join(","));
    members.push(']');
    if version.is_modern() {
        // It depends on the caller, so only the caller's own cache may keep it.
        members += &format!(r#","ttlMs":{TTL_MS},"cacheScope":"private""#);
    }
    Ok(Answer::result_with_meta(
        request.id, version, &members, &meta,
    ))
}

/// The member of `_meta` that says which upstreams do not answer: of those whose tools the caller sees.
fn missing<'t, T: Iterator<Item = &'t Tool>>(
    upstreams: &[String],
    listed: impl Fn() -> T,
) -> String {
    let concerns = |upstream: &&String| {
        let tag = format!("upstream:{upstream}");
        listed().any(|tool| tool.facts.tags.contains(&tag))
    };
    let missing: Vec<&String> = upstreams.iter().filter(concerns).collect();
    if missing.is_empty() {
        return String::new();
    }
    format!(r#""{MISSING_UPSTREAMS}":{}"#, serde_json::json!(missing))
}
