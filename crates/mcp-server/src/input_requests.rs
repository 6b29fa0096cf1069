//! Requests of upstream servers for user input, in the form in which they are passed on to a client.
//!
//! Only requests that the client declared capabilities for are passed on. An elicitation is labelled with the name of its server,
//! so that a user does not give one server what was meant for another.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;
use wardgate_domain::Ambient;
use wardgate_json::replace_part;
use wardgate_mcp::Version;

use crate::{elicitation, object};

/// Maximum number of requests in one round.
const MOST: usize = 16;

/// Maximum length of a key in bytes.
const KEY_BYTES: usize = 256;

/// Maximum total size of the requests of one round in bytes.
const MOST_BYTES: usize = 1 << 20;

/// Input requests to one client, by key.
#[derive(Debug)]
pub struct InputRequests {
    keys: Vec<String>,
    json: String,
}

/// The client that is asked for input.
#[derive(Debug, Clone, Copy)]
pub struct InputRecipient<'a> {
    /// The protocol version that it speaks.
    pub version: Version,
    /// The capabilities of the client, an MCP object `ClientCapabilities`.
    pub capabilities: Option<&'a str>,
    /// The name of the server that asks, or `None` in a view of a single server.
    pub label: Option<&'a str>,
    /// The source of random ids for elicitations.
    pub ambient: &'a Ambient,
}

/// The reason why input requests are not passed on to the client.
#[derive(Debug, PartialEq, Eq)]
pub enum InputRequestError {
    /// The requests are unknown or malformed, or exceed a limit.
    Malformed,
    /// The client lacks these capabilities, a JSON object.
    Undeclared(&'static str),
}

use InputRequestError::{Malformed, Undeclared};

#[derive(Deserialize)]
struct RawInputRequest<'a> {
    #[serde(borrow)]
    method: Cow<'a, str>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

/// The parameters that the gateway reads, of all kinds of requests.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InputRequestParams<'a> {
    #[serde(borrow, default)]
    mode: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_choice: Option<&'a RawValue>,
}

/// The client's capabilities for input. The members of undeclared capabilities are absent or null.
#[derive(Default, Deserialize)]
struct DeclaredRequests<'a> {
    #[serde(borrow, default)]
    elicitation: Option<ElicitationModes<'a>>,
    #[serde(borrow, default)]
    sampling: Option<SamplingFeatures<'a>>,
    #[serde(borrow, default)]
    roots: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ElicitationModes<'a> {
    #[serde(borrow, default)]
    form: Option<&'a RawValue>,
    #[serde(borrow, default)]
    url: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct SamplingFeatures<'a> {
    #[serde(borrow, default)]
    tools: Option<&'a RawValue>,
}

impl InputRequests {
    /// Parses `requests`, an MCP object `inputRequests`, and adapts each request to `recipient`.
    ///
    /// Returns an error if a request is malformed, or if the client did not declare the capability for it.
    pub fn parse(requests: &str, recipient: InputRecipient<'_>) -> Result<Self, InputRequestError> {
        if requests.len() > MOST_BYTES {
            return Err(Malformed);
        }
        let requested: BTreeMap<String, &RawValue> = object(requests).ok_or(Malformed)?;
        if requested.len() > MOST || requested.keys().any(|key| key.len() > KEY_BYTES) {
            return Err(Malformed);
        }
        let capabilities = recipient.capabilities.and_then(object).unwrap_or_default();
        let mut by_key = BTreeMap::new();
        for (key, request) in requested {
            let request = parse_request(request.get(), &capabilities, recipient)?;
            let request = RawValue::from_string(request).map_err(|_| Malformed)?;
            by_key.insert(key, request);
        }
        let json = serde_json::to_string(&by_key).map_err(|_| Malformed)?;
        let keys = by_key.into_keys().collect();
        Ok(Self { keys, json })
    }

    /// Returns whether there are no requests, in which case the client only repeats the call.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Returns the keys of the requests.
    pub fn keys(&self) -> &[String] {
        &self.keys
    }

    /// Returns the requests as an MCP object `inputRequests`.
    pub fn as_json(&self) -> &str {
        &self.json
    }
}

