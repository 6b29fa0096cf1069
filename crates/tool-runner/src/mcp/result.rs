//! The result of a call as the server gave it.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::error::UpstreamError;

/// What a tool of an upstream server answered; each part byte for byte.
#[derive(Debug, Clone)]
pub(crate) struct CallResult {
    /// A JSON array; none when there is structured content alone.
    pub(crate) content: Option<Box<RawValue>>,
    pub(crate) structured: Option<Box<RawValue>>,
    pub(crate) is_error: bool,
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "for callers that speak MCP themselves")
    )]
    pub(crate) meta: Option<Box<RawValue>>,
}

impl CallResult {
    pub(crate) fn read(result: &RawValue) -> Result<Self, UpstreamError> {
        #[derive(Deserialize)]
        struct Parts {
            #[serde(default)]
            content: Option<Box<RawValue>>,
            #[serde(
                default,
                rename = "structuredContent",
                deserialize_with = "even_if_null"
            )]
            structured: Option<Box<RawValue>>,
            #[serde(default, rename = "isError")]
            is_error: bool,
            #[serde(default, rename = "_meta")]
            meta: Option<Box<RawValue>>,
        }
        let parts: Parts = serde_json::from_str(result.get())
            .map_err(|_| UpstreamError::BadResult("its result cannot be read"))?;
        match &parts.content {
            Some(content) if !content.get().starts_with('[') => {
                return Err(UpstreamError::BadResult("its `content` is not a list"));
            }
            None if parts.structured.is_none() => {
                return Err(UpstreamError::BadResult("its result has no `content`"));
            }
            _ => {}
        }
        Ok(Self {
            content: parts.content,
            structured: parts.structured,
            is_error: parts.is_error,
            meta: parts.meta,
        })
    }
}

/// Structured content may be any JSON, `null` among it.
fn even_if_null<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// Refuses a result that is not the final one.
pub(crate) fn check_complete(result: &RawValue) -> Result<(), UpstreamError> {
    #[derive(Deserialize)]
    struct Kind {
        #[serde(default, rename = "resultType")]
        kind: Option<String>,
    }
    if !result.get().starts_with('{') {
        return Err(UpstreamError::BadResult("its result is not an object"));
    }
    let kind: Kind = serde_json::from_str(result.get())
        .map_err(|_| UpstreamError::BadResult("its result cannot be read"))?;
    match kind.kind.as_deref() {
        None | Some("complete") => Ok(()),
        Some("input_required") => Err(UpstreamError::InputRequired),
        Some(_) => Err(UpstreamError::BadResult(
            "its result is of a kind that was not asked for",
        )),
    }
}
