//! Finds mentions like "I will use the `X` tool", as a last resort for models in text mode that write no call.

use super::cursor::is_in_name;

/// Maximum length of a text that is searched, in bytes, which limits the work. A text that only names a tool is short.
const MAX_TEXT: usize = 16 * 1024;

/// Words that negate "use the X tool", in addition to all words that end in "n't".
const NEGATIONS: [&str; 6] = ["not", "never", "without", "avoid", "cannot", "than"];

/// Words that make a preceding "no" a negation, as in "no need".
const NO: [&str; 4] = ["need", "reason", "longer", "point"];

/// Returns the tools that a text says it will use, in order and without duplicates. Their calls have no arguments.
///
/// Mentions that are negated, part of a question, quoted or part of a longer name do not count. To be used only for a text in
/// which no call was found.
pub fn mentioned_tools<'t>(text: &str, tools: &[&'t str]) -> Vec<&'t str> {
    let mut found: Vec<&'t str> = Vec::new();
    if text.len() > MAX_TEXT {
        return found;
    }
    let outside_of_code = text.split("```").step_by(2);
    for line in outside_of_code.flat_map(str::lines) {
        let mut read = 0;
        for sentence in sentences(line) {
            for (before, name) in uses(sentence) {
                let tool = tools.iter().find(|tool| tool.eq_ignore_ascii_case(name));
                if let Some(tool) = tool
                    && !sentence.ends_with('?')
                    && !is_negated(&sentence[..before])
                    && !is_quoted(&line[..read + before])
                    && !found.contains(tool)
                {
                    found.push(tool);
                }
            }
            read += sentence.len();
        }
    }
    found
}

/// Returns the sentences of a line, each with its punctuation mark. A dot within a name does not end a sentence.
fn sentences(line: &str) -> impl Iterator<Item = &str> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let mut chars = rest.char_indices().peekable();
        let mut end = rest.len();
        while let Some((at, c)) = chars.next() {
            let ends = match c {
                '!' | '?' | ';' => true,
                '.' => chars.peek().is_none_or(|next| next.1.is_whitespace()),
                _ => false,
            };
            if ends {
                end = at + c.len_utf8();
                break;
            }
        }
        let (sentence, after) = rest.split_at(end);
        rest = after;
        (!sentence.is_empty()).then_some(sentence)
    })
}

/// Returns the positions of all phrases "use the X tool" and the text of each X.
fn uses(sentence: &str) -> Vec<(usize, &str)> {
    let mut uses = Vec::new();
    let mut words = WordSpans {
        rest: sentence,
        at: 0,
    };
    let mut last = [""; 2];
    let mut before = 0;
    while let Some((at, word)) = words.next() {
        let is = |written: &str, wanted: &str| written.eq_ignore_ascii_case(wanted);
        if is(last[0], "use") && is(last[1], "the") {
            let name = word.trim_matches(['`', '*', '_']);
            let mut ahead = WordSpans { ..words };
            let is_tool = ahead
                .next()
                .map(|(_, word)| word.trim_end_matches(|c: char| !c.is_alphanumeric()))
                .is_some_and(|word| is(word, "tool"));
            if is_tool && name.chars().all(is_in_name) {
                uses.push((before, name));
            }
        }
        if is(word, "use") {
            before = at;
        }
        last = [last[1], word];
    }
    uses
}

/// An iterator over the words of a text, with their positions.
struct WordSpans<'a> {
    rest: &'a str,
    at: usize,
}

impl<'a> Iterator for WordSpans<'a> {
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
    let words: Vec<&str> = before
        .split(|c: char| !(c.is_alphanumeric() || c == '\''))
        .collect();
    let negates = |word: &&str| NEGATIONS.contains(word) || word.ends_with("n't");
    let is_no = |pair: &[&str]| pair[0] == "no" && NO.contains(&pair[1]);
    words.iter().any(negates) || words.windows(2).any(is_no)
}

/// Returns whether a quotation was opened but not closed.
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