/// Parses one request and adapts it to `recipient`.
fn parse_request(
    request: &str,
    capabilities: &DeclaredRequests<'_>,
    recipient: InputRecipient<'_>,
) -> Result<String, InputRequestError> {
    let InputRecipient {
        version,
        label,
        ambient,
        ..
    } = recipient;
    let requested: RawInputRequest<'_> = object(request).ok_or(Malformed)?;
    let params: Option<InputRequestParams<'_>> = match requested.params {
        Some(params) => Some(object(params.get()).ok_or(Malformed)?),
        None => None,
    };
    match (&*requested.method, &params) {
        ("roots/list", _) => {
            let can = capabilities.roots.is_some();
            can.then(|| request.to_owned())
                .ok_or(Undeclared(r#"{"roots":{}}"#))
        }
        ("sampling/createMessage", Some(params)) => {
            let sampling = capabilities.sampling.as_ref();
            let sampling = sampling.ok_or(Undeclared(r#"{"sampling":{}}"#))?;
            let needs_tools = params.tools.or(params.tool_choice).is_some();
            if needs_tools && (sampling.tools.is_none() || !version.has_sampling_tools()) {
                return Err(Undeclared(r#"{"sampling":{"tools":{}}}"#));
            }
            Ok(request.to_owned())
        }
        ("elicitation/create", Some(params)) => {
            can_elicit(capabilities, params.mode.as_deref(), version)?;
            let message = params.message.ok_or(Malformed)?.get();
            let text: String = serde_json::from_str(message).map_err(|_| Malformed)?;
            let labelled = label.map(|label| Value::from(format!("[{label}] {text}")).to_string());
            let request = match labelled {
                Some(labelled) => replace_part(request, message, &labelled),
                None => request.to_owned(),
            };
            if version.is_modern() {
                return Ok(request);
            }
            elicitation::for_version(&request, version, ambient).ok_or(Undeclared(FORM))
        }
        _ => Err(Malformed),
    }
}

const FORM: &str = r#"{"elicitation":{"form":{}}}"#;
const URL: &str = r#"{"elicitation":{"url":{}}}"#;

fn can_elicit(
    capabilities: &DeclaredRequests<'_>,
    mode: Option<&str>,
    version: Version,
) -> Result<(), InputRequestError> {
    let modes = capabilities.elicitation.as_ref();
    let modes = modes.filter(|_| version.has_elicitation());
    match mode {
        // A client that declares no mode supports forms.
        None | Some("form") => modes
            .filter(|modes| modes.form.is_some() || modes.url.is_none())
            .map(drop)
            .ok_or(Undeclared(FORM)),
        Some("url") => modes
            .filter(|modes| modes.url.is_some() && version.has_url_elicitation())
            .map(drop)
            .ok_or(Undeclared(URL)),
        Some(_) => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODERN: Version = Version::V2026_07_28;

    const ASK: &str = r#"{"method":"elicitation/create","params":{ "message" : "Who?","requestedSchema":{"type":"object","x":1.10}},"more":1e2}"#;
    const VISIT: &str = r#"{"method":"elicitation/create","params":{"mode":"url","message":"Sign in","url":"https://a.example"}}"#;
    const SAMPLE: &str = r#"{"method":"sampling/createMessage","params":{"temperature":0.70}}"#;
    const SAMPLE_WITH_TOOLS: &str =
        r#"{"method":"sampling/createMessage","params":{"tools":[],"maxTokens":1}}"#;
    const ROOTS: &str = r#"{"method":"roots/list"}"#;

    fn read_all(
        requests: &str,
        able: &str,
        version: Version,
    ) -> Result<InputRequests, InputRequestError> {
        let recipient = InputRecipient {
            version,
            capabilities: Some(able),
            label: Some("files"),
            ambient: &Ambient::system(),
        };
        InputRequests::parse(requests, recipient)
    }

    fn parse(request: &str, able: &str) -> Result<String, InputRequestError> {
        let read = read_all(&format!(r#"{{"a":{request}}}"#), able, MODERN)?;
        assert_eq!(read.keys(), ["a"]);
        Ok(read.as_json().to_owned())
    }

    #[test]
    fn what_the_client_can_answer_passes_as_it_is_but_for_the_name_of_who_asks() {
        let labelled = ASK.replace(r#""Who?""#, r#""[files] Who?""#);
        for able in [r#"{"elicitation":{}}"#, r#"{"elicitation":{"form":{}}}"#] {
            assert_eq!(parse(ASK, able).unwrap(), format!(r#"{{"a":{labelled}}}"#));
        }
        let visited = parse(VISIT, r#"{"elicitation":{"url":{}}}"#).unwrap();
        assert!(
            visited.contains(r#""message":"[files] Sign in""#),
            "{visited}"
        );
        for (request, able) in [
            (SAMPLE, r#"{"sampling":{}}"#),
            (SAMPLE_WITH_TOOLS, r#"{"sampling":{"tools":{}}}"#),
            (ROOTS, r#"{"roots":{"listChanged":true}}"#),
        ] {
            assert_eq!(
                parse(request, able).unwrap(),
                format!(r#"{{"a":{request}}}"#)
            );
        }
    }

    #[test]
    fn what_the_client_did_not_say_it_can_answer_is_named() {
        for (request, able, needed) in [
            (ASK, "{}", FORM),
            (ASK, r#"{"elicitation":{"url":{}}}"#, FORM),
            (VISIT, r#"{"elicitation":{}}"#, URL),
            (VISIT, r#"{"elicitation":{"form":{},"url":null}}"#, URL),
            (SAMPLE, r#"{"elicitation":{}}"#, r#"{"sampling":{}}"#),
            (
                SAMPLE_WITH_TOOLS,
                r#"{"sampling":{}}"#,
                r#"{"sampling":{"tools":{}}}"#,
            ),
            (ROOTS, r#"{"roots":null}"#, r#"{"roots":{}}"#),
        ] {
            assert_eq!(
                parse(request, able).unwrap_err(),
                Undeclared(needed),
                "{request}"
            );
        }
        assert!(read_all("{}", "{}", MODERN).unwrap().is_empty());
    }

    #[test]
    fn what_is_no_request_to_a_client_is_none() {
        let all = r#"{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{}}"#;
        for request in [
            "7",
            "{}",
            r#"["elicitation/create",{}]"#,
            r#"{"method":"ping"}"#,
            r#"{"method":"elicitation/create"}"#,
            r#"{"method":"elicitation/create","params":[]}"#,
            r#"{"method":"elicitation/create","params":{"message":7}}"#,
            r#"{"method":"elicitation/create","params":{"message":"a","mode":"voice"}}"#,
            r#"{"method":"elicitation/create","params":{"message":"a","m\u0065ssage":"b"}}"#,
            r#"{"method":"sampling/createMessage"}"#,
        ] {
            assert_eq!(parse(request, all).unwrap_err(), Malformed, "{request}");
        }
        let many: Vec<_> = (0..=MOST).map(|n| format!(r#""{n}":{ROOTS}"#)).collect();
        let long = format!(r#"{{"{}":{ROOTS}}}"#, "k".repeat(KEY_BYTES + 1));
        for requests in [format!("{{{}}}", many.join(",")), long, "[]".to_owned()] {
            assert_eq!(read_all(&requests, all, MODERN).unwrap_err(), Malformed);
        }
    }

    #[test]
    fn an_older_client_is_asked_only_what_its_version_knows() {
        let all = r#"{"elicitation":{"form":{},"url":{}},"sampling":{"tools":{}},"roots":{}}"#;
        let knows = |request: &str, version| {
            read_all(&format!(r#"{{"a":{request}}}"#), all, version).is_ok()
        };
        let versions = [
            Version::V2024_11_05,
            Version::V2025_03_26,
            Version::V2025_06_18,
            Version::V2025_11_25,
            MODERN,
        ];
        for (request, known) in [
            (ASK, [false, false, true, true, true]),
            (VISIT, [false, false, false, true, true]),
            (SAMPLE, [true; 5]),
            (SAMPLE_WITH_TOOLS, [false, false, false, true, true]),
            (ROOTS, [true; 5]),
        ] {
            assert_eq!(
                versions.map(|version| knows(request, version)),
                known,
                "{request}"
            );
        }
    }
}
