//! The server side of `Append`: each record of the client's stream is a call, and its result is a part of the server's stream.

use std::sync::Arc;

use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt, future};
use tonic::{Request, Status, Streaming};
use wardgate_domain::{InvalidMessage, Record};
use wardgate_proto::audit::v1 as pb;
use wardgate_proto::audit::v1::append_result;
use wardgate_telemetry::trace_context::TraceContext;

use crate::client::{LONGEST_APPEND, RecordAppender};
use crate::status::internal;
use crate::streamed_calls::StreamedCalls;

/// Maximum number of records of one stream that are appended at the same time. Further ones are not read yet.
const MOST_APPENDS: usize = 4_096;

/// Maximum number of results in one message.
const MOST_RESULTS: usize = 256;

/// Appends the records of `request` with `appender`, and returns the messages with their results.
pub fn serve_appends(
    appender: Arc<impl RecordAppender + ?Sized + 'static>,
    request: Request<Streaming<pb::AppendRequest>>,
) -> Result<BoxStream<'static, Result<pb::AppendResponse, Status>>, Status> {
    let calls = request.extensions().get::<StreamedCalls>();
    let calls = calls.cloned().ok_or_else(internal)?;
    let requests = request.into_inner();
    // A stream that breaks off ends like a complete one.
    let records = requests.filter_map(|request| future::ready(request.ok()));
    let results = records
        .flat_map(|request| stream::iter(request.records))
        // Boxed, because the set of futures moves them.
        .map(move |record| append(Arc::clone(&appender), calls.clone(), record).boxed())
        .buffer_unordered(MOST_APPENDS);
    let responses = results
        .ready_chunks(MOST_RESULTS)
        .map(|results| Ok(pb::AppendResponse { results }));
    Ok(responses.boxed())
}

async fn append(
    appender: Arc<impl RecordAppender + ?Sized>,
    calls: StreamedCalls,
    message: pb::NewRecord,
) -> pb::AppendResult {
    let context = TraceContext::from_fields(message.traceparent, message.tracestate);
    let limit = message.time_limit.and_then(|limit| limit.try_into().ok());
    let appended = async {
        let record = message.record;
        let record = record.ok_or_else(|| InvalidMessage::field("record", "is missing"))?;
        let record = Record::try_from(record)?;
        appender.append(Arc::new(record), message.retry).await
    };
    let appended = calls.run(&context, limit.unwrap_or(LONGEST_APPEND), appended);
    let result = match appended.await {
        Ok(receipt) => append_result::Result::Receipt(receipt.into()),
        Err(error) => append_result::Result::Error(pb::AppendError {
            reason: error.reason().into(),
            message: error.to_string(),
        }),
    };
    pb::AppendResult {
        id: message.id,
        result: Some(result),
    }
}
