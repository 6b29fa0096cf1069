//! The configured SQL of a tool, which is parsed at load to replace its parameters by placeholders.
//!
//! ```text
//!   SELECT … WHERE id = :id AND :row_rule      as configured
//!   ────────text────────┤param├text┤row rule│  segments
//!   SELECT … WHERE id = $1 AND TRUE            PostgreSQL;  ?1 for SQLite, ? for MySQL
//! ```
//!
//! No value becomes part of the text: values of arguments and of row rules are bound (`values`), a list as an array or as
//! several placeholders (`lists`). A `{name}` is replaced by one of the identifiers that the author listed, quoted.
//!
//! The text also tells whether the row rule can be applied to the returned rows if the database does not apply all of it
//! (`row_handling`). For this, a limit at the end can be left out (`limit`).
//!
//! The text is parsed as the server parses it. MySQL's syntax depends on `sql_mode`; the sessions of a source use the mode
//! that is assumed here: `"` quotes names, and a backslash is an ordinary character.

mod bound;
mod columns;
mod limit;
mod lists;
mod named;
mod quoted;
mod row_handling;
mod token_tree;
mod values;

pub use bound::{BoundList, BoundValue, Parameter, ParameterType};
pub use limit::RowRange;
pub use named::name_placeholders;
pub(crate) use quoted::{QuotedPlaceholder, quoted_placeholders};
use row_handling::RowHandling;

/// Name of the marker that is replaced by the pushed-down row rule.
const ROW_RULE: &str = "row_rule";

/// Keywords with which a statement may begin. Transactions and settings are managed by the source.
const VERBS: [&str; 6] = ["SELECT", "WITH", "VALUES", "INSERT", "UPDATE", "DELETE"];

/// Keywords with which a SELECT of MySQL writes a file, which a read-only transaction does not prevent.
const FILE_WORDS: [&str; 2] = ["OUTFILE", "DUMPFILE"];

/// The SQL dialect of a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SqlDialect {
    /// SQLite
    Sqlite,
    /// PostgreSQL
    Postgres,
    /// MySQL and MariaDB
    Mysql,
}

impl SqlDialect {
    /// Returns the placeholder of the bound value with this number, counted from 1. MySQL has no numbered placeholders:
    /// values are bound in the order of the placeholders.
    pub fn placeholder(self, number: usize) -> String {
        match self {
            Self::Sqlite => format!("?{number}"),
            Self::Postgres => format!("${number}"),
            Self::Mysql => "?".to_owned(),
        }
    }

    /// Quotes `name` as an identifier, whatever characters it has. SQLite needs backticks, because it treats an unknown
    /// identifier in double quotes as a string.
    pub fn identifier(self, name: &str) -> String {
        let quote = match self {
            Self::Postgres => '"',
            Self::Sqlite | Self::Mysql => '`',
        };
        let doubled = name.replace(quote, &format!("{quote}{quote}"));
        format!("{quote}{doubled}{quote}")
    }
}

/// A validated statement.
#[derive(Debug)]
pub struct Statement {
    dialect: SqlDialect,
    segments: Vec<StatementSegment>,
    params: Vec<String>,
    names: Vec<String>,
    /// The names of the columns, if they can be read from the text.
    columns: Option<Vec<String>>,
    handling: RowHandling,
    /// The number of segments before the limit at the end, or of all segments if there is no such limit.
    before_limit: usize,
}

#[derive(Debug, PartialEq, Eq)]
enum StatementSegment {
    Text(String),
    /// An index into the parameters.
    Param(usize),
    /// An index into the names.
    Name(usize),
    RowRule,
}

/// The reason why a text is not exactly one statement.
#[derive(Debug, PartialEq, Eq)]
pub struct BadStatement {
    /// The problem, worded to follow the name of the statement.
    pub problem: String,
    /// The remedy.
    pub fix: String,
}

