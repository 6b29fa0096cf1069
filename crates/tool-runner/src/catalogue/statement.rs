//! The configured SQL of a tool: read once at load, its parameters turned into placeholders.
//!
//! ```text
//!   SELECT … WHERE id = :id AND :row_rule      as configured
//!   ────────text────────┤param├text┤row rule│  segments
//!   SELECT … WHERE id = $1 AND TRUE            PostgreSQL;  ?1 for SQLite
//! ```
//!
//! No value ever becomes part of the text: what an argument or a row rule brings is bound.

use std::fmt::Write;
use std::sync::Arc;

/// The marker that stands for the pushed-down row rule.
const ROW_RULE: &str = "row_rule";

/// A statement begins with one of these; transactions and settings belong to the source.
const VERBS: [&str; 6] = ["SELECT", "WITH", "VALUES", "INSERT", "UPDATE", "DELETE"];

/// Which SQL a source speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dialect {
    Sqlite,
    Postgres,
}

impl Dialect {
    /// The placeholder of the bound value with this number, counted from 1.
    pub(crate) fn placeholder(self, number: usize) -> String {
        match self {
            Self::Sqlite => format!("?{number}"),
            Self::Postgres => format!("${number}"),
        }
    }
}

/// A checked statement.
#[derive(Debug)]
pub(crate) struct Statement {
    dialect: Dialect,
    segments: Vec<Segment>,
    params: Vec<String>,
}

#[derive(Debug, PartialEq, Eq)]
enum Segment {
    Text(String),
    /// Index into the parameters.
    Param(usize),
    RowRule,
}

/// Why a text is not one statement.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct BadStatement {
    pub(crate) problem: String,
    pub(crate) fix: String,
}

impl Statement {
    pub(crate) fn parse(dialect: Dialect, sql: &str) -> Result<Self, BadStatement> {
        let mut scanner = Scanner::new(dialect, sql);
        let mut statement = Self {
            dialect,
            segments: Vec::new(),
            params: Vec::new(),
        };
        let mut text_from = 0;
        let mut ended_at = None;
        while let Some((at, token)) = scanner.next()? {
            match token {
                Token::Blank | Token::Comment => {}
                _ if ended_at.is_some() => {
                    return Err(scanner.bad(
                        at,
                        "there is more after the `;`",
                        "keep exactly one statement",
                    ));
                }
                Token::Semicolon => ended_at = Some(at),
                Token::Param(name) => {
                    statement.push_text(&sql[text_from..at]);
                    text_from = at + 1 + name.len();
                    statement.push_param(name);
                }
                Token::Word | Token::Other => {}
            }
        }
        statement.push_text(&sql[text_from..ended_at.unwrap_or(sql.len())]);
        statement.check(&scanner)?;
        Ok(statement)
    }

    fn push_text(&mut self, text: &str) {
        if !text.is_empty() {
            self.segments.push(Segment::Text(text.to_owned()));
        }
    }

    fn push_param(&mut self, name: &str) {
        self.segments.push(if name == ROW_RULE {
            Segment::RowRule
        } else {
            let known = self.params.iter().position(|param| param == name);
            Segment::Param(known.unwrap_or_else(|| {
                self.params.push(name.to_owned());
                self.params.len() - 1
            }))
        });
    }

    fn check(&self, scanner: &Scanner<'_>) -> Result<(), BadStatement> {
        let verb = scanner.first_word.unwrap_or_default();
        if !VERBS.contains(&verb.to_ascii_uppercase().as_str()) {
            return Err(scanner.bad(
                0,
                "the statement does not begin with a verb that reads or writes rows",
                &format!("begin with one of {}", VERBS.join(", ")),
            ));
        }
        if self
            .segments
            .iter()
            .filter(|&segment| *segment == Segment::RowRule)
            .count()
            > 1
        {
            return Err(scanner.bad(
                0,
                "`:row_rule` occurs more than once",
                "keep it once, where the governed rows are chosen",
            ));
        }
        Ok(())
    }

    /// Names of the parameters, in the order of their placeholders.
    pub(crate) fn params(&self) -> &[String] {
        &self.params
    }

