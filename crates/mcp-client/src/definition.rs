//! Pagination of an upstream's lists, and selection of the tools that can be offered.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_domain::{RequiredCapabilities, ToolName};
use wardgate_mcp::mirrored_header::MirroredHeader;

use super::error::UpstreamError;
use super::events::Events;
use super::list_ttls;
use super::message::{MemberValue, UpstreamRequest};
use super::result::check_complete;
use crate::fingerprint::{CanonicalDefinition, ToolFingerprint};

/// Maximum number of pages of a list.
const MAX_PAGES: usize = 100;

/// Maximum number of entries of a list.
const MAX_ENTRIES: usize = 10_000;

/// A tool of an upstream server, as the server defines it.
#[derive(Debug, Clone)]
pub struct ToolDefinition {
    /// The name that the server uses.
    pub name: ToolName,
    /// The whole definition, byte for byte.
    pub raw: Box<RawValue>,
    /// The arguments that 2026-07-28 repeats as headers over HTTP.
    pub(super) headers: Vec<MirroredHeader>,
    /// Whether the tool only runs as a task, which this crate follows to its end.
    pub(super) is_task: bool,
    /// The capabilities that a client needs to be shown the tool.
    pub required: RequiredCapabilities,
}

impl ToolDefinition {
    /// Returns the fingerprint of the definition, or `None` if the definition cannot be pinned.
    pub(super) fn fingerprint(&self) -> Option<ToolFingerprint> {
        let definition = CanonicalDefinition::parse_tool(self.raw.get()).ok();
        definition.map(|definition| definition.fingerprint())
    }
}

/// The pages of one list that were read so far. A list must be read completely, because missing entries would look deleted.
pub(super) struct Pages {
    method: &'static str,
    /// The name of the member of a page that contains the entries.
    member: &'static str,
    pub(super) entries: Vec<Box<RawValue>>,
    /// The shortest TTL of the pages, or `None` if no page has one.
    pub(super) ttl: Option<Duration>,
    cursor: Option<String>,
    read: usize,
}

impl Pages {
    pub(super) fn new(method: &'static str, member: &'static str) -> Self {
        Self {
            method,
            member,
            entries: Vec::new(),
            ttl: None,
            cursor: None,
            read: 0,
        }
    }

    /// Returns the request for the next page.
    pub(super) fn request(&self) -> UpstreamRequest<'_> {
        let cursor = self
            .cursor
            .iter()
            .map(|at| ("cursor", MemberValue::Text(at)));
        UpstreamRequest::new(self.method, cursor.collect())
    }

    /// Adds a page, and returns whether it was the last one.
    pub(super) fn add_page(&mut self, result: &RawValue) -> Result<bool, UpstreamError> {
        check_complete(result)?;
        let page = DefinitionPage::parse(result, self.member)?;
        self.entries.extend(page.entries);
        self.ttl = list_ttls::shorter(self.ttl, page.ttl);
        self.read += 1;
        if page.next.is_none() && self.entries.len() <= MAX_ENTRIES {
            return Ok(true);
        }
        if self.read >= MAX_PAGES || self.entries.len() > MAX_ENTRIES {
            return Err(UpstreamError::TooLarge);
        }
        if page.next == self.cursor {
            return Err(UpstreamError::BadResult(
                "the cursors of its list form a cycle",
            ));
        }
        self.cursor = page.next;
        Ok(false)
    }
}

/// One page of a list.
struct DefinitionPage {
    entries: Vec<Box<RawValue>>,
    next: Option<String>,
    /// The time for which the page may be cached, or `None` if the server does not specify it.
    ttl: Option<Duration>,
}

impl DefinitionPage {
    /// Reads a page whose entries are the member `list` of `result`.
    fn parse(result: &RawValue, list: &str) -> Result<Self, UpstreamError> {
        #[derive(Deserialize)]
        struct Cursor {
            #[serde(default, rename = "nextCursor")]
            next: Option<String>,
        }
        let unreadable = |_| UpstreamError::BadResult("its list is not valid");
        let members: HashMap<String, &RawValue> =
            serde_json::from_str(result.get()).map_err(unreadable)?;
        let entries = members.get(list).ok_or(UpstreamError::BadResult(
            "its list has no member with the entries",
        ))?;
        let cursor: Cursor = serde_json::from_str(result.get()).map_err(unreadable)?;
        Ok(Self {
            entries: serde_json::from_str(entries.get()).map_err(unreadable)?,
            next: cursor.next,
            ttl: members
                .get("ttlMs")
                .and_then(|ttl_member| read_ttl(ttl_member)),
        })
    }
}

/// Reads a TTL in milliseconds. An invalid value counts as absent.
fn read_ttl(ttl_member: &RawValue) -> Option<Duration> {
    let ms: f64 = serde_json::from_str(ttl_member.get()).ok()?;
    Duration::try_from_secs_f64(ms / 1_000.0).ok()
}

/// Returns the tools of `entries` that can be offered, in their order. `over_http` adds the rules for arguments that are repeated
/// as headers. `has_tasks` states that the server's tasks can be followed.
pub(super) fn tools(
    events: &Events,
    entries: Vec<Box<RawValue>>,
    over_http: bool,
    has_tasks: bool,
) -> Vec<ToolDefinition> {
    let mut seen = HashSet::new();
    let mut tools = Vec::with_capacity(entries.len());
    for (index, entry) in entries.into_iter().enumerate() {
        match tool(entry, over_http, has_tasks) {
            Ok(tool) if seen.insert(tool.name.clone()) => tools.push(tool),
            Ok(_) => events.left_out(index, "an earlier tool of the list has the same name"),
            Err(why) => events.left_out(index, why),
        }
    }
    tools
}

fn tool(
    raw: Box<RawValue>,
    over_http: bool,
    has_tasks: bool,
) -> Result<ToolDefinition, &'static str> {
    #[derive(Deserialize)]
    struct CheckedDefinition {
        name: String,
        #[serde(rename = "inputSchema")]
        input_schema: Value,
        #[serde(default)]
        execution: Execution,
    }
    #[derive(Default, Deserialize)]
    struct Execution {
        #[serde(default, rename = "taskSupport")]
        task_support: Option<String>,
    }
    if !raw.get().starts_with('{') {
        return Err("it is not a JSON object");
    }
    let checked: CheckedDefinition = serde_json::from_str(raw.get())
        .map_err(|_| "it requires a `name` and an `inputSchema`, each once")?;
    let name = checked
        .name
        .parse()
        .map_err(|_| "its name is not 1 to 128 characters of A-Z a-z 0-9 _ . -")?;
    let schema = checked
        .input_schema
        .as_object()
        .ok_or("its `inputSchema` is not an object")?;
    if !schema.get("type").is_none_or(|kind| kind == "object") {
        return Err("its `inputSchema` does not describe an object");
    }
    let is_task = checked.execution.task_support.as_deref() == Some("required");
    if is_task && !has_tasks {
        return Err("it runs only as a task");
    }
    let headers = if over_http {
        MirroredHeader::of_schema(&checked.input_schema)?
    } else {
        Vec::new()
    };
    Ok(ToolDefinition {
        name,
        raw,
        headers,
        is_task,
        required: RequiredCapabilities::default(),
    })
}
