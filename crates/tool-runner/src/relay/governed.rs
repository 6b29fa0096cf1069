//! What a permit lets out of the answer to one request, and what the record says of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use wardgate_domain::{ColumnClass, ColumnTier, OfferKind, Permit};
use wardgate_json::parse_strict;
use wardgate_mcp::error_code::INTERNAL_ERROR;
use wardgate_proto::toolrunner::v1 as pb;
use wardgate_redact::{RedactionCounts, Row};

use crate::call::ERROR;
use crate::compiled_permit::CompiledPermit;
use crate::executor_error::ExecutorError;
use crate::failure::{FailedCall, Failure};
use crate::platform::Counted;
use crate::result::{self, CONTENT, STRUCTURED_CONTENT, Stopwatch};
use wardgate_mcp_client::{CallResult, UpstreamError, check_complete};

/// The members in which a resource, a prompt or a completion says what it has to say. They are governed like the
/// `content` of a tool.
const CONTENTS: [&str; 3] = ["contents", "messages", "completion"];

/// A request that was admitted, until it is answered.
pub(super) struct GovernedRequest {
    pub(super) kind: OfferKind,
    pub(super) permit: Permit,
    pub(super) compiled: Arc<CompiledPermit>,
    /// The classes that results can carry.
    pub(super) carried: Vec<ColumnClass>,
    /// Of the columns that have one.
    pub(super) classes: BTreeMap<String, ColumnClass>,
    pub(super) unclassified: ColumnClass,
    pub(super) stopwatch: Stopwatch,
    /// Of a call of a tool.
    pub(super) counted: Option<Counted>,
}

/// How a request was answered.
#[derive(Clone, Copy)]
pub(super) enum AnswerKind {
    Result {
        /// It says itself that it is a failure.
        is_error: bool,
    },
    Error,
}

/// What stands in the place of the server's own `result` or `error`.
pub(super) struct ReleasedAnswer {
    pub(super) json: Result<Box<RawValue>, Failure>,
    pub(super) facts: pb::ResultFacts,
}

/// What a tool answered, as far as it was released.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ToolAnswer<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    result_type: Option<&'static str>,
    content: &'a RawValue,
    #[serde(skip_serializing_if = "Option::is_none")]
    structured_content: Option<&'a RawValue>,
    is_error: bool,
}

impl GovernedRequest {
    /// Whether anything that it can be answered with must not go on as it is.
    pub(super) fn is_restricted(&self) -> bool {
        self.compiled.restricts(&self.permit, &self.carried)
    }

    /// The record of an answer that went on as it was.
    pub(super) fn passed(mut self, answered: AnswerKind) -> pb::ResultFacts {
        let (is_error, phi) = match answered {
            AnswerKind::Result { is_error } => {
                (is_error, self.carried.iter().any(ColumnClass::is_phi))
            }
            AnswerKind::Error => (true, self.class(ERROR).is_phi()),
        };
        self.stopwatch.lap("execute");
        self.ended(pb::ResultFacts {
            phi,
            ..outcome_of(is_error)
        })
    }

    /// What may be known of a result.
    pub(super) fn release(mut self, result: &RawValue) -> ReleasedAnswer {
        self.stopwatch.lap("execute");
        let (row, is_error) = match self.row(result) {
            Ok(read) => read,
            Err(error) => {
                let failure = Failure::executor(&error, &FailedCall::default());
                return ReleasedAnswer {
                    facts: self.ended(facts_of(&failure)),
                    json: Err(failure),
                };
            }
        };
        let is_silent = row.fields().is_empty();
        let (rows, counts) = self.compiled.redactor.rows([row], |column| {
            let class = self.class(column);
            (class, self.permit.tier(class))
        });
        self.stopwatch.lap("redact");
        let released = self.answer(rows.get(), is_error, result);
        let Some(json) = released.filter(|_| is_silent || self.says_something(rows.get())) else {
            let failure = Failure::new("withheld", "the result is withheld".to_owned());
            return ReleasedAnswer {
                facts: with_counts(self.ended(facts_of(&failure)), &counts),
                json: Err(failure),
            };
        };
        let facts = pb::ResultFacts {
            rows: 1,
            ..self.ended(outcome_of(is_error))
        };
        ReleasedAnswer {
            json: Ok(json),
            facts: with_counts(facts, &counts),
        }
    }

    /// What may be known of an error: its code always, its words as far as they are let out.
    pub(super) fn release_error(self, error: &RawValue) -> ReleasedAnswer {
        let class = self.class(ERROR);
        let tier = self.permit.tier(class);
        let json = if tier == ColumnTier::Clear {
            error.to_owned()
        } else {
            let said: Value = serde_json::from_str(error.get()).unwrap_or_default();
            let words = said.get("message").cloned().unwrap_or_default();
            let words = self.compiled.redactor.field(class, tier, words);
            let withheld = "the server reported an error, which is withheld";
            let code = said.get("code").and_then(Value::as_i64);
            raw(&json!({
                "code": code.unwrap_or(INTERNAL_ERROR),
                "message": words.filter(Value::is_string).unwrap_or_else(|| withheld.into()),
            }))
        };
        ReleasedAnswer {
            json: Ok(json),
            facts: self.passed(AnswerKind::Error),
        }
    }

