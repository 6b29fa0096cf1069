//! The sources of a `tools.yaml`: their kinds, addresses and settings, with variables expanded.

mod auth;
mod expand;
mod grpc;
mod http;
mod mcp;
mod network;
mod sql;

use std::path::Path;
use std::sync::Arc;

use wardgate_egress::HttpSettings;
use wardgate_grpc_json::GrpcSettings;
use wardgate_yaml::{Key, Node};

use crate::fault::{Faults, FieldReader, tag_problem};
use crate::files::AttachedFile;
use crate::limits::{read_breaker, read_retry};

use crate::content::FileContent;
use crate::name::is_name;
use wardgate_mcp_client::Transport;
use wardgate_resilience::{BreakerSettings, RetrySettings};

pub(crate) use expand::{SourceVariables, VariableExpander};
pub(crate) use http::header_name;
pub use mcp::{McpSettings, OfferedSelection, PinMode};
pub use sql::SqlSettings;

/// Settings of a source. Equal settings mean the same source, so that an open connection can be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceSettings {
    /// The name of the source.
    pub name: String,
    /// The kind of the source.
    pub kind: SourceKind,
    /// When a failed call is retried.
    pub retry: RetrySettings,
    /// When calls are suspended after failures.
    pub breaker: BreakerSettings,
}

/// The kind of a source. URLs and similar settings may contain secrets, so `Debug` does not show them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SourceKind {
    /// A database.
    Sql(SqlSettings),
    /// An HTTP service.
    Http(Box<HttpSettings>),
    /// A gRPC server.
    Grpc(Box<GrpcSettings>),
    /// An MCP server.
    Mcp(Box<McpSettings>),
    /// Prompts and resources that are defined in the file itself.
    Content(Arc<FileContent>),
}

impl SourceKind {
    /// Returns the HTTP settings of a source that is reached over HTTP.
    pub fn http_mut(&mut self) -> Option<&mut HttpSettings> {
        match self {
            Self::Http(http) => Some(http),
            Self::Mcp(mcp) => match &mut mcp.transport {
                Transport::Http(http) => Some(http),
                Transport::Stdio(_) => None,
            },
            Self::Sql(_) | Self::Grpc(_) | Self::Content(_) => None,
        }
    }
}

/// All types of sources, for faults.
const TYPES: &str = "sqlite, postgres, mysql, http, grpc, mcp, content";

impl SourceSettings {
    /// Returns the prefix of the names of imported tools, or `None` if no tools are imported.
    pub(super) fn prefix(&self) -> Option<&str> {
        match &self.kind {
            SourceKind::Mcp(settings) if settings.offered != Some(OfferedSelection::None) => {
                Some(&settings.prefix)
            }
            _ => None,
        }
    }

    pub(super) fn from_entry(
        (key, node): &(Key, Node),
        base: &Path,
        variables: SourceVariables<'_>,
        secret_files: &mut Vec<AttachedFile>,
        faults: &mut Faults,
    ) -> Option<Self> {
        let mut fields = FieldReader::new(node, format!("sources.{}", key.name), faults)?;
        let mut expand = VariableExpander {
            base,
            variables,
            secret_files,
            faults,
        };
        let fix = format!("add `type`, one of {TYPES}");
        let kind = fields.take_required("type", &fix, expand.faults)?;
        let word = expand.text(kind, "type")?;
        let kind = match word.as_str() {
            "sqlite" | "postgres" | "mysql" => {
                SqlSettings::from_fields(&word, &mut fields, &mut expand).map(SourceKind::Sql)
            }
            "http" => {
                let settings = http::read_settings(auth::Service::Http, &mut fields, &mut expand);
                settings.map(|settings| SourceKind::Http(Box::new(settings)))
            }
            "grpc" => {
                let settings = grpc::read_settings(&mut fields, &mut expand);
                settings.map(|settings| SourceKind::Grpc(Box::new(settings)))
            }
            "mcp" => {
                check_upstream_tag(key, expand.faults);
                let settings = McpSettings::from_fields(&key.name, node, &mut fields, &mut expand);
                settings.map(|settings| SourceKind::Mcp(Box::new(settings)))
            }
            "content" => {
                if !is_name(&key.name) {
                    expand.faults.add(
                        key.at,
                        format!(
                            "`{}` is not a valid name of a source that policies name",
                            key.name
                        ),
                        "use 1 to 64 characters of A-Z a-z 0-9 _ . -",
                    );
                }
                let own =
                    FileContent::from_fields(&key.name, node, &mut fields, base, expand.faults);
                fields.finish(expand.faults);
                return Some(Self {
                    name: key.name.clone(),
                    kind: SourceKind::Content(Arc::new(own?)),
                    // Content is in memory, so no call can fail and be retried.
                    retry: RetrySettings::default(),
                    breaker: BreakerSettings::default(),
                });
            }
            other => {
                expand.faults.add(
                    kind.at,
                    format!("`{other}` is not a type of source"),
                    format!("use one of {TYPES}"),
                );
                return None;
            }
        };
        let retry = fields.take_optional("retry");
        let retry = retry.and_then(|node| read_retry(node, faults));
        let breaker = fields.take_optional("breaker");
        let breaker = breaker.and_then(|node| read_breaker(node, faults));
        fields.finish(faults);
        Some(Self {
            name: key.name.clone(),
            kind: kind?,
            retry: retry.unwrap_or_default(),
            breaker: breaker.unwrap_or_default(),
        })
    }
}

/// Adds a fault if policies cannot name the tag `upstream:NAME`, which all offers of an MCP server have.
fn check_upstream_tag(source: &Key, faults: &mut Faults) {
    let tag = format!("upstream:{}", source.name);
    if let Some(problem) = tag_problem(&tag) {
        faults.add(
            source.at,
            format!("the tag `{tag}` of the source {problem}"),
            "rename the source, for example with a-z, 0-9, - and .",
        );
    }
}
