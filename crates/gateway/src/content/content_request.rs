//! The request for a prompt, resource, skill or completion, as parsed from the client's message.

use std::borrow::Cow;
use std::collections::BTreeMap;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use wardgate_domain::OfferKind;
use wardgate_gateway_store::Sealer;
use wardgate_mcp::Version;
use wardgate_mcp_server::{
    ContentMethod, JsonRpcMessage, JsonRpcRequest, RpcError, object, text_of,
};
use wardgate_rpc::client::ContentPart;

use super::skill;
use crate::catalogue::{ContentIndex, ContentLocation, View};
use crate::request_context::RequestContext;

/// The request for one prompt, resource or template, by the name that the client uses.
#[derive(Debug)]
pub(crate) struct ContentRequest {
    pub(super) method: ContentMethod,
    /// The protocol version, for the record.
    pub(super) protocol: &'static str,
    /// The whole MCP `params`, a JSON object.
    pub(super) params: String,
    pub(super) of: ContentName,
    pub(super) wanted: ContentPart,
}

/// A content request in a form that any replica can read.
#[derive(Serialize, Deserialize)]
struct SealedContentRequest {
    method: String,
    params: String,
}

impl ContentRequest {
    /// Returns the request in the form for the store, or `None` if it cannot be serialized.
    pub(super) fn seal_request(&self) -> Option<Box<RawValue>> {
        let sealed = to_raw_value(&SealedContentRequest {
            method: self.method.as_str().to_owned(),
            params: self.params.clone(),
        });
        sealed.ok()
    }

    /// Returns the request that `sealed` holds, or `None` if it cannot be read, for example because a newer gateway wrote a
    /// method that this one does not know.
    pub(crate) fn unseal(sealed: &RawValue, version: Version) -> Option<Self> {
        let SealedContentRequest {
            method: name,
            params,
        } = serde_json::from_str(sealed.get()).ok()?;
        let method = ContentMethod::from_name(&name)?;
        let text = format!(r#"{{"jsonrpc":"2.0","id":0,"method":"{name}","params":{params}}}"#);
        let Ok(JsonRpcMessage::Request(request)) = JsonRpcMessage::parse(&text) else {
            return None;
        };
        Self::from_request(method, &request, version.as_str()).ok()
    }
}

/// The name of a prompt, or the URI of a resource or template.
#[derive(Debug)]
pub(crate) enum ContentName {
    Prompt(String),
    Resource(String),
    Template(String),
}

impl ContentName {
    /// Returns the kind of content, which determines the right that the request needs.
    pub(super) fn kind(&self) -> OfferKind {
        match self {
            Self::Prompt(_) => OfferKind::Prompts,
            Self::Resource(_) | Self::Template(_) => OfferKind::Resources,
        }
    }

    /// Returns the catalogue's entry of this name in `view`.
    pub(super) fn find(&self, index: &ContentIndex, view: &View) -> Option<ContentLocation> {
        match self {
            Self::Prompt(name) => index.prompt(&view.prompt(name)),
            Self::Resource(uri) => index.resource(&view.uri(uri)?),
            // A completion is looked up among the templates, because its URI need not be complete.
            Self::Template(text) => index.template(&view.uri(text)?),
        }
    }
}

#[derive(Deserialize)]
struct CompletionParams<'a> {
    #[serde(borrow, rename = "ref")]
    reference: &'a RawValue,
    #[serde(borrow)]
    argument: &'a RawValue,
    #[serde(borrow, default)]
    context: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct CompletionReference<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    uri: Option<String>,
}

#[derive(Deserialize)]
struct CompletionArgument {
    name: String,
    value: String,
}

#[derive(Deserialize)]
struct CompletionContext<'a> {
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

