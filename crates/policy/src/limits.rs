//! Limits on the size and complexity of policy files, checked before Cedar parses them.
//!
//! Cedar's parser and validator are recursive, and a stack overflow ends the process instead of returning an error.
//! Therefore nothing that could overflow the compiler's stack may reach them.

/// Maximum length of a file, in bytes.
pub(crate) const MAX_FILE_BYTES: usize = 1 << 20;
/// Maximum number of files in a directory.
pub(crate) const MAX_FILES: usize = 256;
/// Maximum depth of an expression, including the clauses of the policy. Cedar type-checks and evaluates on the calling
/// thread. This depth fits into an ordinary stack of 2 MiB with a margin, even in a debug build, in which a level takes
/// about 40 KiB (measured).
pub(crate) const MAX_EXPRESSION_DEPTH: usize = 24;
/// Stack size of the thread that compiles policies, in bytes.
pub(crate) const COMPILER_STACK_BYTES: usize = 64 << 20;

/// Maximum nesting depth of brackets.
const MAX_NESTING: usize = 64;
/// Maximum number of operators in one policy. A chain of operators nests as deep as it is long.
const MAX_OPERATORS: usize = 1_000;
/// Maximum number of declarations in a schema.
const MAX_DECLARATIONS: usize = 512;
/// Maximum number of `type` declarations in a schema. Each may double the size of the previous one.
const MAX_COMMON_TYPES: usize = 16;

/// The language of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CedarLanguage {
    Policies,
    Schema,
}

/// An error for a text that exceeds a limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LimitExcess {
    /// The byte offset of the first token beyond the limit.
    pub(crate) offset: usize,
    /// The limit that is exceeded.
    pub(crate) problem: String,
}

/// Checks the limits of `text` and returns the byte offset at which each statement starts. Comments and the contents of
/// strings do not count. A text that is not Cedar is not rejected here but by the parser.
pub(crate) fn check(text: &str, dialect: CedarLanguage) -> Result<Vec<usize>, LimitExcess> {
    let mut starts = Vec::new();
    let (mut depth, mut operators, mut types, mut in_statement) = (0_usize, 0, 0, false);
    for (offset, token) in (CedarTokens {
        text,
        at: 0,
        dialect,
    }) {
        if !in_statement {
            in_statement = true;
            operators = 0;
            starts.push(offset);
        }
        let exceeded = match token {
            CedarToken::Open => {
                depth += 1;
                (depth > MAX_NESTING)
                    .then(|| format!("brackets are nested deeper than {MAX_NESTING} levels"))
            }
            CedarToken::Close => {
                depth = depth.saturating_sub(1);
                None
            }
            CedarToken::End => {
                in_statement = dialect == CedarLanguage::Policies && depth > 0;
                let full = dialect == CedarLanguage::Schema && starts.len() > MAX_DECLARATIONS;
                full.then(|| format!("the schema has more than {MAX_DECLARATIONS} declarations"))
            }
            CedarToken::Operator => {
                operators += 1;
                (operators > MAX_OPERATORS)
                    .then(|| format!("one policy has more than {MAX_OPERATORS} operators"))
            }
            CedarToken::TypeDeclaration => {
                types += 1;
                (types > MAX_COMMON_TYPES).then(|| {
                    format!("the schema has more than {MAX_COMMON_TYPES} `type` declarations")
                })
            }
            CedarToken::Other => None,
        };
        if let Some(problem) = exceeded {
            return Err(LimitExcess { offset, problem });
        }
    }
    Ok(starts)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CedarToken {
    Open,
    Close,
    End,
    Operator,
    TypeDeclaration,
    Other,
}

/// A tokenizer that splits a text only as precisely as the limits require.
struct CedarTokens<'a> {
    text: &'a str,
    at: usize,
    dialect: CedarLanguage,
}

impl<'a> CedarTokens<'a> {
    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    fn skip_blank(&mut self) {
        loop {
            match self.rest() {
                [blank, ..] if blank.is_ascii_whitespace() => self.at += 1,
                [b'/', b'/', ..] => self.skip_while(|byte| byte != b'\n'),
                _ => return,
            }
        }
    }

    fn skip_while(&mut self, matches: impl Fn(u8) -> bool) {
        self.at += self
            .rest()
            .iter()
            .take_while(|byte| matches(**byte))
            .count();
    }

    fn skip_string(&mut self) {
        self.at += 1;
        loop {
            match self.rest() {
                [b'\\', _, ..] => self.at += 2,
                [b'"', ..] => {
                    self.at += 1;
                    return;
                }
                [_, ..] => self.at += 1,
                [] => return,
            }
        }
    }

