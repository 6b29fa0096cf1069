//! Skills of MCP servers (SEP-2640, a draft): entries that list the files of each skill with sizes and digests.
//!
//! A skill is offered only if a reader can rely on the whole entry: it is well formed, it is within the limits of the
//! extension, and every file of it is a resource that is offered.

use std::collections::{BTreeMap, HashSet};

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use wardgate_domain::source_uri;

/// Maximum number of files in one skill.
const MAX_FILES: usize = 512;
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// Name of the main file of a skill. The URI of this file identifies the skill.
const ENTRANCE: &str = "SKILL.md";

/// A skill that can be offered.
pub(super) struct Skill {
    /// The URI of its `SKILL.md`, as the server knows it.
    pub(super) own_uri: String,
    /// The URI of its `SKILL.md`, as clients know it.
    pub(super) uri: String,
    /// The entry without its URI, as a JSON object. The files in it have the URIs that clients know.
    pub(super) definition: String,
}

#[derive(Deserialize)]
struct SkillEntry<'a> {
    uri: String,
    #[serde(borrow)]
    frontmatter: &'a RawValue,
    #[serde(borrow)]
    resources: &'a RawValue,
}

#[derive(Deserialize)]
struct Frontmatter {
    name: String,
    #[serde(rename = "description")]
    _description: String,
}

#[derive(Deserialize)]
struct File {
    uri: String,
    digest: String,
    size: u64,
}

impl Skill {
    /// Parses `entry` of the server `source`. `is_offered` tells whether a resource is offered. The error is the reason
    /// why the skill cannot be offered.
    pub(super) fn parse(
        source: &str,
        entry: &str,
        is_offered: impl Fn(&str) -> bool,
    ) -> Result<Self, &'static str> {
        const UNREADABLE: &str = "it requires a `uri`, a `frontmatter` and `resources`";
        let members: BTreeMap<String, &RawValue> =
            serde_json::from_str(entry).map_err(|_| UNREADABLE)?;
        let SkillEntry {
            uri: own_uri,
            frontmatter,
            resources,
        } = serde_json::from_str(entry).map_err(|_| UNREADABLE)?;
        let (root, name) = named_by(&own_uri).ok_or("its `uri` is not of a SKILL.md")?;
        let declared: Frontmatter = serde_json::from_str(frontmatter.get())
            .map_err(|_| "its `frontmatter` requires a `name` and a `description`")?;
        if declared.name != name {
            return Err("its `uri` does not end with its name");
        }
        if !is_offered(&own_uri) {
            return Err("its SKILL.md is not among the resources that are offered");
        }
        let shown = match serde_json::from_str::<&str>(resources.get()) {
            Ok("dynamic") => resources.get().to_owned(),
            Ok(_) => return Err("its `resources` are neither a list nor `dynamic`"),
            Err(_) => files(source, &own_uri, root, resources, is_offered)?,
        };
        let others = members.iter().filter(|(member, _)| *member != "uri");
        let others = others.map(|(member, value)| match member.as_str() {
            "resources" => format!("{}:{shown}", json!(member)),
            _ => format!("{}:{}", json!(member), value.get()),
        });
        Ok(Self {
            uri: source_uri::outward(source, &own_uri).ok_or("its `uri` is not absolute")?,
            definition: format!("{{{}}}", others.collect::<Vec<_>>().join(",")),
            own_uri,
        })
    }

    /// Returns the complete entry with the URIs that clients know.
    pub(super) fn whole(&self) -> String {
        // The definition is never an empty object, because it contains at least the frontmatter.
        format!(r#"{{"uri":{},{}"#, json!(self.uri), &self.definition[1..])
    }
}

/// Returns the directory that contains the SKILL.md with that URI, and the name of the skill.
fn named_by(uri: &str) -> Option<(&str, &str)> {
    let root = uri.strip_suffix(ENTRANCE)?;
    let name = root.strip_suffix('/')?.rsplit('/').next()?;
    (!name.is_empty() && !uri.contains(['?', '#'])).then_some((root, name))
}

/// Returns the list of a skill's files with the URIs that clients know.
fn files(
    source: &str,
    entrance: &str,
    root: &str,
    resources: &RawValue,
    is_offered: impl Fn(&str) -> bool,
) -> Result<String, &'static str> {
    const UNREADABLE: &str = "each of its `resources` requires a `uri`, a `digest` and a `size`";
    let listed: Vec<BTreeMap<String, &RawValue>> =
        serde_json::from_str(resources.get()).map_err(|_| UNREADABLE)?;
    if listed.len() > MAX_FILES {
        return Err("it has more than 512 files");
    }
    let files: Vec<File> = serde_json::from_str(resources.get()).map_err(|_| UNREADABLE)?;
    let sizes = files.iter().map(|file| file.size);
    let whole = sizes.fold(0, u64::saturating_add);
    if whole > MAX_BYTES {
        return Err("it is larger than 16 MiB");
    }
    if !files.iter().any(|file| file.uri == entrance) {
        return Err("its `resources` do not contain its SKILL.md");
    }
    let mut seen = HashSet::new();
    let mut shown = Vec::with_capacity(files.len());
    for (file, members) in files.iter().zip(&listed) {
        if !is_within(root, &file.uri) || !seen.insert(&file.uri) {
            return Err("one of its files is outside its directory, or is listed twice");
        }
        if !is_digest(&file.digest) {
            return Err("a digest of its files is not sha256: and 64 lowercase hex digits");
        }
        if !is_offered(&file.uri) {
            return Err("one of its files is not among the resources that are offered");
        }
        let uri = source_uri::outward(source, &file.uri).ok_or("a `uri` is not absolute")?;
        let members = members.iter().map(|(member, value)| match member.as_str() {
            "uri" => format!(r#""uri":{}"#, json!(uri)),
            _ => format!("{}:{}", json!(member), value.get()),
        });
        shown.push(format!("{{{}}}", members.collect::<Vec<_>>().join(",")));
    }
    Ok(format!("[{}]", shown.join(",")))
}

/// Returns whether `uri` is that of a file below `root`, regardless of how a reader resolves it.
fn is_within(root: &str, uri: &str) -> bool {
    let Some(path) = uri.strip_prefix(root) else {
        return false;
    };
    let is_plain = |segment: &str| {
        let segment = segment.to_ascii_lowercase().replace("%2e", ".");
        let leads_away = ["%2f", "%5c", "\\", "?", "#"];
        !matches!(&*segment, "" | "." | "..") && !leads_away.iter().any(|it| segment.contains(it))
    };
    path.split('/').all(is_plain)
}

fn is_digest(text: &str) -> bool {
    let hex = text.strip_prefix("sha256:").unwrap_or_default();
    hex.len() == 64
        && hex
            .bytes()
            .all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f'))
}

#[cfg(test)]
mod tests;
