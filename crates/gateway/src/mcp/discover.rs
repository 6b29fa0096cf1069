//! `server/discover` (MCP 2026-07-28): what the gateway speaks and offers.

use super::Version;
use super::envelope::Request;
use crate::reply::Answer;

/// What a model should know before it lists the tools.
pub(super) const INSTRUCTIONS: &str = "Tools reach an organisation's data under its policy. A result holds only the rows and fields you may see; identifiers may be masked. Every call is recorded.";

pub(super) fn discover(request: &Request<'_>, version: Version) -> Answer {
    let supported: Vec<&str> = Version::ALL
        .iter()
        .map(|version| version.as_str())
        .collect();
    let result = serde_json::json!({
        "supportedVersions": supported,
        "capabilities": { "tools": {} },
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
pub(super) fn inner(object: &str) -> &str {
    object
        .trim_start_matches('{')
        .trim_end()
        .strip_suffix('}')
        .unwrap_or(object)
}