    fn word(&mut self) -> CedarToken {
        let start = self.at;
        self.skip_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let word = self.text.get(start..self.at).unwrap_or_default();
        match self.dialect {
            CedarLanguage::Policies if matches!(word, "if" | "has" | "in" | "is" | "like") => {
                CedarToken::Operator
            }
            // An attribute may also be called `type`; it is followed by a colon or a question mark.
            CedarLanguage::Schema if word == "type" => {
                self.skip_blank();
                match self.rest() {
                    [b':' | b'?', ..] => CedarToken::Other,
                    _ => CedarToken::TypeDeclaration,
                }
            }
            _ => CedarToken::Other,
        }
    }
}

impl Iterator for CedarTokens<'_> {
    type Item = (usize, CedarToken);

    fn next(&mut self) -> Option<Self::Item> {
        self.skip_blank();
        let start = self.at;
        let token = match (self.dialect, self.rest()) {
            (_, []) => return None,
            (_, [b'"', ..]) => {
                self.skip_string();
                CedarToken::Other
            }
            (_, [byte, ..]) if byte.is_ascii_alphabetic() || *byte == b'_' => self.word(),
            (
                CedarLanguage::Policies,
                [b'&', b'&', ..] | [b'|', b'|', ..] | [b'=' | b'!' | b'<' | b'>', b'=', ..],
            ) => {
                self.at += 2;
                CedarToken::Operator
            }
            (dialect, [byte, ..]) => {
                self.at += 1;
                match (dialect, byte) {
                    (_, b'(' | b'[' | b'{') | (CedarLanguage::Schema, b'<') => CedarToken::Open,
                    (_, b')' | b']' | b'}') | (CedarLanguage::Schema, b'>') => CedarToken::Close,
                    (_, b';') => CedarToken::End,
                    (CedarLanguage::Policies, b'<' | b'>' | b'!' | b'+' | b'-' | b'*' | b'.') => {
                        CedarToken::Operator
                    }
                    _ => CedarToken::Other,
                }
            }
        };
        Some((start, token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str, dialect: CedarLanguage) -> String {
        check(text, dialect).unwrap_err().problem
    }

    #[test]
    fn statements_start_behind_comments_and_blanks() {
        let text =
            "// a; (((\n permit(principal, action, resource);\n\n@id(\"x;\")\nforbid(p,a,r);";
        let starts = check(text, CedarLanguage::Policies).unwrap();
        let begin: Vec<_> = starts
            .iter()
            .map(|start| &text[*start..*start + 3])
            .collect();
        assert_eq!(begin, ["per", "@id"]);
    }

    #[test]
    fn brackets_may_nest_to_the_limit_and_no_deeper() {
        for (open, close) in [("(", ")"), ("[", "]"), ("{", "}")] {
            let nested = |depth| format!("{}{}", open.repeat(depth), close.repeat(depth));
            assert!(check(&nested(64), CedarLanguage::Policies).is_ok());
            assert!(problem(&nested(65), CedarLanguage::Policies).contains("nest"));
        }
        assert!(problem(&"Set<".repeat(65), CedarLanguage::Schema).contains("nest"));
    }

    #[test]
    fn brackets_in_strings_and_comments_do_not_count() {
        let text = format!(
            "\"{}\\\"{}\" // {}",
            "(".repeat(99),
            "[".repeat(99),
            "{".repeat(99)
        );
        assert!(check(&text, CedarLanguage::Policies).is_ok());
    }

    #[test]
    fn chains_that_nest_without_brackets_are_counted() {
        for link in [
            "true && ",
            "1 + ",
            "if a then b else ",
            "!",
            "a.b",
            "x has ",
        ] {
            assert!(
                problem(&link.repeat(1_001), CedarLanguage::Policies).contains("operators"),
                "{link}"
            );
        }
        let two = format!("{}; {};", "true && ".repeat(600), "true && ".repeat(600));
        assert!(
            check(&two, CedarLanguage::Policies).is_ok(),
            "each policy counts for itself"
        );
    }

    #[test]
    fn schema_bombs_are_refused() {
        assert!(
            problem(&"type T = {a: U, b: U};".repeat(17), CedarLanguage::Schema).contains("`type`")
        );
        assert!(
            check(
                &"entity E { type: String, };".repeat(17),
                CedarLanguage::Schema
            )
            .is_ok()
        );
        assert!(problem(&"entity E;".repeat(513), CedarLanguage::Schema).contains("declarations"));
    }
}
