//! The digest of a tool's definition.

use wardgate_domain::{About, Digest, ToolFacts};

/// Returns a digest of everything that the policy knows about a tool.
pub(crate) fn digest_of_tool(tool: &ToolFacts) -> Digest {
    let mut about = About::new("tool")
        .and(tool.name.as_str().as_bytes())
        .and(tool.definition_digest.as_bytes())
        .and(&[u8::from(tool.read_only)])
        .and(tool.entity.as_deref().unwrap_or_default().as_bytes())
        .and(&tool.tags.len().to_be_bytes());
    for tag in &*tool.tags {
        about = about.and(tag.as_bytes());
    }
    about = about.and(&tool.classes.len().to_be_bytes());
    for class in &tool.classes {
        about = about.and(class.as_str().as_bytes());
    }
    for (name, default) in &tool.argument_defaults {
        about = about.and(name.as_bytes()).and(default.as_bytes());
    }
    about.digest()
}
