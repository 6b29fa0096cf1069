//! Names that every provider accepts: 1 to 64 of `[A-Za-z0-9_-]`. MCP also allows dots, and 128 characters.

use std::collections::{HashMap, HashSet};

use wardgate_domain::Digest;

/// Maximum length of a function name that providers accept.
const MAX_NAME: usize = 64;

/// Number of digits of the digest appended to a changed name. Longer digests are used only if shorter ones are not unique.
const DIGITS: [usize; 3] = [8, 16, 32];

/// The models' names of the tools of one list. They are unique, and the same list always yields the same names.
#[derive(Debug, Default)]
pub(super) struct FunctionNames {
    /// The assigned names, by the tool's own name.
    given: HashMap<String, String>,
    taken: HashSet<String>,
}

impl FunctionNames {
    pub(super) fn from_tool_names<'t>(tools: impl Iterator<Item = &'t str> + Clone) -> Self {
        let mut names = Self::default();
        // Valid names are assigned first, so that they stay unchanged.
        for name in tools.clone().filter(|name| is_legal(name)) {
            names.give(name, name.to_owned());
        }
        for name in tools {
            names.name(name);
        }
        names
    }

    /// Returns the models' name of a tool.
    pub(super) fn name(&mut self, tool: &str) -> String {
        if let Some(given) = self.given.get(tool) {
            return given.clone();
        }
        let mut candidates = DIGITS.iter().map(|digits| name_with_digest(tool, *digits));
        let free = candidates.find(|name| !self.taken.contains(name));
        // A collision of 128 bits of SHA-256 does not occur in practice.
        let name = free.unwrap_or_else(|| name_with_digest(tool, MAX_NAME));
        self.give(tool, name.clone());
        name
    }

    fn give(&mut self, tool: &str, name: String) {
        self.taken.insert(name.clone());
        self.given.insert(tool.to_owned(), name);
    }
}

fn is_legal(name: &str) -> bool {
    (1..=MAX_NAME).contains(&name.len()) && name.chars().all(is_in_name)
}

fn is_in_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '-')
}

/// Returns as much of the name as fits, followed by `digits` digits of its digest.
fn name_with_digest(tool: &str, digits: usize) -> String {
    let digest = Digest::compute(tool.as_bytes()).to_string();
    let prefix_length = MAX_NAME.saturating_sub(digits + 1);
    let mut name: String = tool
        .chars()
        .map(|c| if is_in_name(c) { c } else { '_' })
        .take(prefix_length)
        .collect();
    if prefix_length > 0 {
        name.push('_');
    }
    name.extend(digest.chars().take(digits));
    name
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn names(tools: &[&str]) -> Vec<String> {
        let mut names = FunctionNames::from_tool_names(tools.iter().copied());
        tools.iter().map(|tool| names.name(tool)).collect()
    }

    #[test]
    fn a_name_that_every_provider_takes_stays() {
        let longest = "a".repeat(64);
        assert_eq!(
            names(&["get_x", "Get-X", &longest]),
            ["get_x", "Get-X", &longest]
        );
    }

    #[test]
    fn any_other_keeps_what_it_can_and_stays_itself() {
        assert_eq!(
            names(&["files.read", "files/read"]),
            ["files_read_601e4eb6", "files_read_2b733164"]
        );
    }

    #[test]
    fn a_name_that_looks_like_anothers_keeps_its_place() {
        let looks = name_with_digest("files.read", 8);
        let [dotted, looking] = names(&["files.read", &looks]).try_into().unwrap();
        assert_eq!(looking, looks);
        assert_eq!(dotted, name_with_digest("files.read", 16));
    }

    proptest! {
        #[test]
        fn no_two_tools_have_one_name_and_each_is_legal(
            tools in prop::collection::hash_set("[a-b._é]{0,6}|[a-z.]{60,130}|\\PC{0,80}", 0..40)
        ) {
            let tools: Vec<&str> = tools.iter().map(String::as_str).collect();
            let given = names(&tools);
            for name in &given {
                prop_assert!(is_legal(name), "{}", name);
            }
            let distinct: HashSet<&String> = given.iter().collect();
            prop_assert_eq!(distinct.len(), tools.len());
        }

        #[test]
        fn a_name_does_not_depend_on_the_others(tool in "[a-z.]{1,80}", other in "[a-z/]{1,80}") {
            prop_assume!(tool != other);
            let alone = names(&[&tool]);
            let beside = names(&[&other, &tool]);
            prop_assert_eq!(&alone[0], &beside[1]);
        }
    }
}