impl ContentRequest {
    pub(super) fn from_request(
        method: ContentMethod,
        request: &JsonRpcRequest<'_>,
        protocol: &'static str,
    ) -> Result<Self, RpcError> {
        let text = |raw: Option<&RawValue>, field: &str| {
            let text = raw.and_then(text_of).map(Cow::into_owned);
            text.ok_or_else(|| {
                RpcError::invalid_params(format!("`params.{field}` must be a string"))
            })
        };
        let params = &request.params;
        let (of, wanted) = match method {
            ContentMethod::GetPrompt => (
                ContentName::Prompt(text(params.name, "name")?),
                ContentPart::Prompt(texts(params.arguments, "params.arguments")?),
            ),
            ContentMethod::ReadResource => (
                ContentName::Resource(text(params.uri, "uri")?),
                ContentPart::Resource,
            ),
            ContentMethod::GetSkill => (
                ContentName::Resource(text(params.uri, "uri")?),
                ContentPart::Skill,
            ),
            ContentMethod::ReadDirectory => {
                let cursor = params.cursor.map(|_| text(params.cursor, "cursor"));
                let uri = text(params.uri, "uri")?;
                (
                    ContentName::Resource(uri),
                    ContentPart::Directory(cursor.transpose()?),
                )
            }
            _ => completion(request.raw_params())?,
        };
        Ok(Self {
            method,
            protocol,
            params: request.raw_params().map_or("{}", RawValue::get).to_owned(),
            of,
            wanted,
        })
    }

    /// Returns the same request with the source's own cursor in place of the sealed one.
    pub(super) fn with_source_cursor(
        self,
        sealer: &Sealer,
        context: &RequestContext,
    ) -> Result<Self, RpcError> {
        let (ContentPart::Directory(Some(given)), ContentName::Resource(uri)) =
            (&self.wanted, &self.of)
        else {
            return Ok(self);
        };
        let own = skill::cursor(sealer, &context.caller, &context.view, uri, given);
        let own = own.ok_or_else(|| {
            RpcError::invalid_params(
                "`params.cursor` is unknown: use the `nextCursor` of this directory, or none",
            )
        })?;
        Ok(Self {
            wanted: ContentPart::Directory(Some(own)),
            ..self
        })
    }
}

fn completion(params: Option<&RawValue>) -> Result<(ContentName, ContentPart), RpcError> {
    let params: CompletionParams<'_> =
        params.and_then(|raw| object(raw.get())).ok_or_else(|| {
            RpcError::invalid_params("`params.ref` and `params.argument` must be objects")
        })?;
    let reference = object::<CompletionReference<'_>>(params.reference.get());
    let of = reference.and_then(|reference| match &*reference.kind {
        "ref/prompt" => reference.name.map(ContentName::Prompt),
        "ref/resource" => reference.uri.map(ContentName::Template),
        _ => None,
    });
    let of = of.ok_or_else(|| {
        RpcError::invalid_params(
            "`params.ref` must be {\"type\":\"ref/prompt\",\"name\":…} or {\"type\":\"ref/resource\",\"uri\":…}",
        )
    })?;
    let argument: CompletionArgument = object(params.argument.get()).ok_or_else(|| {
        RpcError::invalid_params("`params.argument` must have a `name` and a `value`, both strings")
    })?;
    let context = match params.context {
        None => None,
        Some(raw) => {
            object::<CompletionContext<'_>>(raw.get())
                .ok_or_else(|| RpcError::invalid_params("`params.context` must be an object"))?
                .arguments
        }
    };
    let wanted = ContentPart::Completion {
        argument: argument.name,
        value: argument.value,
        known: texts(context, "params.context.arguments")?,
    };
    Ok((of, wanted))
}

/// Returns the text of an object of strings, as the client wrote it. Empty if there is no object.
fn texts(raw: Option<&RawValue>, field: &str) -> Result<Bytes, RpcError> {
    let Some(raw) = raw else {
        return Ok(Bytes::new());
    };
    let texts = object::<BTreeMap<Cow<'_, str>, Cow<'_, str>>>(raw.get());
    match texts {
        Some(_) => Ok(Bytes::copy_from_slice(raw.get().as_bytes())),
        None => Err(RpcError::invalid_params(format!(
            "`{field}` must be an object of strings"
        ))),
    }
}

#[cfg(test)]
mod tests;
