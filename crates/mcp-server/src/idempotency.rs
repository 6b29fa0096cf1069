//! The idempotency key of a call, in `_meta` or in the header `Idempotency-Key`. A tool that may write never runs twice for the
//! same key of the same caller.

use std::borrow::Cow;

use axum::http::HeaderMap;

use crate::envelope::text_of;
use crate::meta::RequestMeta;
use crate::rpc_error::RpcError;

/// Maximum number of characters of a key.
const MAX_KEY: usize = 128;

/// Returns the idempotency key of a request, or `None` if it has none.
pub fn key_of(meta: &RequestMeta<'_>, headers: &HeaderMap) -> Result<Option<String>, RpcError> {
    let in_body = match meta.idempotency_key {
        Some(raw) => Some(text_of(raw).ok_or_else(unfit)?),
        None => None,
    };
    let mut in_headers = headers.get_all("idempotency-key").iter();
    let in_header = match (in_headers.next(), in_headers.next()) {
        (None, _) => None,
        (Some(value), None) => Some(Cow::Borrowed(value.to_str().map_err(|_| unfit())?)),
        (Some(_), Some(_)) => return Err(unfit()),
    };
    let key = match (in_body, in_header) {
        (Some(body), Some(header)) if body != header => return Err(unfit()),
        (body, header) => body.or(header),
    };
    match key {
        Some(key) if is_key(&key) => Ok(Some(key.into_owned())),
        Some(_) => Err(unfit()),
        None => Ok(None),
    }
}

fn is_key(text: &str) -> bool {
    (1..=MAX_KEY).contains(&text.len()) && text.chars().all(|c| c.is_ascii_graphic())
}

fn unfit() -> RpcError {
    RpcError::invalid_params(format!(
        "an idempotency key must have 1 to {MAX_KEY} visible ASCII characters, and be sent once: in `_meta` dev.wardgate/idempotencyKey \
         or the header Idempotency-Key"
    ))
}
