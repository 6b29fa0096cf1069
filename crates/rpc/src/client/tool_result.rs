//! The result of a call.

use std::time::Duration;

use bytes::Bytes;
use wardgate_domain::{InvalidMessage, ResultOutline, Status};
use wardgate_proto::common::v1::StageTime;
use wardgate_proto::toolrunner::v1 as pb;

/// The filtered and redacted result of a call.
#[derive(Debug, Clone)]
pub struct ToolResult {
    /// MCP `content`: a JSON array.
    pub content: Bytes,
    /// MCP `structuredContent`: a JSON object, or empty if there is none.
    pub structured_content: Bytes,
    /// Whether the tool failed or refused its arguments.
    pub is_error: bool,
    /// The facts about the result, for the audit record.
    pub facts: ResultFacts,
    /// The other members of the result of an MCP server, a JSON object, or empty if there are none.
    pub other_members: Bytes,
    /// The `_meta` of the result, a JSON object, or empty if there is none.
    pub meta: Bytes,
    /// The JSON-RPC error of an MCP server, a JSON object, or empty if the server returned a result.
    pub error: Bytes,
}

/// The facts about a result, for the audit record.
#[derive(Debug, Clone)]
pub struct ResultFacts {
    /// How the run ended.
    pub status: Status,
    /// Number of released rows.
    pub rows: u64,
    /// Number of withheld rows.
    pub rows_withheld: u64,
    /// Number of changed or dropped fields.
    pub fields_redacted: u64,
    /// Whether a released row contained health information.
    pub phi: bool,
    /// The kind of failure, or empty for a success.
    pub error_kind: String,
    /// Time after which a refused call may be retried, or `None` if it is unknown.
    pub retry_after: Option<Duration>,
    /// The duration of each stage, in order.
    pub stages: Vec<(String, Duration)>,
    /// Numbers of columns that were dropped from the result. Each column counts once.
    pub dropped_columns: DroppedColumns,
    /// The released columns, the data subjects of the released rows, and the number of rows that could not be checked, or
    /// `None` if there is none of these.
    pub outline: Option<Box<ResultOutline>>,
}

/// Numbers of columns that were dropped from a result, by reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DroppedColumns {
    /// Columns without a class.
    pub unclassified: u64,
    /// Columns whose class the permit does not allow.
    pub not_permitted: u64,
}

impl TryFrom<pb::ToolResult> for ToolResult {
    type Error = InvalidMessage;

    fn try_from(result: pb::ToolResult) -> Result<Self, Self::Error> {
        let facts = result
            .facts
            .ok_or_else(|| InvalidMessage::field("result.facts", "is missing"))?;
        Ok(Self {
            content: result.content_json,
            structured_content: result.structured_content_json,
            is_error: result.is_error,
            facts: facts.try_into()?,
            other_members: result.other_members_json,
            meta: result.meta_json,
            error: result.error_json,
        })
    }
}

impl From<ToolResult> for pb::ToolResult {
    fn from(result: ToolResult) -> Self {
        Self {
            content_json: result.content,
            structured_content_json: result.structured_content,
            is_error: result.is_error,
            facts: Some(result.facts.into()),
            other_members_json: result.other_members,
            meta_json: result.meta,
            error_json: result.error,
        }
    }
}

impl From<ResultFacts> for pb::ResultFacts {
    fn from(facts: ResultFacts) -> Self {
        use pb::OutcomeStatus as Wire;
        let status = match facts.status {
            Status::Ok => Wire::Ok,
            Status::InvalidArguments => Wire::InvalidArguments,
            Status::Error => Wire::ToolError,
            Status::Timeout => Wire::Timeout,
            Status::Cancelled => Wire::Cancelled,
            // These are statuses of calls that never reach a tool.
            Status::Denied | Status::UnknownTool | Status::Unknown => Wire::Unspecified,
        };
        let stages = facts.stages.into_iter();
        let stages = stages.map(|(stage, spent)| StageTime {
            stage,
            // The conversion does not fail, because the duration of a stage is far below the maximum.
            duration: spent.try_into().ok(),
        });
        let dropped = facts.dropped_columns;
        Self {
            status: status.into(),
            rows: facts.rows,
            rows_withheld: facts.rows_withheld,
            fields_redacted: facts.fields_redacted,
            phi: facts.phi,
            error_kind: facts.error_kind,
            stages: stages.collect(),
            retry_after: facts.retry_after.and_then(|wait| wait.try_into().ok()),
            dropped_columns: (dropped != DroppedColumns::default()).then_some(pb::DroppedColumns {
                unclassified: dropped.unclassified,
                not_permitted: dropped.not_permitted,
            }),
            outline: facts.outline.as_deref().map(Into::into),
        }
    }
}

impl TryFrom<pb::ResultFacts> for ResultFacts {
    type Error = InvalidMessage;

    fn try_from(facts: pb::ResultFacts) -> Result<Self, Self::Error> {
        use pb::OutcomeStatus as Wire;
        let status = match facts.status() {
            Wire::Unspecified => {
                return Err(InvalidMessage::field(
                    "result.facts.status",
                    "is unspecified",
                ));
            }
            Wire::Ok => Status::Ok,
            Wire::InvalidArguments => Status::InvalidArguments,
            Wire::ToolError => Status::Error,
            Wire::Timeout => Status::Timeout,
            Wire::Cancelled => Status::Cancelled,
        };
        let stages = facts
            .stages
            .into_iter()
            .map(|stage| {
                let spent = stage.duration.and_then(|duration| duration.try_into().ok());
                (stage.stage, spent.unwrap_or_default())
            })
            .collect();
        let dropped = facts.dropped_columns.unwrap_or_default();
        Ok(Self {
            status,
            outline: (facts.outline)
                .map(|outline| outline.try_into().map(Box::new))
                .transpose()?,
            dropped_columns: DroppedColumns {
                unclassified: dropped.unclassified,
                not_permitted: dropped.not_permitted,
            },
            rows: facts.rows,
            rows_withheld: facts.rows_withheld,
            fields_redacted: facts.fields_redacted,
            phi: facts.phi,
            error_kind: facts.error_kind,
            retry_after: facts.retry_after.and_then(|wait| wait.try_into().ok()),
            stages,
        })
    }
}
