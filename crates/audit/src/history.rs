//! Counts of earlier calls, for policies that depend on the history of calls.
//!
//! The intent of a call whose policies depend on the history is stored before calls are counted. Counted are the calls that
//! ended, and those without an outcome whose intents precede the intent of this call. Of several calls that are decided at the
//! same time, each therefore counts those before it, whichever gateway or policy service they use.
//!
//! A count by tag uses the tags in the records, which are those that the tools had when they were called. Calls of tools that
//! were removed, renamed or tagged differently later therefore still count.

use wardgate_rpc::client::{CallCountQuery, CallSelection};

use crate::canonical::conversation_hmac;
use crate::store::{CountedRecords, StoreReader};
use crate::{Error, MacKey};

/// Returns the number of calls for each selection of `query`.
pub(crate) async fn count_calls(
    reader: &StoreReader,
    mac_key: &MacKey,
    query: &CallCountQuery,
) -> Result<Vec<u64>, Error> {
    let decided = match query.call_id {
        None => None,
        Some(call_id) => {
            let intent = reader.intent_of(call_id, &query.subject).await?;
            let no_intent = || Error::NoIntent {
                call_id: call_id.to_string(),
            };
            Some((call_id, intent.ok_or_else(no_intent)?))
        }
    };
    let complete_since = reader.complete_since().await?;
    let mut counts = Vec::with_capacity(query.selections.len());
    for selection in &query.selections {
        let CallSelection {
            tools, tags, since, ..
        } = selection;
        if complete_since.is_some_and(|complete| complete > *since) {
            return Err(Error::HistoryPruned);
        }
        let conversation = selection.conversation;
        let conversation = conversation.map(|it| conversation_hmac(it, mac_key));
        let tags = serde_json::Value::from(tags.clone()).to_string();
        let counted = CountedRecords {
            subject: &query.subject,
            tool: None,
            tags: &tags,
            since: *since,
            until: query.until,
            decided,
            conversation: conversation.as_deref(),
            phi: selection.phi,
        };
        let mut count = 0;
        let each = tools.iter().map(Some);
        for tool in each.chain(tools.is_empty().then_some(None)) {
            count += reader.count(CountedRecords { tool, ..counted }).await?;
        }
        counts.push(count);
    }
    Ok(counts)
}
