//! Learns a call format by rendering calls with unique words and finding the text around the words.
//!
//! ```text
//!  <tool_call>⏎{"name": "zqfirstname", "arguments": {"zqkeyone": "zqtextone"}}⏎</tool_call>⏎<tool_call>⏎{"name": "zqothername" …
//!  └─ opening ┘└────────────────────────── body ──────────────────────────────┘└─ closing ─┘ └─ continuation
//! ```

use serde_json::{Value, json};

use super::super::json::{self, Json};
use super::super::tokens::QUIET;
use super::TemplateError;
use super::format::{CallBody, CallFormat, NamedArguments, ObjectShape};
use super::learn_values::learn_listed_arguments;
use super::pattern::{Pattern, PatternPart, common_start, tokens};
use super::probe::{KEYS, NAMES, ProbeCall, Prober, TEXTS, pattern};

/// Returns the first call of all probes, which has one string argument.
fn first_call() -> ProbeCall<'static> {
    ProbeCall::new(0, json!({ KEYS[0]: TEXTS[0] }))
}

fn other_call() -> ProbeCall<'static> {
    ProbeCall::new(1, json!({ KEYS[1]: TEXTS[1] }))
}

/// A call located in a rendering.
pub(super) struct LocatedCall {
    /// The start of the body, which is the JSON object or the name.
    start: usize,
    /// The end of the call.
    end: usize,
    body: CallBody,
}

/// Learns the format of calls that are passed to the template in the prober's variant.
pub(super) fn learn_format(prober: &Prober) -> Result<CallFormat, TemplateError> {
    let one = prober.calls(&[first_call()])?;
    if !one.contains(NAMES[0]) || !one.contains(KEYS[0]) {
        return Err(TemplateError::NoCalls);
    }
    let two = prober.calls(&[first_call(), other_call()]).ok();
    let two = two.filter(|it| it.contains(NAMES[1]) && it.contains(KEYS[1]));
    let located = match locate_object(&one, two.as_deref()) {
        Some(located) => located,
        None => locate_name(prober, &one, two.as_deref())?,
    };
    let tail = &one[located.end..];
    let next = two
        .as_deref()
        .and_then(|two| between_calls(&located, &one, two));
    let closing = match &next {
        Some(next) => common_start(next, tail),
        None => "",
    };
    let continuation = next.as_ref().map(|next| &next[closing.len()..]);
    let ending = &tail[closing.len()..];
    let mut closings = tokens(closing);
    let continuation = continuation.map(|text| {
        let text = text.trim_start();
        let opening = text.trim_start_matches([',', ';']);
        closings.extend(tokens(&text[..text.len() - opening.len()]));
        pattern(opening).trim()
    });
    Ok(CallFormat {
        openings: openings(prober, &located, &one, continuation.as_ref()),
        continuation,
        body: located.body,
        closings,
        endings: tokens(ending),
    })
}

/// Returns the patterns before the first call of a message, both with and without text before the call.
fn openings(
    prober: &Prober,
    located: &LocatedCall,
    one: &str,
    continuation: Option<&Pattern>,
) -> Vec<Pattern> {
    let mut openings: Vec<Pattern> = Vec::new();
    let mut add = |opening: Pattern| {
        if !openings.contains(&opening) {
            openings.push(opening);
        }
    };
    // If a name precedes the call's own name, its value is not yet known while the opening is parsed, so only the text after it
    // counts.
    let own = |rendered: &str| {
        let opening = pattern(after_thoughts(rendered)).trim();
        opening.after_last(&PatternPart::Name).unwrap_or(opening)
    };
    add(own(&one[..located.start]));
    let body = &one[located.start..located.end];
    if let Some(text) = prober.calls_after_words(&[first_call()])
        && let Some(at) = text.find(body)
    {
        add(own(&text[..at]));
    }
    if let Some(continuation) = continuation.filter(|it| it.is_unmistakable()) {
        add(own_of(continuation));
    }
    openings
}

fn own_of(continuation: &Pattern) -> Pattern {
    let after_name = continuation.after_last(&PatternPart::Name);
    after_name.unwrap_or_else(|| continuation.clone())
}

/// Returns the text after the reasoning that a template renders before a call.
fn after_thoughts(text: &str) -> &str {
    let ends = QUIET.iter().flat_map(|(_, ends)| ends.iter());
    let closing = ends.filter(|end| end.contains('/') || end.contains("END_"));
    let last = closing.filter_map(|end| Some(text.rfind(end)? + end.len()));
    last.max().map_or(text, |at| &text[at..])
}

