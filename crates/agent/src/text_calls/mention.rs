//! "I will use the `X` tool": a last resort for models in text mode that name a tool and write no call.

use super::cursor::is_in_name;

/// Words that turn "use the X tool" into the opposite.
const NEGATIONS: [&str; 12] = [
    "not",
    "never",
    "no",
    "without",
    "avoid",
    "cannot",
    "don't",
    "can't",
    "won't",
    "shouldn't",
    "instead",
    "than",
];

/// The tools of which a text says that they are used, in order, each once. Their calls have no arguments.
///
/// Not what is negated in its sentence, asked, quoted, or part of a longer name. Only for a text in which no call was
/// found; an assistant may leave it off.
pub(crate) fn mentioned<'t>(text: &str, tools: &[&'t str]) -> Vec<&'t str> {
    let mut found: Vec<&'t str> = Vec::new();
    for sentence in sentences(text) {
        for (before, name) in uses(sentence) {
            let tool = tools.iter().find(|tool| tool.eq_ignore_ascii_case(name));
            if let Some(tool) = tool
                && !sentence.trim_end().ends_with('?')
                && !is_negated(before)
                && !is_quoted(before)
                && !found.contains(tool)
            {
                found.push(tool);
            }
        }
    }
    found
}

/// Each with the mark that ends it. A dot within a name ends none. Code blocks are none.
fn sentences(text: &str) -> Vec<&str> {
    let plain = text.split("```").step_by(2);
    let ends = |part: &'_ str| -> Vec<usize> {
        let bytes = part.as_bytes();
        (0..bytes.len())
            .filter(|&at| match bytes[at] {
                b'\n' | b'!' | b'?' | b';' => true,
                b'.' => bytes.get(at + 1).is_none_or(u8::is_ascii_whitespace),
                _ => false,
            })
            .collect()
    };
    let mut sentences = Vec::new();
    for part in plain {
        let mut from = 0;
        for end in ends(part) {
            sentences.push(&part[from..=end]);
            from = end + 1;
        }
        sentences.push(&part[from..]);
    }
    sentences
}

/// What is written for X in each "use the X tool", and what stands before it.
fn uses(sentence: &str) -> Vec<(&str, &str)> {
    let mut uses = Vec::new();
    let mut words = Words {
        rest: sentence,
        at: 0,
    };
    let mut last = [""; 2];
    let mut before = 0;
    while let Some((at, word)) = words.next() {
        let is = |written: &str, wanted: &str| written.eq_ignore_ascii_case(wanted);
        if is(last[0], "use") && is(last[1], "the") {
            let name = word.trim_matches(['`', '*', '_']);
            let mut ahead = Words { ..words };
            let is_tool = ahead.next().is_some_and(|it| {
                is(
                    it.1.trim_end_matches(|c: char| !c.is_alphanumeric()),
                    "tool",
                )
            });
            if is_tool && name.chars().all(is_in_name) {
                uses.push((&sentence[..before], name));
            }
        }
        if is(word, "use") {
            before = at;
        }
        last = [last[1], word];
    }
    uses
}

/// Words between white space, with their places.
struct Words<'a> {
    rest: &'a str,
    at: usize,
}

impl<'a> Iterator for Words<'a> {
    type Item = (usize, &'a str);

    fn next(&mut self) -> Option<Self::Item> {
        let trimmed = self.rest.trim_start();
        self.at += self.rest.len() - trimmed.len();
        let end = trimmed.find(char::is_whitespace).unwrap_or(trimmed.len());
        let (word, rest) = trimmed.split_at(end);
        let at = self.at;
        self.at += end;
        self.rest = rest;
        (!word.is_empty()).then_some((at, word))
    }
}

fn is_negated(before: &str) -> bool {
    let before = before.to_lowercase().replace('’', "'");
    before
        .split(|c: char| !(c.is_alphanumeric() || c == '\''))
        .any(|word| NEGATIONS.contains(&word) || word.ends_with("n't"))
}

/// Whether a quotation was opened and not closed.
fn is_quoted(before: &str) -> bool {
    let count = |quote: char| before.chars().filter(|c| *c == quote).count();
    let single = before
        .split_whitespace()
        .filter(|word| word.starts_with('\'') != word.ends_with('\''))
        .count();
    count('"') % 2 == 1
        || count('`') % 2 == 1
        || count('“') > count('”')
        || count('‘') > before.matches("’ ").count() + before.matches("’,").count()
        || single % 2 == 1
}