    /// Which SQL it is in.
    pub(crate) fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// True when it has the `:row_rule` marker.
    pub(crate) fn has_row_rule(&self) -> bool {
        self.segments.contains(&Segment::RowRule)
    }

    /// The text for the database. `row_rule` is a condition whose placeholders are numbered behind the
    /// parameters; without one every row passes.
    pub(crate) fn render(&self, row_rule: Option<&str>) -> Arc<str> {
        let mut sql = String::new();
        for segment in &self.segments {
            match segment {
                Segment::Text(text) => sql.push_str(text),
                Segment::Param(index) => sql.push_str(&self.dialect.placeholder(index + 1)),
                Segment::RowRule => {
                    // Writing to a `String` does not fail.
                    let _ = write!(sql, "({})", row_rule.unwrap_or("TRUE"));
                }
            }
        }
        sql.into()
    }
}

/// Checks an expression that a row rule may be pushed down to: no parameter, no second statement.
pub(crate) fn check_expression(dialect: Dialect, sql: &str) -> Result<(), BadStatement> {
    let mut scanner = Scanner::new(dialect, sql);
    let mut depth = 0_i32;
    while let Some((at, token)) = scanner.next()? {
        match token {
            Token::Semicolon | Token::Param(_) | Token::Comment => {
                return Err(scanner.bad(
                    at,
                    "the expression holds a parameter, a comment or a `;`",
                    "write a plain expression over the columns of the statement",
                ));
            }
            Token::Other => match sql.as_bytes()[at] {
                b'(' => depth += 1,
                b')' => depth -= 1,
                _ => {}
            },
            Token::Word | Token::Blank => {}
        }
        if depth < 0 {
            break;
        }
    }
    if depth == 0 {
        return Ok(());
    }
    Err(scanner.bad(0, "the brackets do not match", "close every bracket"))
}

enum Token<'s> {
    Blank,
    Comment,
    Semicolon,
    /// `:name`, without the colon.
    Param(&'s str),
    /// A bare word: keyword, identifier or number.
    Word,
    /// A quoted text or identifier, or one character of anything else.
    Other,
}

struct Scanner<'s> {
    dialect: Dialect,
    sql: &'s str,
    at: usize,
    first_word: Option<&'s str>,
}

impl<'s> Scanner<'s> {
    fn new(dialect: Dialect, sql: &'s str) -> Self {
        Self {
            dialect,
            sql,
            at: 0,
            first_word: None,
        }
    }

    fn bad(&self, at: usize, problem: &str, fix: &str) -> BadStatement {
        let lines = self.sql.trim_end().lines().count();
        let problem = match self.sql[..at].matches('\n').count() + 1 {
            _ if lines < 2 || at == 0 => problem.to_owned(),
            line => format!("{problem} (line {line} of the text)"),
        };
        BadStatement {
            problem,
            fix: fix.to_owned(),
        }
    }

    /// The next token and where it starts.
    fn next(&mut self) -> Result<Option<(usize, Token<'s>)>, BadStatement> {
        let start = self.at;
        let rest = &self.sql[start..];
        let Some(first) = rest.chars().next() else {
            return Ok(None);
        };
        let second = rest[first.len_utf8()..].chars().next();
        let (length, token) = match (first, second) {
            ('\0', _) => {
                return Err(self.bad(start, "the text holds a NUL character", "remove it"));
            }
            (c, _) if c.is_whitespace() => (c.len_utf8(), Token::Blank),
            (';', _) => (1, Token::Semicolon),
            ('-', Some('-')) => (rest.find('\n').unwrap_or(rest.len()), Token::Comment),
            ('/', Some('*')) => (self.block_comment(start)?, Token::Comment),
            ('\'', _) => (self.quoted(start, 1, '\'', false)?, Token::Other),
            ('e' | 'E', Some('\'')) if self.dialect == Dialect::Postgres => {
                (self.quoted(start, 2, '\'', true)?, Token::Other)
            }
            ('"', _) => (self.quoted(start, 1, '"', false)?, Token::Other),
            ('`', _) if self.dialect == Dialect::Sqlite => {
                (self.quoted(start, 1, '`', false)?, Token::Other)
            }
            ('[', _) if self.dialect == Dialect::Sqlite => {
                (self.quoted(start, 1, ']', false)?, Token::Other)
            }
            (':', Some(':')) => (2, Token::Other),
            (':', Some(next)) if is_word_start(next) => {
                let name = word(&rest[1..]);
                (1 + name.len(), Token::Param(name))
            }
            ('$', Some(next)) if next == '$' || is_word_start(next) => self.dollar(start, rest)?,
            ('$', Some(next)) if next.is_ascii_digit() => return Err(self.placeholder(start)),
            ('?' | '@', _) if self.dialect == Dialect::Sqlite => {
                return Err(self.placeholder(start));
            }
            (c, _) if is_word_start(c) || c.is_ascii_digit() => {
                let word = word(rest);
                self.first_word.get_or_insert(word);
                (word.len(), Token::Word)
            }
            (c, _) => (c.len_utf8(), Token::Other),
        };
        self.at = start + length;
        Ok(Some((start, token)))
    }

