//! `server/discover` (MCP 2026-07-28): what the gateway speaks and offers.

use serde_json::{Value, json};

use super::envelope::Request;
use super::{Post, Version};
use crate::Gateway;
use crate::content;
use crate::reply::Answer;
use crate::view::View;

/// What a model should know before it lists the tools.
pub(super) const INSTRUCTIONS: &str = "Tools reach an organisation's data under its policy. A result holds only the rows and fields you may see; identifiers may be masked. Every call is recorded.";

/// What there is besides tools depends on the configuration, never on the caller.
pub(super) fn capabilities(gateway: &Gateway, view: &View) -> Value {
    let changes = json!({ "listChanged": true });
    let offered = content::offered(gateway, view);
    let mut capabilities = json!({ "tools": changes });
    if offered.conversations {
        capabilities["resources"] = json!({ "subscribe": true, "listChanged": true });
    } else if offered.resources {
        capabilities["resources"] = changes.clone();
    }
    if offered.prompts {
        capabilities["prompts"] = changes;
    }
    if offered.prompts || offered.resources {
        capabilities["completions"] = json!({});
    }
    capabilities
}

pub(super) fn discover(
    gateway: &Gateway,
    post: &Post,
    request: &Request<'_>,
    version: Version,
) -> Answer {
    let supported: Vec<&str> = Version::ALL
        .iter()
        .map(|version| version.as_str())
        .collect();
    let result = json!({
        "supportedVersions": supported,
        "capabilities": capabilities(gateway, &post.view),
        "instructions": INSTRUCTIONS,
    });
    // The same for every caller, so any cache may keep it.
    let members = format!(
        r#"{},"ttlMs":3600000,"cacheScope":"public""#,
        inner(&result.to_string())
    );
    Answer::result(request.id, version, &members)
}

/// The members of a JSON object, without its braces.
pub(crate) fn inner(object: &str) -> &str {
    object
        .trim_start_matches('{')
        .trim_end()
        .strip_suffix('}')
        .unwrap_or(object)
}
