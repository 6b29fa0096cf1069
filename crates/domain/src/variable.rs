//! Replacement of `${…}` references in the texts of a configuration.

use std::collections::BTreeMap;

/// The reason why the references in a text could not be replaced.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FillError<E> {
    /// A `${` has no closing brace.
    Unclosed,
    /// The reference between the braces has no value.
    Reference(E),
}

/// Replaces each `${REFERENCE}` in `text` by the value that `value` returns for it.
pub fn fill<E>(
    text: &str,
    mut value: impl FnMut(&str) -> Result<String, E>,
) -> Result<String, FillError<E>> {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, reference)) = rest.split_once("${") {
        let (reference, after) = reference.split_once('}').ok_or(FillError::Unclosed)?;
        filled.push_str(before);
        filled.push_str(&value(reference).map_err(FillError::Reference)?);
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Returns the value of `NAME` or `NAME:-default`: the configured value, otherwise the environment variable, otherwise
/// the default. An empty value counts as missing. The error is the name.
pub fn look_up<'r>(
    reference: &'r str,
    configured: &BTreeMap<String, String>,
) -> Result<String, &'r str> {
    let (name, default) = match reference.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (reference, None),
    };
    configured
        .get(name)
        .cloned()
        .or_else(|| std::env::var(name).ok())
        .filter(|value| !value.is_empty())
        .or_else(|| default.map(str::to_owned))
        .ok_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_configured_comes_before_the_environment_and_the_default() {
        let configured = BTreeMap::from([
            ("PATH".to_owned(), "ours".to_owned()),
            ("EMPTY".to_owned(), String::new()),
        ]);
        let text = |text| {
            fill(text, |reference| {
                look_up(reference, &configured).map_err(str::to_owned)
            })
        };
        assert_eq!(text("a ${PATH} ${EMPTY:-b}} $c").unwrap(), "a ours b} $c");
        assert!(text("${NOT_SET_ANYWHERE:-}").is_ok());
        let missing = FillError::Reference("EMPTY".to_owned());
        assert_eq!(text("${PATH}${EMPTY}"), Err(missing));
        assert_eq!(text("${PATH"), Err(FillError::Unclosed));
    }
}
