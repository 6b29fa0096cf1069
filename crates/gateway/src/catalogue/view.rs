//! Views of the catalogue: which entries a request sees, and under which names.
//!
//! ```text
//!  /mcp                    everything                      notes__read   notes+file:///a
//!  /mcp/{toolset}          what is in the toolset          notes__read   notes+file:///a
//!  /mcp/upstream/{source}  one server, as itself has it    read          file:///a
//! ```
//!
//! A view says what exists and under which name, never who may use it: authorization is the same for all views.

mod links;

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use wardgate_domain::source_uri;
use wardgate_mcp::Version;
use wardgate_rpc::client::{ContentSource, ServerCapabilities};

use super::{CatalogueIndex, CatalogueSource, Tool};

/// The part of the catalogue that a request sees.
#[derive(Debug, Clone)]
pub(crate) enum View {
    Everything,
    Toolset(String),
    Upstream(UpstreamView),
}

/// A single MCP server, under its own names and URIs.
#[derive(Debug, Clone)]
pub(crate) struct UpstreamView {
    source: Arc<CatalogueSource>,
    /// Whether results of the server's tools contain URIs in the form of the catalogue, because the server has resources.
    names_resources: bool,
}

/// A tool of the view, under the name that it has there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct VisibleTool<'i> {
    pub(crate) tool: &'i Tool,
    /// The name in the view, if it differs from the name in the catalogue.
    own_name: Option<&'i str>,
}

impl View {
    /// Returns the view of a path that names no server.
    pub(crate) fn of_path(path: &str) -> Self {
        let toolset = path.strip_prefix("/mcp/");
        toolset.map_or(Self::Everything, |name| Self::Toolset(name.to_owned()))
    }

    /// Returns the view of one server of `catalogue`.
    pub(crate) fn of_upstream(source: Arc<CatalogueSource>, catalogue: &CatalogueIndex) -> Self {
        let names_resources = catalogue.content().has_resources(&source.name);
        Self::Upstream(UpstreamView {
            source,
            names_resources,
        })
    }

    /// Returns the path at which the view is served. Values that are sealed for a client of one view are invalid in all others.
    pub(crate) fn path(&self) -> String {
        match self {
            Self::Everything => "/mcp".to_owned(),
            Self::Toolset(toolset) => format!("/mcp/{toolset}"),
            Self::Upstream(of) => format!("/mcp/upstream/{}", of.source.name),
        }
    }

    /// Returns the capabilities that the server declared, if the view is a single server and they are known.
    pub(crate) fn declared_capabilities(&self) -> Option<ServerCapabilities> {
        match self {
            Self::Upstream(of) => of.source.capabilities,
            Self::Everything | Self::Toolset(_) => None,
        }
    }

    /// Returns whether the conversations of the memory service are in the view.
    pub(crate) fn has_conversations(&self) -> bool {
        !matches!(self, Self::Upstream(_))
    }

    /// Returns the tool that has this name in the view.
    pub(crate) fn tool<'i>(
        &self,
        catalogue: &'i CatalogueIndex,
        name: &str,
    ) -> Option<&'i Arc<Tool>> {
        match self {
            Self::Everything => catalogue.find(name),
            Self::Toolset(toolset) => catalogue.find(name).filter(|tool| tool.is_in(toolset)),
            Self::Upstream(of) => catalogue.find(of.source.tools.get(name)?.as_str()),
        }
    }

    /// Returns all tools of the view.
    pub(crate) fn tools<'i>(&'i self, catalogue: &'i CatalogueIndex) -> Vec<VisibleTool<'i>> {
        let all = |tool| VisibleTool {
            tool,
            own_name: None,
        };
        match self {
            Self::Everything => catalogue.tools().map(all).collect(),
            Self::Toolset(toolset) => {
                let tools = catalogue.tools().filter(|tool| tool.is_in(toolset));
                tools.map(all).collect()
            }
            Self::Upstream(of) => {
                let own = of.source.tools.iter();
                own.filter_map(|(own, name)| {
                    let tool = catalogue.find(name.as_str())?;
                    Some(VisibleTool {
                        tool,
                        own_name: Some(own),
                    })
                })
                .collect()
            }
        }
    }

    /// Returns the definition of a tool of the view.
    pub(crate) fn definition<'i>(&self, seen: VisibleTool<'i>, version: Version) -> Cow<'i, str> {
        let definition = &seen.tool.definition;
        let (Self::Upstream(of), Some(own_name)) = (self, seen.own_name) else {
            let marked = seen.tool.marked_definition.as_ref();
            return marked.unwrap_or(definition).of_version(version).into();
        };
        let text = definition.with_name(version, own_name);
        if !of.names_resources {
            return text.into();
        }
        links::in_definition(&of.source.name, &text)
            .into_owned()
            .into()
    }

    /// Returns whether prompts and resources of `source` are in the view.
    pub(crate) fn has(&self, source: &ContentSource) -> bool {
        match self {
            Self::Everything => true,
            Self::Toolset(toolset) => source.toolsets.contains(toolset),
            Self::Upstream(of) => of.source.name == source.name,
        }
    }

    /// Returns the catalogue's name for the prompt that has this name in the view.
    pub(crate) fn prompt<'n>(&self, name: &'n str) -> Cow<'n, str> {
        match self {
            Self::Upstream(of) => format!("{}{name}", of.source.prefix).into(),
            Self::Everything | Self::Toolset(_) => name.into(),
        }
    }

    /// Returns the catalogue's URI for the resource or template that has this URI in the view, or `None` if none can have it.
    pub(crate) fn uri<'u>(&self, uri: &'u str) -> Option<Cow<'u, str>> {
        match self {
            Self::Upstream(of) => source_uri::outward(&of.source.name, uri).map(Cow::Owned),
            Self::Everything | Self::Toolset(_) => Some(uri.into()),
        }
    }

    /// Returns whether entries have the names that their source gives them.
    pub(crate) fn has_own_names(&self) -> bool {
        matches!(self, Self::Upstream(_))
    }

    /// Returns the content of a tool's result, a JSON array, with the URIs that the view has for resources.
    pub(crate) fn content(&self, content: Bytes) -> Bytes {
        match self {
            Self::Upstream(of) if of.names_resources => {
                edit_text(content, |text| links::in_content(&of.source.name, text))
            }
            _ => content,
        }
    }

    /// Returns a skill, a JSON object, with the URIs that the view has for resources.
    pub(crate) fn skill(&self, entry: String) -> String {
        let Self::Upstream(of) = self else {
            return entry;
        };
        match links::in_skill(&of.source.name, &entry) {
            Cow::Owned(edited) => edited,
            Cow::Borrowed(_) => entry,
        }
    }

    /// Returns the result of a prompt or resource, a JSON object, with the URIs that the view has for resources.
    pub(crate) fn rewrite_result(&self, result: String) -> String {
        let Self::Upstream(of) = self else {
            return result;
        };
        match links::in_result(&of.source.name, &result) {
            Cow::Owned(edited) => edited,
            Cow::Borrowed(_) => result,
        }
    }
}

/// Applies `edit` to bytes that are UTF-8, and returns other bytes unchanged.
fn edit_text(bytes: Bytes, edit: impl Fn(&str) -> Cow<'_, str>) -> Bytes {
    let edited = match str::from_utf8(&bytes).map(edit) {
        Ok(Cow::Owned(edited)) => edited,
        Ok(Cow::Borrowed(_)) | Err(_) => return bytes,
    };
    edited.into()
}

#[cfg(test)]
mod tests;
