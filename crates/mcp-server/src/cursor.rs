//! Pagination cursors of lists. A cursor is opaque to clients and only encodes what the client was already shown.

use std::str::FromStr;

use crate::{JsonRpcRequest, RpcError, text_of};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};

/// A position in a paginated list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cursor {
    /// After the entry with this name.
    After(String),
    /// In the list of conversations; the cursor is the one of the memory service.
    Memory(String),
}

impl Cursor {
    /// Returns the cursor of `request`, or `None` if the request is for the first page.
    pub fn from_request(request: &JsonRpcRequest<'_>) -> Result<Option<Self>, RpcError> {
        let Some(raw) = request.params.cursor else {
            return Ok(None);
        };
        let cursor = text_of(raw).ok_or("must be a string");
        let cursor = cursor.and_then(|text| text.parse());
        let cursor = cursor
            .map_err(|problem| RpcError::invalid_params(format!("`params.cursor` {problem}")))?;
        Ok(Some(cursor))
    }

    /// Encodes the cursor as the text that clients send back.
    pub fn write(&self) -> String {
        // Serializing a cursor cannot fail.
        let json = serde_json::to_vec(self).unwrap_or_default();
        URL_SAFE_NO_PAD.encode(json)
    }
}

impl FromStr for Cursor {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok();
        let cursor = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
        cursor.ok_or("is unknown: use the `nextCursor` of this list, or omit it")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_reads_back_and_anything_else_is_none() {
        for cursor in [
            Cursor::After("guide://a b/ü".to_owned()),
            Cursor::Memory("17".to_owned()),
            Cursor::Memory(String::new()),
        ] {
            assert_eq!(cursor.write().parse(), Ok(cursor));
        }
        for text in ["", "?", "e30", "W10", "17"] {
            assert!(text.parse::<Cursor>().is_err(), "{text}");
        }
    }
}
