//! The audit service, as its callers see it.

use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt, TryStreamExt};
use wardgate_domain::{Digest, InvalidMessage, Receipt, Record, Status, Timestamp};
use wardgate_proto::audit::v1 as pb;
use wardgate_proto::audit::v1::audit_service_client::AuditServiceClient;

use super::{CallError, open_request, request, within};
use crate::Link;

/// Appends to the record and reads it.
#[derive(Debug, Clone)]
pub struct AuditClient {
    client: AuditServiceClient<Link>,
    limit: Duration,
}

/// Which records to read; every filter that is set must match.
#[derive(Debug, Clone, Default)]
pub struct AuditFilter {
    /// Token subject.
    pub subject: Option<String>,
    /// Canonical tool name.
    pub tool: Option<String>,
    /// One call.
    pub call_id: Option<String>,
    /// How the call ended.
    pub status: Option<Status>,
    /// Not before.
    pub since: Option<Timestamp>,
    /// Before.
    pub until: Option<Timestamp>,
    /// At or above this sequence number.
    pub from_sequence: u64,
    /// Below this sequence number.
    pub before_sequence: Option<u64>,
    /// At most so many; none: all.
    pub limit: Option<u64>,
    /// Newest first instead of oldest first.
    pub newest_first: bool,
}

/// One record as stored.
#[derive(Debug, Clone)]
pub struct StoredRecord {
    /// Position in the sequence.
    pub sequence: u64,
    /// RFC 6962 leaf hash.
    pub leaf_hash: Digest,
    /// Canonical bytes.
    pub record: Bytes,
}

impl AuditClient {
    /// Over `link`; no append takes longer than `limit`.
    pub fn new(link: Link, limit: Duration) -> Self {
        Self {
            client: AuditServiceClient::new(link),
            limit,
        }
    }

    /// The same record, with no append taking longer than `limit`.
    #[must_use]
    pub fn with_limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Makes `record` durable. After a failure the record may or may not be stored; appending it once
    /// more with `retry` settles it.
    pub async fn append(&self, record: &Record, retry: bool) -> Result<Receipt, CallError> {
        let message = pb::AppendRequest {
            record: Some(record.into()),
            retry,
        };
        let mut client = self.client.clone();
        within(self.limit, async move {
            let answer = client
                .append(request(message, self.limit))
                .await?
                .into_inner();
            let receipt = answer
                .receipt
                .ok_or_else(|| InvalidMessage::field("receipt", "is missing"))?;
            Ok(receipt.try_into()?)
        })
        .await
    }

    /// The records that match, one after the other.
    pub async fn query(
        &self,
        filter: AuditFilter,
    ) -> Result<impl Stream<Item = Result<StoredRecord, CallError>> + use<>, CallError> {
        let mut message = pb::QueryRequest {
            subject: filter.subject.unwrap_or_default(),
            tool: filter.tool.unwrap_or_default(),
            call_id: filter.call_id.unwrap_or_default(),
            since: filter.since.map(Into::into),
            until: filter.until.map(Into::into),
            from_sequence: filter.from_sequence,
            before_sequence: filter.before_sequence.unwrap_or(0),
            limit: filter.limit.unwrap_or(0),
            newest_first: filter.newest_first,
            ..pb::QueryRequest::default()
        };
        if let Some(status) = filter.status {
            message.set_status(status.into());
        }
        let mut client = self.client.clone();
        let records = client.query(open_request(message)).await?.into_inner();
        Ok(records.map_err(CallError::from).map(|stored| {
            let stored = stored?;
            Ok(StoredRecord {
                sequence: stored.sequence,
                leaf_hash: Digest::from_wire(&stored.leaf_hash, "leaf_hash")?,
                record: stored.record,
            })
        }))
    }
}