    /// The record of a request without an answer.
    pub(super) fn failed(mut self, failure: &Failure) -> pb::ResultFacts {
        self.stopwatch.lap("execute");
        self.ended(facts_of(failure))
    }

    /// A result as the one row that it is, and whether it says itself that it is a failure.
    fn row(&self, result: &RawValue) -> Result<(Row, bool), ExecutorError> {
        check_complete(result)?;
        let mut fields: Vec<(Arc<str>, Value)> = Vec::new();
        if self.kind != OfferKind::Tool {
            let Value::Object(members) = value(result)? else {
                return Err(UpstreamError::BadResult("its result is not an object").into());
            };
            let members = members.into_iter();
            let said = members.filter(|(name, _)| CONTENTS.contains(&name.as_str()));
            fields.extend(said.map(|(name, value)| (name.into(), value)));
            return Ok((Row::new(fields), false));
        }
        let called = CallResult::read(result)?;
        let content = called.content.map_or(Ok(json!([])), |raw| value(&raw))?;
        fields.push((CONTENT.into(), content));
        if let Some(structured) = called.structured {
            fields.push((STRUCTURED_CONTENT.into(), value(&structured)?));
        }
        Ok((Row::new(fields), called.is_error))
    }

    /// Whether the client can do with what was released. A tool's result says that its content is withheld.
    fn says_something(&self, rows: &[Row]) -> bool {
        self.kind == OfferKind::Tool || rows.iter().any(|row| !row.fields().is_empty())
    }

    /// The result again, of what was released.
    fn answer(&self, rows: &[Row], is_error: bool, result: &RawValue) -> Option<Box<RawValue>> {
        // A result of 2026-07-28 says that it is a complete one.
        let has_type = serde_json::from_str::<Map<String, Value>>(result.get())
            .is_ok_and(|result| result.contains_key("resultType"));
        let result_type = has_type.then_some("complete");
        if self.kind == OfferKind::Tool {
            let (content, structured) = result::content(rows);
            let parse = |text: String| RawValue::from_string(text).ok();
            let content = parse(String::from_utf8(content.into()).ok()?)?;
            let structured = parse(structured);
            return to_raw_value(&ToolAnswer {
                result_type,
                content: &content,
                structured_content: structured.as_deref(),
                is_error,
            })
            .ok();
        }
        let released = rows.iter().flat_map(Row::fields);
        let mut members: Map<String, Value> = released
            .map(|(name, value)| (name.to_string(), value.clone()))
            .collect();
        if let Some(kind) = result_type {
            members.insert("resultType".to_owned(), kind.into());
        }
        Some(raw(&Value::Object(members)))
    }

    fn ended(self, facts: pb::ResultFacts) -> pb::ResultFacts {
        if let Some(counted) = self.counted {
            counted.ended(facts.status() != pb::OutcomeStatus::Ok);
        }
        pb::ResultFacts {
            stages: self.stopwatch.into_stages(),
            ..facts
        }
    }

    fn class(&self, column: &str) -> &ColumnClass {
        let column = if CONTENTS.contains(&column) {
            CONTENT
        } else {
            column
        };
        self.classes.get(column).unwrap_or(&self.unclassified)
    }
}

/// What the record says of a failure.
pub(super) fn facts_of(failure: &Failure) -> pb::ResultFacts {
    pb::ResultFacts {
        status: failure.status.into(),
        error_kind: failure.kind.to_owned(),
        retry_after: failure.retry_after.and_then(|wait| wait.try_into().ok()),
        ..pb::ResultFacts::default()
    }
}

fn outcome_of(is_error: bool) -> pb::ResultFacts {
    let (status, kind) = if is_error {
        (pb::OutcomeStatus::ToolError, "tool_error")
    } else {
        (pb::OutcomeStatus::Ok, "")
    };
    pb::ResultFacts {
        status: status.into(),
        error_kind: kind.to_owned(),
        ..pb::ResultFacts::default()
    }
}

fn with_counts(facts: pb::ResultFacts, counts: &RedactionCounts) -> pb::ResultFacts {
    pb::ResultFacts {
        fields_redacted: counts.fields_redacted,
        phi: counts.phi,
        dropped_columns: result::dropped_columns(&counts.dropped),
        ..facts
    }
}

/// As strict as any other response.
fn value(raw: &RawValue) -> Result<Value, ExecutorError> {
    let value = parse_strict(raw.get().as_bytes());
    Ok(value.map_err(|_| UpstreamError::BadResult("its result is no strict JSON"))?)
}

fn raw(value: &Value) -> Box<RawValue> {
    // A value always has a JSON form.
    to_raw_value(value).unwrap_or_default()
}
