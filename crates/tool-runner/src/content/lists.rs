//! The lists of prompts, resources, templates and skills that clients may be shown.

use bytes::Bytes;
use wardgate_rpc::client::ContentSource;

/// The lists that clients may be shown. Each list is sorted by name and contains no name twice.
#[derive(Default)]
pub(crate) struct ContentLists {
    pub(crate) sources: Vec<ContentSource>,
    pub(crate) prompts: Vec<ListedContent>,
    pub(crate) resources: Vec<ListedContent>,
    pub(crate) templates: Vec<ListedContent>,
    pub(crate) skills: Vec<ListedContent>,
}

/// A prompt, resource, template or skill.
pub(crate) struct ListedContent {
    /// The name of the source.
    pub(crate) source: String,
    /// The name by which clients know the item.
    pub(crate) name: String,
    /// The name by which the source knows the item.
    pub(crate) own_name: String,
    /// The MCP definition without the member for the name, as a JSON object.
    pub(crate) definition: Bytes,
}
