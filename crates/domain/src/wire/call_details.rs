//! Conversions of call details.

use std::time::Duration;

use wardgate_proto::{audit, common};

use super::{parse, wire_duration};
use crate::{
    ArgumentOutline, CallDetails, ColumnTier, DataSubject, DataSubjects, Digest, InvalidMessage,
    OutlinedArgument, ResultColumn, ResultOutline,
};

impl TryFrom<common::v1::ResultOutline> for ResultOutline {
    type Error = InvalidMessage;

    fn try_from(outline: common::v1::ResultOutline) -> Result<Self, Self::Error> {
        if outline.columns.len() > ResultColumn::MOST || outline.subjects.len() > DataSubjects::MOST
        {
            return Err(InvalidMessage::field("result_outline", "is too long"));
        }
        let columns = outline.columns.into_iter().map(|column| {
            let tier = common::v1::ColumnTier::try_from(column.tier)
                .map_err(|_| InvalidMessage::field("columns.tier", "is unknown"))?;
            Ok(ResultColumn {
                class: parse(&column.class, "columns.class")?,
                tier: ColumnTier::try_from(tier)?,
                name: column.name,
                kind: column.r#type,
            })
        });
        let columns = columns.collect::<Result<_, InvalidMessage>>()?;
        let mut subjects = DataSubjects::default();
        for subject in outline.subjects {
            subjects.add(&subject.key.into(), subject.rows);
        }
        subjects.add_others(outline.rows_of_others);
        Ok(Self {
            columns,
            subjects,
            rows_undecided: outline.rows_undecided,
        })
    }
}

impl From<&ResultOutline> for common::v1::ResultOutline {
    fn from(outline: &ResultOutline) -> Self {
        let column = |column: &ResultColumn| common::v1::ResultColumn {
            name: column.name.clone(),
            class: column.class.to_string(),
            tier: common::v1::ColumnTier::from(column.tier).into(),
            r#type: column.kind.clone(),
        };
        let subject = |DataSubject { key, rows }| common::v1::DataSubject { key, rows };
        Self {
            columns: outline.columns.iter().map(column).collect(),
            subjects: outline.subjects.named_subjects().map(subject).collect(),
            rows_of_others: outline.subjects.rows_of_others(),
            rows_undecided: outline.rows_undecided,
        }
    }
}

impl TryFrom<audit::v1::CallDetails> for CallDetails {
    type Error = InvalidMessage;

    fn try_from(details: audit::v1::CallDetails) -> Result<Self, Self::Error> {
        let argument = |argument: audit::v1::OutlinedArgument| OutlinedArgument {
            name: argument.name,
            kind: argument.r#type,
            size: argument.size,
            value: argument.value,
        };
        let stages = details.stages.into_iter().map(|stage| {
            let spent = stage.duration.and_then(|spent| spent.try_into().ok());
            (stage.stage, spent.unwrap_or(Duration::ZERO))
        });
        Ok(Self {
            caller_digest: Digest::from_wire(&details.caller_digest, "details.caller_digest")?,
            client: details.client,
            actors: details.actors,
            arguments: ArgumentOutline {
                declared: details.arguments.into_iter().map(argument).collect(),
                undeclared: details.arguments_undeclared,
            },
            result: details.result.unwrap_or_default().try_into()?,
            columns_unclassified: details.columns_unclassified,
            columns_not_permitted: details.columns_not_permitted,
            stages: stages.collect(),
            trace_id: details.trace_id,
        })
    }
}

impl From<&CallDetails> for audit::v1::CallDetails {
    fn from(details: &CallDetails) -> Self {
        let argument = |argument: &OutlinedArgument| audit::v1::OutlinedArgument {
            name: argument.name.clone(),
            r#type: argument.kind.clone(),
            size: argument.size,
            value: argument.value.clone(),
        };
        let stages = details.stages.iter();
        let stages = stages.map(|(stage, spent)| common::v1::StageTime {
            stage: stage.clone(),
            duration: Some(wire_duration(*spent)),
        });
        Self {
            caller_digest: details.caller_digest.to_wire(),
            client: details.client.clone(),
            actors: details.actors.clone(),
            arguments: details.arguments.declared.iter().map(argument).collect(),
            arguments_undeclared: details.arguments.undeclared,
            result: Some((&details.result).into()),
            columns_unclassified: details.columns_unclassified,
            columns_not_permitted: details.columns_not_permitted,
            stages: stages.collect(),
            trace_id: details.trace_id.clone(),
        }
    }
}
