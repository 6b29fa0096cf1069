//! Finds the phrases of `phrases.txt`, which also says how they are written.

use std::sync::LazyLock;

use super::Kind;
use super::words::Word;

static PHRASES: LazyLock<Vec<Phrase>> = LazyLock::new(|| read(include_str!("phrases.txt")));

struct Phrase {
    kind: Kind,
    /// Only the names of arguments are searched for it.
    in_names: bool,
    steps: Vec<Step>,
}

/// One word of a phrase, and how many others may stand in front of it.
struct Step {
    gap: usize,
    /// The words, and whether only their beginning is meant.
    choices: Vec<(String, bool)>,
}

/// Lines that cannot be read are left out; a test sees that there are none.
fn read(text: &str) -> Vec<Phrase> {
    let mut lists: Vec<(&str, &str)> = Vec::new();
    let mut phrases = Vec::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        if let Some(list) = line.split_once(" = ") {
            lists.push(list);
        } else if let Some((kind, pattern)) = line.split_once(": ") {
            let pattern = lists
                .iter()
                .fold(pattern.to_owned(), |pattern, (name, words)| {
                    pattern.replace(name, words)
                });
            let (kind, in_names) = match kind.strip_suffix(" in names") {
                Some(kind) => (kind, true),
                None => (kind, false),
            };
            phrases.extend(Kind::of_phrases(kind).map(|kind| Phrase {
                kind,
                in_names,
                steps: steps(&pattern),
            }));
        }
    }
    phrases
}

fn steps(pattern: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut gap = 0;
    for part in pattern.split_whitespace() {
        if let Some(count) = part.strip_prefix('~') {
            gap = count.parse().unwrap_or(0);
            continue;
        }
        let choices = part.split('|').map(|word| match word.strip_suffix('*') {
            Some(beginning) => (beginning.to_owned(), true),
            None => (word.to_owned(), false),
        });
        steps.push(Step {
            gap: std::mem::take(&mut gap),
            choices: choices.collect(),
        });
    }
    steps
}

impl Step {
    fn is(&self, word: &str) -> bool {
        self.choices.iter().any(|(choice, beginning)| {
            if *beginning {
                word.starts_with(choice.as_str())
            } else {
                word == choice
            }
        })
    }
}

/// The first place where each kind of phrase stands: positions of its first and its last word.
pub(super) fn find(words: &[Word], is_name: bool) -> Vec<(Kind, usize, usize)> {
    let mut found: Vec<(Kind, usize, usize)> = Vec::new();
    for phrase in PHRASES.iter().filter(|phrase| is_name || !phrase.in_names) {
        if found.iter().any(|(kind, ..)| *kind == phrase.kind) {
            continue;
        }
        let place = (0..words.len()).find_map(|first| {
            let last = matches(&phrase.steps, words, first)?;
            Some((phrase.kind, first, last))
        });
        found.extend(place);
    }
    found
}

/// Where the phrase ends that begins at word `at`, if it does.
fn matches(steps: &[Step], words: &[Word], at: usize) -> Option<usize> {
    let (step, rest) = steps.split_first()?;
    if !words.get(at).is_some_and(|word| step.is(&word.folded)) {
        return None;
    }
    let Some(next) = rest.first() else {
        return Some(at);
    };
    (at + 1..=at + 1 + next.gap).find_map(|at| matches(rest, words, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_understood() {
        let text = include_str!("phrases.txt");
        let lines = text
            .lines()
            .filter(|line| !line.starts_with('#') && !line.is_empty());
        let lists = lines.clone().filter(|line| line.contains(" = ")).count();
        let phrases = read(text);
        assert_eq!(lists + phrases.len(), lines.count());
        for phrase in &phrases {
            assert!(!phrase.steps.is_empty());
            for (word, _) in phrase.steps.iter().flat_map(|step| &step.choices) {
                let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == ':';
                assert!(!word.is_empty() && word.chars().all(is_plain), "{word}");
            }
        }
    }
}
