//! Validation of chat requests.

use crate::request::ChatRequest;

use super::failure::TurnFailure;

/// Maximum length of a message, in bytes.
const MAX_MESSAGE: usize = 256 << 10;
/// Maximum length of a message id, in characters. The ids of a turn's steps are derived from the message id.
const MAX_MESSAGE_ID: usize = 96;
/// Maximum length of a conversation id, in characters.
const MAX_CONVERSATION_ID: usize = 256;

/// Validates `request`. The error tells how to correct it.
pub(super) fn check(request: &ChatRequest) -> Result<(), TurnFailure> {
    let wrong = |what: &str| Err(TurnFailure::Request(what.to_owned()));
    let is_id = |id: &Option<String>, max: usize| {
        id.as_ref().is_none_or(|id| {
            !id.is_empty() && id.chars().count() <= max && !id.contains(char::is_control)
        })
    };
    if request.message.trim().is_empty() {
        return wrong("`message` is empty");
    }
    if request.message.len() > MAX_MESSAGE {
        return wrong("`message` is longer than 256 KiB; split it");
    }
    if request.message.contains('\0') {
        return wrong("`message` contains a NUL character");
    }
    if !is_id(&request.message_id, MAX_MESSAGE_ID) {
        return wrong("`message_id` is not 1 to 96 characters without control characters");
    }
    if !is_id(&request.conversation_id, MAX_CONVERSATION_ID) {
        return wrong("`conversation_id` is not 1 to 256 characters without control characters");
    }
    Ok(())
}