    fn placeholder(&self, at: usize) -> BadStatement {
        self.bad(
            at,
            "the statement holds a placeholder of the database's own",
            "write parameters as `:name`, after the properties of `input_schema`",
        )
    }

    /// A dollar-quoted text of PostgreSQL; in SQLite `$name` is a placeholder.
    fn dollar(&self, start: usize, rest: &str) -> Result<(usize, Token<'s>), BadStatement> {
        if self.dialect == Dialect::Sqlite {
            return Err(self.placeholder(start));
        }
        let tag = 1 + word(&rest[1..]).len();
        if rest[tag..].starts_with('$') {
            let delimiter = &rest[..=tag];
            let body = &rest[delimiter.len()..];
            return match body.find(delimiter) {
                Some(end) => Ok((end + 2 * delimiter.len(), Token::Other)),
                None => Err(self.open(start, delimiter)),
            };
        }
        Ok((1, Token::Other))
    }

    /// Length of a quoted text whose quote ends at `start + opening`; a doubled quote stands for itself.
    fn quoted(
        &self,
        start: usize,
        opening: usize,
        quote: char,
        backslash: bool,
    ) -> Result<usize, BadStatement> {
        let mut chars = self.sql[start + opening..].char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            if c == '\0' {
                return Err(self.bad(start, "a quoted text holds a NUL character", "remove it"));
            } else if backslash && c == '\\' {
                chars.next();
            } else if c == quote {
                // In SQLite `[a]` has no way to hold a bracket.
                if quote == ']' || chars.peek().is_none_or(|&(_, next)| next != quote) {
                    return Ok(opening + at + quote.len_utf8());
                }
                chars.next();
            }
        }
        Err(self.open(start, &quote.to_string()))
    }

    /// Length of a block comment; PostgreSQL nests them.
    fn block_comment(&self, start: usize) -> Result<usize, BadStatement> {
        let text = &self.sql[start..];
        let mut depth = 1_usize;
        let mut at = 2;
        while depth > 0 {
            let Some(next) = text[at..].find(['*', '/']) else {
                return Err(self.open(start, "*/"));
            };
            at += next;
            if text[at..].starts_with("*/") {
                depth -= 1;
                at += 2;
            } else if text[at..].starts_with("/*") && self.dialect == Dialect::Postgres {
                depth += 1;
                at += 2;
            } else {
                at += 1;
            }
        }
        Ok(at)
    }

    fn open(&self, start: usize, wanted: &str) -> BadStatement {
        self.bad(
            start,
            "a quoted text or comment is never closed",
            &format!("close it with {wanted}"),
        )
    }
}