impl Statement {
    /// Parses `sql`, which must be one statement that reads or writes rows.
    pub fn parse(dialect: SqlDialect, sql: &str) -> Result<Self, BadStatement> {
        let mut scanner = Scanner::new(dialect, sql);
        let mut statement = Self {
            dialect,
            segments: Vec::new(),
            params: Vec::new(),
            names: Vec::new(),
            columns: None,
            handling: RowHandling::from_sql(dialect, sql)?,
            before_limit: 0,
        };
        let limit_at = statement.handling.limit.as_ref().map(|limit| limit.at);
        let mut text_from = 0;
        let mut ended_at = None;
        while let Some((at, token)) = scanner.next()? {
            match token {
                SqlToken::Blank | SqlToken::Comment => {}
                _ if ended_at.is_some() => {
                    return Err(scanner.bad(
                        at,
                        "there is text after the `;`",
                        "keep exactly one statement",
                    ));
                }
                SqlToken::Semicolon => ended_at = Some(at),
                SqlToken::Param(name) => {
                    statement.push_text(&sql[text_from..at]);
                    text_from = at + 1 + name.len();
                    statement.push_param(name);
                }
                SqlToken::Name(name) => {
                    statement.push_text(&sql[text_from..at]);
                    text_from = at + name.len() + 2;
                    let index = index_of(&mut statement.names, name);
                    statement.segments.push(StatementSegment::Name(index));
                }
                SqlToken::Placeholder => return Err(scanner.placeholder(at)),
                SqlToken::Word if limit_at == Some(at) => {
                    statement.push_text(&sql[text_from..at]);
                    text_from = at;
                    statement.before_limit = statement.segments.len();
                }
                SqlToken::Word | SqlToken::Other => {}
            }
        }
        statement.push_text(&sql[text_from..ended_at.unwrap_or(sql.len())]);
        if limit_at.is_none() {
            statement.before_limit = statement.segments.len();
        }
        statement.check(&scanner)?;
        statement.columns = Self::read_columns(dialect, sql)?;
        Ok(statement)
    }

    fn push_text(&mut self, text: &str) {
        if !text.is_empty() {
            self.segments.push(StatementSegment::Text(text.to_owned()));
        }
    }

    fn push_param(&mut self, name: &str) {
        let segment = match name {
            ROW_RULE => StatementSegment::RowRule,
            _ => StatementSegment::Param(index_of(&mut self.params, name)),
        };
        self.segments.push(segment);
    }

    fn check(&self, scanner: &Scanner<'_>) -> Result<(), BadStatement> {
        let verb = scanner.first_word.unwrap_or_default();
        if !VERBS.contains(&verb.to_ascii_uppercase().as_str()) {
            return Err(scanner.bad(
                0,
                "the statement does not begin with a keyword that reads or writes rows",
                &format!("begin with one of {}", VERBS.join(", ")),
            ));
        }
        if self
            .segments
            .iter()
            .filter(|&segment| *segment == StatementSegment::RowRule)
            .count()
            > 1
        {
            return Err(scanner.bad(
                0,
                "`:row_rule` occurs more than once",
                "keep it once, where the governed rows are selected",
            ));
        }
        Ok(())
    }

    /// Returns the names of the parameters, in the order of their placeholders.
    pub fn params(&self) -> &[String] {
        &self.params
    }

    /// Returns the names of the columns that can be read from the text, or `None` if only the database knows them.
    pub(crate) fn columns(&self) -> Option<&[String]> {
        self.columns.as_deref()
    }

    /// Returns the distinct names that occur as `{name}`.
    pub(crate) fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns whether the statement contains a `{name}`.
    pub fn has_names(&self) -> bool {
        !self.names.is_empty()
    }

    /// Returns the SQL dialect of the statement.
    pub fn dialect(&self) -> SqlDialect {
        self.dialect
    }

    /// Returns whether a returned row may depend on several different rows, or on how many there are, apart from a limit at the
    /// end. If the `:row_rule` marker stands where a table is read, only the query with the marker and those around it count.
    pub fn combines_rows(&self) -> bool {
        self.handling.combines_rows
    }

    /// Returns whether the `:row_rule` marker restricts every row, before rows are combined. False if there is no marker.
    pub fn restricts_every_row(&self) -> bool {
        self.handling.restricts_every_row
    }

    /// Returns whether the statement has the `:row_rule` marker.
    pub fn has_row_rule(&self) -> bool {
        self.segments.contains(&StatementSegment::RowRule)
    }
}

/// Returns the index of `name` in `known`, to which it is added if it is missing.
fn index_of(known: &mut Vec<String>, name: &str) -> usize {
    known.iter().position(|it| it == name).unwrap_or_else(|| {
        known.push(name.to_owned());
        known.len() - 1
    })
}

