//! Texts with `{argument}` placeholders.

use serde_json::{Map, Value};

use super::yaml::Mark;

/// A text whose `{argument}`s are filled in from the arguments of a call.
#[derive(Debug)]
pub(crate) struct Template {
    at: Mark,
    pieces: Vec<Piece>,
}

#[derive(Debug)]
enum Piece {
    Text(String),
    Argument(String),
}

impl Template {
    pub(super) fn parse(text: &str, at: Mark) -> Self {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, name, after)) = next_argument(rest) {
            pieces.push(Piece::Text(before.to_owned()));
            pieces.push(Piece::Argument(name.to_owned()));
            rest = after;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Self { at, pieces }
    }

    pub(super) fn at(&self) -> Mark {
        self.at
    }

    /// Names of the arguments it wants.
    pub(super) fn arguments(&self) -> impl Iterator<Item = &str> {
        self.pieces.iter().filter_map(|piece| match piece {
            Piece::Argument(name) => Some(name.as_str()),
            Piece::Text(_) => None,
        })
    }

    /// The text for one call; an absent argument leaves nothing.
    pub(crate) fn fill(&self, arguments: &Map<String, Value>) -> String {
        self.pieces
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.clone(),
                Piece::Argument(name) => match arguments.get(name) {
                    None | Some(Value::Null) => String::new(),
                    Some(Value::String(text)) => text.clone(),
                    Some(other) => other.to_string(),
                },
            })
            .collect()
    }
}

/// Splits at the first `{name}`; other braces are text.
fn next_argument(text: &str) -> Option<(&str, &str, &str)> {
    for (at, _) in text.match_indices('{') {
        let inside = &text[at + 1..];
        if let Some(end) = inside.find('}')
            && end > 0
            && inside[..end]
                .chars()
                .all(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'))
        {
            return Some((&text[..at], &inside[..end], &inside[end + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn arguments_are_filled_in_and_never_read_again() {
        let template = Template::parse("{a} {} {b c} {n}, {missing}!", Mark::START);
        let arguments = json!({"a": "{n}", "n": 7});
        assert_eq!(
            template.fill(arguments.as_object().unwrap()),
            "{n} {} {b c} 7, !"
        );
        assert_eq!(
            template.arguments().collect::<Vec<_>>(),
            ["a", "n", "missing"]
        );
    }
}