fn is_word_start(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

/// The word at the beginning of `text`.
fn word(text: &str) -> &str {
    let end = text.find(|c: char| !(c == '_' || c.is_alphanumeric()));
    &text[..end.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn rendered(dialect: Dialect, sql: &str) -> (String, Vec<String>) {
        let statement = Statement::parse(dialect, sql).unwrap();
        (statement.render(None).to_string(), statement.params)
    }

    #[test]
    fn parameters_become_numbered_placeholders() {
        let sql = "SELECT :b, :a, :b FROM t WHERE :row_rule;";
        let names = vec!["b".to_owned(), "a".to_owned()];
        assert_eq!(
            rendered(Dialect::Postgres, sql),
            (
                "SELECT $1, $2, $1 FROM t WHERE (TRUE)".to_owned(),
                names.clone()
            )
        );
        assert_eq!(
            rendered(Dialect::Sqlite, sql),
            ("SELECT ?1, ?2, ?1 FROM t WHERE (TRUE)".to_owned(), names)
        );
    }

    #[test]
    fn quotes_comments_and_casts_hold_no_parameters() {
        for (dialect, sql) in [
            (
                Dialect::Postgres,
                "SELECT ':x', \"a:x\", 'it''s :x', a::text -- :x\n, b /* :x /* :y */ :z */ FROM t",
            ),
            (
                Dialect::Postgres,
                "SELECT E'\\':x', $$ :x ; $$, $t$ :x $$ $t$, '{\"a\":1}'::jsonb ? 'a', x[1:2] FROM t",
            ),
            (
                Dialect::Sqlite,
                "SELECT [a:x], `b:x`, ':x;' /* :x /* */ FROM t",
            ),
        ] {
            assert_eq!(rendered(dialect, sql), (sql.to_owned(), vec![]), "{sql}");
        }
    }

    #[test]
    fn only_one_statement_is_accepted() {
        for sql in [
            "SELECT 1;",
            "SELECT 1 ; -- done\n",
            "SELECT 1;\n/* done */",
            "SELECT ';'",
        ] {
            assert!(Statement::parse(Dialect::Sqlite, sql).is_ok(), "{sql}");
        }
        for (sql, problem) in [
            ("SELECT 1; DROP TABLE t", "there is more after the `;`"),
            ("SELECT 1;;", "there is more after the `;`"),
            (
                "SELECT 1;\n:x",
                "there is more after the `;` (line 2 of the text)",
            ),
            (
                "",
                "the statement does not begin with a verb that reads or writes rows",
            ),
            (
                "-- nothing",
                "the statement does not begin with a verb that reads or writes rows",
            ),
            (
                "COMMIT",
                "the statement does not begin with a verb that reads or writes rows",
            ),
            ("SELECT 'a", "a quoted text or comment is never closed"),
            ("SELECT /* a", "a quoted text or comment is never closed"),
            (
                "SELECT ?",
                "the statement holds a placeholder of the database's own",
            ),
            (
                "SELECT $1",
                "the statement holds a placeholder of the database's own",
            ),
            (
                "SELECT :row_rule, :row_rule",
                "`:row_rule` occurs more than once",
            ),
            ("SELECT '\0'", "a quoted text holds a NUL character"),
        ] {
            let bad = Statement::parse(Dialect::Sqlite, sql).unwrap_err();
            assert_eq!(bad.problem, problem, "{sql}");
        }
        let unclosed = Statement::parse(Dialect::Postgres, "SELECT $a$ x $b$").unwrap_err();
        assert_eq!(unclosed.fix, "close it with $a$");
    }

    #[test]
    fn a_rule_expression_cannot_leave_its_place() {
        for sql in [
            "m.doctor",
            "lower(\"a b\")",
            "(a || b)",
            "CASE WHEN a THEN 'x' END",
        ] {
            assert_eq!(check_expression(Dialect::Postgres, sql), Ok(()), "{sql}");
        }
        for sql in [
            "a) OR (1=1",
            "a; DROP",
            ":p",
            "a -- b",
            "(a",
            "a /* b */",
            "'a",
        ] {
            assert!(check_expression(Dialect::Postgres, sql).is_err(), "{sql}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_scanned_without_a_panic(sql in "[ -~\u{0}\u{e9}\n]{0,60}") {
            for dialect in [Dialect::Sqlite, Dialect::Postgres] {
                let _ = Statement::parse(dialect, &sql);
                let _ = check_expression(dialect, &sql);
            }
        }

        #[test]
        fn what_is_not_a_parameter_is_kept_to_the_letter(text in "[a-z '\"()/*-]{0,40}") {
            let sql = format!("SELECT {text}");
            if let Ok(statement) = Statement::parse(Dialect::Postgres, &sql) {
                prop_assert_eq!(statement.render(None).to_string(), sql);
            }
        }
    }
}
