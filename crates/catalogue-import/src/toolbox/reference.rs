//! References `${NAME}` and `${NAME:default}` of the Toolbox, which expands them before it parses the file as YAML. They
//! may therefore be in places where YAML would read something else, so they are replaced by marks before parsing and
//! restored afterwards.

/// Private-use characters that enclose the number of a reference.
const OPEN: char = '\u{e000}';
const CLOSE: char = '\u{e001}';

/// The references of a file, by number.
#[derive(Debug)]
pub(super) struct References(Vec<Reference>);

#[derive(Debug, Clone)]
pub(super) struct Reference {
    pub(super) name: String,
    pub(super) default: Option<String>,
}

/// A part of a text with references.
#[derive(Debug)]
pub(super) enum TextPart<'t> {
    Text(&'t str),
    Reference(&'t Reference),
}

impl References {
    /// Replaces each reference in the text by a mark.
    pub(super) fn take_out(text: &str) -> (String, Self) {
        let text = text.replace([OPEN, CLOSE], "");
        let mut references = Vec::new();
        let mut marked = String::with_capacity(text.len());
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once("${") {
            marked.push_str(before);
            if let Some((reference, length)) = reference(after) {
                marked.push_str(&format!("{OPEN}{}{CLOSE}", references.len()));
                references.push(reference);
                rest = &after[length..];
            } else {
                marked.push_str("${");
                rest = after;
            }
        }
        marked.push_str(rest);
        (marked, Self(references))
    }

    /// Splits a marked text into plain text and references.
    pub(super) fn pieces<'t>(&'t self, text: &'t str) -> Vec<TextPart<'t>> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(OPEN) {
            let (number, behind) = after.split_once(CLOSE).unwrap_or((after, ""));
            let reference = number.parse().ok().and_then(|at: usize| self.0.get(at));
            pieces.push(TextPart::Text(before));
            pieces.extend(reference.map(TextPart::Reference));
            rest = behind;
        }
        pieces.push(TextPart::Text(rest));
        pieces.retain(|piece| !matches!(piece, TextPart::Text("")));
        pieces
    }

    /// Restores the original references of a marked text.
    pub(super) fn restore(&self, text: &str) -> String {
        let written = |piece: TextPart<'_>| match piece {
            TextPart::Text(text) => text.to_owned(),
            TextPart::Reference(Reference { name, default }) => match default {
                Some(default) => format!("${{{name}:{default}}}"),
                None => format!("${{{name}}}"),
            },
        };
        self.pieces(text).into_iter().map(written).collect()
    }
}

/// Parses the reference at the beginning of `text`, which follows a `${`. Returns it and its length.
fn reference(text: &str) -> Option<(Reference, usize)> {
    let (inside, _) = text.split_once('}')?;
    let (name, default) = match inside.split_once(':') {
        Some((name, default)) => (name, Some(default.to_owned())),
        None => (inside, None),
    };
    let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let is_line = !inside.contains('\n');
    let name = name.to_owned();
    (is_name && is_line).then(|| (Reference { name, default }, inside.len() + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_survive_yaml_and_come_back_as_written() {
        let text = "a: ${A}\nb: { c: ${B_2:x: 'y'} }\nd: \"${not one} ${1} $${A}\"\n";
        let (marked, references) = References::take_out(text);
        assert!(!marked.contains("${A}"), "{marked}");
        assert_eq!(references.restore(&marked), text);
        assert_eq!(references.0[1].default.as_deref(), Some("x: 'y'"));
        assert_eq!(references.0.len(), 3);
    }

    #[test]
    fn marks_of_a_file_itself_are_no_references() {
        let (marked, references) = References::take_out("a: \u{e000}0\u{e001} ${A}");
        assert_eq!(references.restore(&marked), "a: 0 ${A}");
    }
}
