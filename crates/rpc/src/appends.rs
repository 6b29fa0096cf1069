//! The server side of `Append`: each record of the client's stream is a call, and its result is a part of the server's stream.

use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt, TryStreamExt};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;
use tonic::{Request, Status, Streaming};
use wardgate_domain::{InvalidMessage, Receipt, Record};
use wardgate_proto::audit::v1 as pb;
use wardgate_proto::audit::v1::append_result;
use wardgate_telemetry::trace_context::TraceContext;

use crate::client::{CallError, LONGEST_APPEND, RecordAppender};
use crate::status::internal;
use crate::streamed_calls::StreamedCalls;

/// Maximum number of records of one stream that are appended at the same time. Further ones are not read yet.
const MOST_APPENDS: usize = 4_096;

/// Maximum number of results in one message.
const MOST_RESULTS: usize = 256;

/// Number of messages with results that may wait for the client.
const WAITING_RESPONSES: usize = 16;

/// Time after which a client that does not read its results is given up, so that it does not delay others.
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Maximum time limit that a client can set for a record.
const LONGEST_LIMIT: Duration = Duration::from_mins(1);

/// Appends the records of `request` with `appender`, and returns the messages with their results.
pub fn serve_appends(
    appender: Arc<impl RecordAppender + ?Sized + 'static>,
    request: Request<Streaming<pb::AppendRequest>>,
) -> Result<BoxStream<'static, Result<pb::AppendResponse, Status>>, Status> {
    let calls = request.extensions().get::<StreamedCalls>();
    let calls = calls.cloned().ok_or_else(internal)?;
    let records = request.into_inner().map_ok(|request| {
        let single = request.record.map(|record| NewRecord {
            id: None,
            message: pb::NewRecord {
                record: Some(Box::new(record)),
                retry: request.retry,
                ..pb::NewRecord::default()
            },
        });
        let records = request.records.into_iter().map(|message| NewRecord {
            id: Some(message.id),
            message,
        });
        stream::iter(single.into_iter().chain(records).map(Ok))
    });
    let mut responses = records
        .try_flatten()
        // Boxed, because the set of futures moves them.
        .map(move |record| append(Arc::clone(&appender), calls.clone(), record).boxed())
        .buffer_unordered(MOST_APPENDS)
        .try_ready_chunks(MOST_RESULTS)
        .map(|results| results.map(response).map_err(|error| error.1));
    let (sender, receiver) = mpsc::channel(WAITING_RESPONSES);
    // The appends have their own task, because the stream of responses is only polled while the client reads it.
    let appending = AbortOnDropHandle::new(tokio::spawn(async move {
        while let Some(response) = responses.next().await {
            if !matches!(
                timeout(LONGEST_WAIT, sender.send(response)).await,
                Ok(Ok(()))
            ) {
                return;
            }
        }
    }));
    let responses = ReceiverStream::new(receiver).map(move |response| {
        let _until_sent = &appending;
        response
    });
    Ok(responses.boxed())
}

/// A record to append.
struct NewRecord {
    /// The id for the result, or `None` for the record of a client that makes a call for each record.
    id: Option<u64>,
    message: pb::NewRecord,
}

/// The result of a record.
enum AppendedRecord {
    /// The receipt for a client that makes a call for each record.
    Single(pb::Receipt),
    /// The result for a client that sends many records.
    Numbered(pb::AppendResult),
}

/// Appends a record, and returns its result. A failure is an error only if the record has no id.
async fn append(
    appender: Arc<impl RecordAppender + ?Sized>,
    calls: StreamedCalls,
    record: Result<NewRecord, Status>,
) -> Result<AppendedRecord, Status> {
    let NewRecord { id, message } = record?;
    let context = TraceContext::from_fields(message.traceparent, message.tracestate);
    let limit = message.time_limit.and_then(|limit| limit.try_into().ok());
    let limit = limit.unwrap_or(LONGEST_APPEND).min(LONGEST_LIMIT);
    let appended = async {
        let record = message.record;
        let record = record.ok_or_else(|| InvalidMessage::field("record", "is missing"))?;
        let record = Record::try_from(*record)?;
        appender.append(Arc::new(record), message.retry).await
    };
    let appended: Result<Receipt, CallError> = calls.run(&context, limit, appended).await;
    let Some(id) = id else {
        return Ok(AppendedRecord::Single(appended?.into()));
    };
    let result = match appended {
        Ok(receipt) => append_result::Result::Receipt(receipt.into()),
        Err(error) => append_result::Result::Error(pb::AppendError {
            reason: error.reason().into(),
            message: error.to_string(),
        }),
    };
    Ok(AppendedRecord::Numbered(pb::AppendResult {
        id,
        result: Some(result),
    }))
}

/// Returns the message with these results.
fn response(results: Vec<AppendedRecord>) -> pb::AppendResponse {
    let mut response = pb::AppendResponse::default();
    for result in results {
        match result {
            AppendedRecord::Single(receipt) => response.receipt = Some(receipt),
            AppendedRecord::Numbered(result) => response.results.push(result),
        }
    }
    response
}
