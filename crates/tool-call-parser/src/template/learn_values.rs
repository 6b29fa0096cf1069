//! Learns the notation of arguments that are not a single JSON object.

use serde_json::{Value, json};

use super::super::json;
use super::TemplateError;
use super::pattern::{Pattern, PatternPart, common_start};
use super::probe::{HARD_TEXT, IDS, KEYS, NAMES, NUMBERS, ProbeCall, Prober, TEXTS, pattern};
use super::values::{ListedArguments, ValueKind, ValueStyle};

/// The text around two values of the same type.
struct ValueBounds {
    first: String,
    before: String,
    between: String,
    /// The text from the second value to the end of the rendering.
    end: String,
}

/// Learns the notation of listed arguments. `one` is the text after the name in the rendering of a call with one argument, and
/// `two_calls` is the rendering of two calls. Also returns the length of the call in `one`.
pub(super) fn learn_listed_arguments(
    prober: &Prober,
    one: &str,
    two_calls: Option<&str>,
) -> Result<(ListedArguments, usize), TemplateError> {
    let texts = around(prober, [json!(TEXTS[0]), json!(TEXTS[1])], TEXTS)
        .ok_or(TemplateError::NotLearned)?;
    let [one_number, other_number] = NUMBERS.map(|it| json!(it.parse::<u64>().unwrap_or_default()));
    let numbers = around(prober, [one_number, other_number], NUMBERS);
    let quotes = numbers.as_ref().and_then(|numbers| quotes(&texts, numbers));
    let (plain, kind) = match (&quotes, &numbers) {
        (Some(quotes), Some(numbers)) => {
            (numbers, text_kind(prober, numbers, &quotes.0, &quotes.1))
        }
        (_, Some(numbers)) if numbers.before == texts.before => (&texts, ValueKind::Plain),
        (_, Some(_)) => (&texts, ValueKind::Text),
        (_, None) => (&texts, ValueKind::Plain),
    };
    let close = quotes.as_ref().map_or("", |it| it.1.as_str());
    let after_value = value_end(one).ok_or(TemplateError::NotLearned)? + close.len();
    let tail = one.get(after_value..).ok_or(TemplateError::NotLearned)?;
    let end = end_of_call(tail, close, two_calls);
    let length = after_value + end.len();
    let rest = &tail[end.len()..];
    let is_typed = kind == ValueKind::Text;
    let mut styles = vec![ValueStyle {
        before: key_pattern(&plain.before),
        kind,
    }];
    if is_typed {
        styles.extend(typed_styles(prober, numbers.as_ref()));
    }
    let listed = ListedArguments {
        first: pattern(&plain.first),
        empty: after_name(prober, &json!({})).and_then(|it| {
            let end = it.strip_suffix(rest)?;
            Some(pattern(end))
        }),
        styles,
        between: key_pattern(&plain.between).trim_end(),
        end: key_pattern(end).trim_end(),
        has_cdata: prober.mentions("<![CDATA["),
    };
    Ok((listed, length))
}

/// Returns the position after the first string value of a rendered call.
fn value_end(one: &str) -> Option<usize> {
    Some(one.find(TEXTS[0])? + TEXTS[0].len())
}

/// Returns the pattern of text around the first key.
fn key_pattern(rendered: &str) -> Pattern {
    Pattern::from_rendered(
        rendered,
        &[
            (IDS[0], PatternPart::Id),
            (NAMES[0], PatternPart::Name),
            (KEYS[0], PatternPart::Key),
            (KEYS[1], PatternPart::Key),
        ],
    )
}

/// Returns the text after the name in the rendering of a call with these arguments.
fn after_name(prober: &Prober, arguments: &Value) -> Option<String> {
    let text = prober.calls(&[ProbeCall::new(0, arguments.clone())]).ok()?;
    let keys = KEYS.iter().filter_map(|key| text.find(key));
    let key = keys.min().unwrap_or(text.len());
    let at = text[..key].rfind(NAMES[0])? + NAMES[0].len();
    Some(text[at..].to_owned())
}

fn around(prober: &Prober, values: [Value; 2], written: [&str; 2]) -> Option<ValueBounds> {
    let [one, other] = values;
    let text = after_name(prober, &json!({ KEYS[0]: one, KEYS[1]: other }))?;
    let (first, rest) = text.split_once(KEYS[0])?;
    let (before, rest) = rest.split_once(written[0])?;
    let (between, rest) = rest.split_once(written[1])?;
    // The key may occur several times, as in a closing tag, so the last occurrence before the value is the value's own key.
    let (between, before_other) = between.rsplit_once(KEYS[1])?;
    (before_other == before).then(|| ValueBounds {
        first: first.to_owned(),
        before: before.to_owned(),
        between: between.to_owned(),
        end: rest.to_owned(),
    })
}

/// Returns the quotes, which are the text around strings that does not occur around numbers.
fn quotes(texts: &ValueBounds, numbers: &ValueBounds) -> Option<(String, String)> {
    let open = texts.before.strip_prefix(&numbers.before)?;
    let close = texts.between.strip_suffix(&numbers.between)?;
    (!open.is_empty() && !close.is_empty()).then(|| (open.to_owned(), close.to_owned()))
}

/// Returns whether quoted strings are encoded or stand unchanged between the quotes.
fn text_kind(prober: &Prober, numbers: &ValueBounds, open: &str, close: &str) -> ValueKind {
    let text = after_name(prober, &json!({ KEYS[0]: HARD_TEXT, KEYS[1]: TEXTS[1] }));
    let value = text.as_deref().and_then(|text| {
        let rest = text.split_once(KEYS[0])?.1.strip_prefix(&numbers.before)?;
        json::value_at_start(rest)
    });
    let is_encoded = value.is_some_and(|(value, _)| value.as_text() == Some(HARD_TEXT));
    if is_encoded {
        ValueKind::Encoded
    } else {
        ValueKind::Quoted {
            open: open.to_owned(),
            close: close.to_owned(),
        }
    }
}

/// Returns the part of `tail`, the text after the value of a single call, that ends a call.
fn end_of_call<'a>(tail: &'a str, close: &str, two_calls: Option<&str>) -> &'a str {
    let next = two_calls.and_then(|two| {
        let rest = &two[two.find(TEXTS[0])? + TEXTS[0].len()..];
        rest.strip_prefix(close)
    });
    match next {
        Some(next) => common_start(tail, next).trim_end(),
        None => tail.trim_end(),
    }
}

/// Returns the styles of values that are not strings, for formats that distinguish them from strings.
fn typed_styles(prober: &Prober, numbers: Option<&ValueBounds>) -> Vec<ValueStyle> {
    let Some(numbers) = numbers else {
        return Vec::new();
    };
    let mut befores: Vec<String> = vec![numbers.before.clone()];
    for (value, starts) in [
        (json!(true), &["true", "True"][..]),
        (Value::Null, &["null", "None"]),
        (json!([TEXTS[0]]), &["["]),
        (json!({ TEXTS[0]: 1 }), &["{"]),
    ] {
        let arguments = json!({ KEYS[1]: value });
        let before = after_name(prober, &arguments).and_then(|text| {
            let rest = text.split_once(KEYS[1])?.1.strip_suffix(&numbers.end)?;
            let begins = starts.iter().filter_map(|start| rest.rfind(start));
            Some(rest[..begins.max()?].to_owned())
        });
        befores.extend(before.filter(|it| !befores.contains(it)));
    }
    let style = |before: String| ValueStyle {
        before: key_pattern(&before),
        kind: ValueKind::Value,
    };
    befores.into_iter().map(style).collect()
}
