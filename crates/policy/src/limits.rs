//! What a policy file may cost, checked before Cedar's parser sees it.
//!
//! Cedar's parser and validator recurse with the text they read, and a stack overflow ends the process
//! instead of returning an error. So nothing that could overflow the compiler's stack reaches it.

/// Longest file, in bytes.
pub(crate) const MAX_FILE_BYTES: usize = 1 << 20;
/// Most files in a directory.
pub(crate) const MAX_FILES: usize = 256;
/// Deepest expression, the clauses of a policy counted in. Cedar type-checks and evaluates on the thread
/// that asks, and this much fits into an ordinary stack of 2 MiB with room to spare, even in a debug
/// build, where a level takes some 40 KiB (measured).
pub(crate) const MAX_EXPRESSION_DEPTH: usize = 24;
/// Stack of the thread that compiles.
pub(crate) const COMPILER_STACK_BYTES: usize = 64 << 20;

/// Deepest nesting of brackets.
const MAX_NESTING: usize = 64;
/// Most operators in one policy: a chain of them nests as deep as it is long.
const MAX_OPERATORS: usize = 1_000;
/// Most declarations in a schema.
const MAX_DECLARATIONS: usize = 512;
/// Most `type` declarations in a schema: each may double the size of the one before.
const MAX_COMMON_TYPES: usize = 16;

/// Which language a text is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Policies,
    Schema,
}

/// A text that exceeds a limit.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LimitExcess {
    /// Byte offset of the first token too many.
    pub(crate) offset: usize,
    /// What is exceeded.
    pub(crate) problem: String,
}

/// Checks `text` and gives the byte offset at which each statement starts. Comments and strings do not
/// count; what is no Cedar at all is left to the parser.
pub(crate) fn check(text: &str, dialect: Dialect) -> Result<Vec<usize>, LimitExcess> {
    let mut starts = Vec::new();
    let (mut depth, mut operators, mut types, mut in_statement) = (0_usize, 0, 0, false);
    for (offset, token) in (Tokens {
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
            Token::Open => {
                depth += 1;
                (depth > MAX_NESTING).then(|| format!("brackets nest deeper than {MAX_NESTING}"))
            }
            Token::Close => {
                depth = depth.saturating_sub(1);
                None
            }
            Token::End => {
                in_statement = dialect == Dialect::Policies && depth > 0;
                let full = dialect == Dialect::Schema && starts.len() > MAX_DECLARATIONS;
                full.then(|| format!("the schema has more than {MAX_DECLARATIONS} declarations"))
            }
            Token::Operator => {
                operators += 1;
                (operators > MAX_OPERATORS)
                    .then(|| format!("one policy has more than {MAX_OPERATORS} operators"))
            }
            Token::TypeDeclaration => {
                types += 1;
                (types > MAX_COMMON_TYPES).then(|| {
                    format!("the schema has more than {MAX_COMMON_TYPES} `type` declarations")
                })
            }
            Token::Other => None,
        };
        if let Some(problem) = exceeded {
            return Err(LimitExcess { offset, problem });
        }
    }
    Ok(starts)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token {
    Open,
    Close,
    End,
    Operator,
    TypeDeclaration,
    Other,
}

/// Splits a text into tokens, as coarsely as counting allows.
struct Tokens<'a> {
    text: &'a str,
    at: usize,
    dialect: Dialect,
}

impl<'a> Tokens<'a> {
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

    fn skip_while(&mut self, wanted: impl Fn(u8) -> bool) {
        self.at += self.rest().iter().take_while(|byte| wanted(**byte)).count();
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

    fn word(&mut self) -> Token {
        let start = self.at;
        self.skip_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let word = self.text.get(start..self.at).unwrap_or_default();
        match self.dialect {
            Dialect::Policies if matches!(word, "if" | "has" | "in" | "is" | "like") => {
                Token::Operator
            }
            // An attribute may be called `type` too; then a colon or a question mark follows.
            Dialect::Schema if word == "type" => {
                self.skip_blank();
                match self.rest() {
                    [b':' | b'?', ..] => Token::Other,
                    _ => Token::TypeDeclaration,
                }
            }
            _ => Token::Other,
        }
    }
}

impl Iterator for Tokens<'_> {
    type Item = (usize, Token);

    fn next(&mut self) -> Option<Self::Item> {
        self.skip_blank();
        let start = self.at;
        let token = match (self.dialect, self.rest()) {
            (_, []) => return None,
            (_, [b'"', ..]) => {
                self.skip_string();
                Token::Other
            }
            (_, [byte, ..]) if byte.is_ascii_alphabetic() || *byte == b'_' => self.word(),
            (
                Dialect::Policies,
                [b'&', b'&', ..] | [b'|', b'|', ..] | [b'=' | b'!' | b'<' | b'>', b'=', ..],
            ) => {
                self.at += 2;
                Token::Operator
            }
            (dialect, [byte, ..]) => {
                self.at += 1;
                match (dialect, byte) {
                    (_, b'(' | b'[' | b'{') | (Dialect::Schema, b'<') => Token::Open,
                    (_, b')' | b']' | b'}') | (Dialect::Schema, b'>') => Token::Close,
                    (_, b';') => Token::End,
                    (Dialect::Policies, b'<' | b'>' | b'!' | b'+' | b'-' | b'*' | b'.') => {
                        Token::Operator
                    }
                    _ => Token::Other,
                }
            }
        };
        Some((start, token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str, dialect: Dialect) -> String {
        check(text, dialect).unwrap_err().problem
    }

    #[test]
    fn statements_start_behind_comments_and_blanks() {
        let text =
            "// a; (((\n permit(principal, action, resource);\n\n@id(\"x;\")\nforbid(p,a,r);";
        let starts = check(text, Dialect::Policies).unwrap();
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
            assert!(check(&nested(64), Dialect::Policies).is_ok());
            assert!(problem(&nested(65), Dialect::Policies).contains("nest"));
        }
        assert!(problem(&"Set<".repeat(65), Dialect::Schema).contains("nest"));
    }

    #[test]
    fn brackets_in_strings_and_comments_do_not_count() {
        let text = format!(
            "\"{}\\\"{}\" // {}",
            "(".repeat(99),
            "[".repeat(99),
            "{".repeat(99)
        );
        assert!(check(&text, Dialect::Policies).is_ok());
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
                problem(&link.repeat(1_001), Dialect::Policies).contains("operators"),
                "{link}"
            );
        }
        let two = format!("{}; {};", "true && ".repeat(600), "true && ".repeat(600));
        assert!(
            check(&two, Dialect::Policies).is_ok(),
            "each policy counts for itself"
        );
    }

    #[test]
    fn schema_bombs_are_refused() {
        assert!(problem(&"type T = {a: U, b: U};".repeat(17), Dialect::Schema).contains("`type`"));
        assert!(check(&"entity E { type: String, };".repeat(17), Dialect::Schema).is_ok());
        assert!(problem(&"entity E;".repeat(513), Dialect::Schema).contains("declarations"));
    }
}
