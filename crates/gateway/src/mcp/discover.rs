//! `server/discover` (MCP 2026-07-28): what the gateway speaks and offers.

use serde_json::{Value, json};

use super::envelope::Request;
use super::instructions::instructions;
use super::{Door, Post, Version};
use crate::Gateway;
use crate::content;
use crate::reply::Answer;
use crate::tasks;
use crate::view::View;

/// What there is besides tools depends on the configuration, never on the caller.
pub(super) fn capabilities(gateway: &Gateway, view: &View) -> Value {
    let changes = json!({ "listChanged": true });
    let offered = content::offered(gateway, view);
    let mut capabilities = json!({ "tools": changes });
    if offered.conversations || offered.resources {
        capabilities["resources"] = json!({ "subscribe": true, "listChanged": true });
    }
    if offered.prompts {
        capabilities["prompts"] = changes;
    }
    if offered.prompts || offered.resources {
        capabilities["completions"] = json!({});
    }
    capabilities
}

/// The same with the extensions of 2026-07-28.
fn with_extensions(gateway: &Gateway, view: &View) -> Value {
    let mut capabilities = capabilities(gateway, view);
    if tasks::are_offered(gateway, view) {
        capabilities["extensions"][tasks::EXTENSION] = json!({});
    }
    if let Some(skills) = content::offered(gateway, view).skills {
        let settings = if skills.directories {
            json!({ "directoryRead": true })
        } else {
            json!({})
        };
        capabilities["extensions"]["io.modelcontextprotocol/skills"] = settings;
    }
    capabilities
}

pub(super) async fn discover(
    gateway: &Gateway,
    post: &Post,
    request: &Request<'_>,
    version: Version,
) -> Answer {
    let supported: Vec<&str> = Version::ALL
        .iter()
        .map(|version| version.as_str())
        .collect();
    let instructions = instructions(gateway, &post.caller, &post.view).await;
    let mut capabilities = with_extensions(gateway, &post.view);
    // There is a stream on which a client hears what is said before an answer, where it asks for that.
    if post.door != Door::Message {
        capabilities["logging"] = json!({});
    }
    let result = json!({
        "supportedVersions": supported,
        "capabilities": capabilities,
        "instructions": instructions.text,
    });
    // What is the same for every caller any cache may keep.
    let (ttl, scope) = if instructions.is_personal {
        (5_000, "private")
    } else {
        (3_600_000, "public")
    };
    let members = format!(
        r#"{},"ttlMs":{ttl},"cacheScope":"{scope}""#,
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