/// Checks an expression to which a row rule can be pushed down. It must not contain a parameter or a second statement.
pub(crate) fn check_expression(dialect: SqlDialect, sql: &str) -> Result<(), BadStatement> {
    let mut scanner = Scanner::new(dialect, sql);
    let mut depth = 0_i32;
    while let Some((at, token)) = scanner.next()? {
        match token {
            SqlToken::Semicolon | SqlToken::Param(_) | SqlToken::Name(_) | SqlToken::Comment => {
                return Err(scanner.bad(
                    at,
                    "the expression contains a parameter, a comment or a `;`",
                    "write a plain expression over the columns of the statement",
                ));
            }
            SqlToken::Placeholder => return Err(scanner.placeholder(at)),
            SqlToken::Other => match sql.as_bytes()[at] {
                b'(' => depth += 1,
                b')' => depth -= 1,
                _ => {}
            },
            SqlToken::Word | SqlToken::Blank => {}
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

enum SqlToken<'s> {
    Blank,
    Comment,
    Semicolon,
    /// `:name`, without the colon.
    Param(&'s str),
    /// `{name}`, without the braces.
    Name(&'s str),
    /// A placeholder of the database's own syntax: `?`, or one with a number.
    Placeholder,
    /// An unquoted word: a keyword, an identifier or a number.
    Word,
    /// A quoted string or identifier, or any other single character.
    Other,
}

struct Scanner<'s> {
    dialect: SqlDialect,
    sql: &'s str,
    at: usize,
    first_word: Option<&'s str>,
}

impl<'s> Scanner<'s> {
    fn new(dialect: SqlDialect, sql: &'s str) -> Self {
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

    /// Returns the next token and its position.
    fn next(&mut self) -> Result<Option<(usize, SqlToken<'s>)>, BadStatement> {
        let start = self.at;
        let rest = &self.sql[start..];
        let Some(first) = rest.chars().next() else {
            return Ok(None);
        };
        let second = rest[first.len_utf8()..].chars().next();
        let (length, token) = match (first, second) {
            ('\0', _) => {
                return Err(self.bad(start, "the text contains a NUL character", "remove it"));
            }
            (c, _) if c.is_whitespace() => (c.len_utf8(), SqlToken::Blank),
            (';', _) => (1, SqlToken::Semicolon),
            ('-', Some('-')) => (self.dash_comment(start, rest)?, SqlToken::Comment),
            ('#', _) if self.dialect == SqlDialect::Mysql => (line(rest), SqlToken::Comment),
            ('/', Some('*')) => (self.block_comment(start)?, SqlToken::Comment),
            ('\'', _) => (self.quoted_length(start, 1, '\'', false)?, SqlToken::Other),
            ('e' | 'E', Some('\'')) if self.dialect == SqlDialect::Postgres => {
                (self.quoted_length(start, 2, '\'', true)?, SqlToken::Other)
            }
            ('"', _) => (self.quoted_length(start, 1, '"', false)?, SqlToken::Other),
            ('`', _) if self.dialect != SqlDialect::Postgres => {
                (self.quoted_length(start, 1, '`', false)?, SqlToken::Other)
            }
            ('[', _) if self.dialect == SqlDialect::Sqlite => {
                (self.quoted_length(start, 1, ']', false)?, SqlToken::Other)
            }
            (':', Some(':')) => (2, SqlToken::Other),
            (':', Some(next)) if is_word_start(next) => {
                let name = word(&rest[1..]);
                (1 + name.len(), SqlToken::Param(name))
            }
            ('{' | '}', _) => {
                let name = self.braced_name(start, rest)?;
                (name.len() + 2, SqlToken::Name(name))
            }
            ('$' | '@', _) if self.dialect == SqlDialect::Mysql => {
                return Err(self.bad(
                    start,
                    "the statement contains a `$` or `@` outside quotes",
                    "quote names that contain one; session variables are not supported in statements",
                ));
            }
            ('$', Some(next)) if next == '$' || is_word_start(next) => self.dollar(start, rest)?,
            ('$', Some(next)) if next.is_ascii_digit() => {
                (placeholder_length(rest), SqlToken::Placeholder)
            }
            ('?', _) if self.dialect != SqlDialect::Postgres => {
                (placeholder_length(rest), SqlToken::Placeholder)
            }
            ('@', _) if self.dialect == SqlDialect::Sqlite => return Err(self.placeholder(start)),
            (c, _) if is_word_start(c) || c.is_ascii_digit() => {
                let word = word(rest);
                let is_file_word = FILE_WORDS.iter().any(|it| word.eq_ignore_ascii_case(it));
                if is_file_word && self.dialect == SqlDialect::Mysql {
                    return Err(self.bad(
                        start,
                        "the statement writes a file on the database server",
                        "remove INTO OUTFILE or INTO DUMPFILE; quote a column of that name",
                    ));
                }
                self.first_word.get_or_insert(word);
                (word.len(), SqlToken::Word)
            }
            (c, _) => (c.len_utf8(), SqlToken::Other),
        };
        self.at = start + length;
        Ok(Some((start, token)))
    }

    fn placeholder(&self, at: usize) -> BadStatement {
        self.bad(
            at,
            "the statement contains a placeholder in the database's own syntax",
            "write parameters as `:name`, with the names of the properties of `input_schema`",
        )
    }

    /// Returns the name in the braces at the beginning of `rest`.
    fn braced_name(&self, start: usize, rest: &'s str) -> Result<&'s str, BadStatement> {
        let name = word(&rest[1..]);
        let is_name = rest.starts_with('{') && !name.is_empty();
        if is_name && rest[1 + name.len()..].starts_with('}') {
            return Ok(name);
        }
        Err(self.bad(
            start,
            "a brace outside quotes does not belong to a `{name}`",
            "write `{name}` for an identifier that `derive` selects, and `:name` for a value",
        ))
    }

    /// Reads a dollar-quoted string of PostgreSQL. In SQLite `$name` is a placeholder, which is an error.
    fn dollar(&self, start: usize, rest: &str) -> Result<(usize, SqlToken<'s>), BadStatement> {
        if self.dialect == SqlDialect::Sqlite {
            return Err(self.placeholder(start));
        }
        let tag = 1 + word(&rest[1..]).len();
        if rest[tag..].starts_with('$') {
            let delimiter = &rest[..=tag];
            let body = &rest[delimiter.len()..];
            return match body.find(delimiter) {
                Some(end) => Ok((end + 2 * delimiter.len(), SqlToken::Other)),
                None => Err(self.open(start, delimiter)),
            };
        }
        Ok((1, SqlToken::Other))
    }

    /// Returns the length of a quoted text whose opening quote ends at `start + opening`. A doubled quote is part of the
    /// text.
    fn quoted_length(
        &self,
        start: usize,
        opening: usize,
        quote: char,
        backslash: bool,
    ) -> Result<usize, BadStatement> {
        let mut chars = self.sql[start + opening..].char_indices().peekable();
        while let Some((at, c)) = chars.next() {
            if c == '\0' {
                return Err(self.bad(start, "a quoted text contains a NUL character", "remove it"));
            } else if backslash && c == '\\' {
                chars.next();
            } else if c == quote {
                // In SQLite `[a]` cannot contain a closing bracket.
                if quote == ']' || chars.peek().is_none_or(|&(_, next)| next != quote) {
                    return Ok(opening + at + quote.len_utf8());
                }
                chars.next();
            }
        }
        Err(self.open(start, &quote.to_string()))
    }

    /// Returns the length of a comment that begins with two dashes. In MySQL two dashes without a following blank are two
    /// minus signs, which is an error.
    fn dash_comment(&self, start: usize, rest: &str) -> Result<usize, BadStatement> {
        let is_open = self.dialect == SqlDialect::Mysql
            && !rest[2..].is_empty()
            && !rest[2..].starts_with([' ', '\t', '\r', '\n']);
        if is_open {
            return Err(self.bad(
                start,
                "a `--` is not followed by a space",
                "write `-- ` for a comment, `- -` for two minus signs",
            ));
        }
        Ok(line(rest))
    }

    /// Returns the length of a block comment. PostgreSQL nests block comments. MySQL executes some of them, which is an
    /// error.
    fn block_comment(&self, start: usize) -> Result<usize, BadStatement> {
        let text = &self.sql[start..];
        if self.dialect == SqlDialect::Mysql
            && (text.starts_with("/*!") || text.starts_with("/*M!"))
        {
            return Err(self.bad(
                start,
                "the statement contains a comment that the database server would execute",
                "write its text without `/*!` and `*/`, or remove it",
            ));
        }
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
            } else if text[at..].starts_with("/*") && self.dialect == SqlDialect::Postgres {
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
            "a quoted text or comment is not closed",
            &format!("close it with {wanted}"),
        )
    }
}

fn is_word_start(c: char) -> bool {
    c == '_' || c.is_alphabetic()
}

fn is_word_part(c: char) -> bool {
    c == '_' || c.is_alphanumeric()
}

/// Returns the length of the first line of `text`.
fn line(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

/// Returns the length of the placeholder at the beginning of `text`: one character, and a number if one follows.
fn placeholder_length(text: &str) -> usize {
    let digits = text[1..].find(|c: char| !c.is_ascii_digit());
    digits.map_or(text.len(), |length| 1 + length)
}

/// Returns the word at the beginning of `text`.
fn word(text: &str) -> &str {
    let end = text.find(|c: char| !is_word_part(c));
    &text[..end.unwrap_or(text.len())]
}

#[cfg(test)]
mod tests;