/// Returns the text between the end of the first call and the body of the second.
fn between_calls(located: &LocatedCall, one: &str, two: &str) -> Option<String> {
    let body = &one[located.start..located.end];
    let start = two.find(body)? + body.len();
    let rest = &two[start..];
    let end = match &located.body {
        CallBody::Object(_) => rest
            .match_indices('{')
            .map(|(at, _)| at)
            .find(|at| holds_call(&rest[*at..], 1).is_some())?,
        CallBody::Named(_) => own_name(rest, NAMES[1], KEYS[1])?,
    };
    Some(rest[..end].to_owned())
}

/// Returns the position of the last name before the arguments.
fn own_name(text: &str, name: &str, key: &str) -> Option<usize> {
    let before_arguments = text.find(key).unwrap_or(text.len());
    text[..before_arguments].rfind(name)
}

// === calls as JSON objects ===

fn locate_object(one: &str, two: Option<&str>) -> Option<LocatedCall> {
    let name = one.find(NAMES[0])?;
    let starts = one[..name].match_indices('{').map(|(at, _)| at);
    for start in starts {
        let Some((value, length)) = holds_call(&one[start..], 0) else {
            continue;
        };
        // An object that encloses several calls is not a call.
        let call = &one[start..start + length];
        if two.is_some_and(|two| !two.contains(call)) {
            continue;
        }
        let body = CallBody::Object(object_shape(&value)?);
        return Some(LocatedCall {
            start,
            end: start + length,
            body,
        });
    }
    None
}

/// Returns the object at the start of a text, with its length, if it contains the name and the arguments of a call.
fn holds_call(text: &str, index: usize) -> Option<(Json, usize)> {
    let (value, length) = json::value_at_start(text)?;
    let written = &text[..length];
    (written.contains(NAMES[index]) && written.contains(KEYS[index])).then_some((value, length))
}

fn object_shape(value: &Json) -> Option<ObjectShape> {
    if let Json::Object(members) = value
        && let [(key, Json::Object(_))] = members.as_slice()
        && key == NAMES[0]
    {
        return Some(ObjectShape::NameIsKey);
    }
    let is_name = |it: &Json| it.as_text().is_some_and(|text| text == NAMES[0]);
    let is_arguments = |it: &Json| match it {
        Json::Object(members) => members.first().is_some_and(|it| it.0 == KEYS[0]),
        Json::Text(text) => text.contains(KEYS[0]),
        _ => false,
    };
    Some(ObjectShape::Members {
        name: path(value, &is_name)?,
        arguments: path(value, &is_arguments)?,
    })
}

fn path(value: &Json, matches: &dyn Fn(&Json) -> bool) -> Option<Vec<String>> {
    if matches(value) {
        return Some(Vec::new());
    }
    let Json::Object(members) = value else {
        return None;
    };
    members.iter().find_map(|(key, value)| {
        let mut keys = vec![key.clone()];
        keys.extend(path(value, matches)?);
        Some(keys)
    })
}

// === calls with a separate name ===

fn locate_name(
    prober: &Prober,
    one: &str,
    two: Option<&str>,
) -> Result<LocatedCall, TemplateError> {
    let start = own_name(one, NAMES[0], KEYS[0]).ok_or(TemplateError::NotLearned)?;
    let after_name = start + NAMES[0].len();
    let rest = &one[after_name..];
    let key = rest.find(KEYS[0]).ok_or(TemplateError::NotLearned)?;
    let json = rest[..key]
        .match_indices(['{', '"'])
        .find_map(|(at, _)| Some((at, is_arguments(&rest[at..])?)));
    if let Some((at, length)) = json {
        return Ok(LocatedCall {
            start,
            end: after_name + at + length,
            body: CallBody::Named(NamedArguments::Json {
                between: pattern(&rest[..at]),
            }),
        });
    }
    let (listed, length) = learn_listed_arguments(prober, rest, two)?;
    Ok(LocatedCall {
        start,
        end: after_name + length,
        body: CallBody::Named(NamedArguments::Listed(Box::new(listed))),
    })
}

/// Returns the length of the JSON at the start of a text if it is the arguments of the first call.
fn is_arguments(text: &str) -> Option<usize> {
    let (value, length) = json::value_at_start(text)?;
    let expected: Value = json!({ KEYS[0]: TEXTS[0] });
    let arguments = super::super::shape::arguments(&value)?.to_json();
    let is_same = serde_json::from_str::<Value>(&arguments).is_ok_and(|it| it == expected);
    is_same.then_some(length)
}
