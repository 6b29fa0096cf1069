//! The names of a statement's columns, read from its text without a database.

use super::{BadStatement, Scanner, SqlDialect, SqlToken, Statement};

/// Keywords that end the list of columns.
const CLAUSES: [&str; 13] = [
    "FROM",
    "WHERE",
    "GROUP",
    "HAVING",
    "WINDOW",
    "ORDER",
    "LIMIT",
    "OFFSET",
    "FETCH",
    "UNION",
    "EXCEPT",
    "INTERSECT",
    "INTO",
];

/// Keywords that are values or end an expression, so they are not names of columns.
const VALUES: [&str; 4] = ["NULL", "TRUE", "FALSE", "END"];

/// A part of a statement outside of brackets.
#[derive(Debug, Clone, PartialEq, Eq)]
enum StatementPart<'s> {
    Word(&'s str),
    /// A quoted identifier, without its quotes.
    Quoted(String),
    /// A pair of brackets and everything between them.
    Group,
    Comma,
    Dot,
    Other,
}

impl Statement {
    /// Returns the names of the columns of `sql` that can be read from its text, without expressions that have no alias.
    /// Returns `None` if nothing is known, as for `SELECT *`.
    pub(super) fn read_columns(
        dialect: SqlDialect,
        sql: &str,
    ) -> Result<Option<Vec<String>>, BadStatement> {
        let pieces = pieces(dialect, sql)?;
        let Some(list) = column_list(&pieces) else {
            return Ok(Some(Vec::new()));
        };
        let items: Vec<_> = list.split(|piece| *piece == StatementPart::Comma).collect();
        let names: Vec<_> = items
            .iter()
            .filter_map(|item| name(dialect, item))
            .collect();
        Ok((!names.is_empty()).then_some(names))
    }
}

impl StatementPart<'_> {
    fn is(&self, word: &str) -> bool {
        matches!(self, Self::Word(it) if it.eq_ignore_ascii_case(word))
    }
}

fn pieces(dialect: SqlDialect, sql: &str) -> Result<Vec<StatementPart<'_>>, BadStatement> {
    let mut scanner = Scanner::new(dialect, sql);
    let mut pieces = Vec::new();
    let mut depth = 0_usize;
    while let Some((at, token)) = scanner.next()? {
        let text = &sql[at..scanner.at];
        let piece = match (token, text) {
            (SqlToken::Blank | SqlToken::Comment, _) => continue,
            (SqlToken::Other, "(") => {
                depth += 1;
                continue;
            }
            (SqlToken::Other, ")") => {
                depth = depth.saturating_sub(1);
                if depth > 0 {
                    continue;
                }
                pieces.push(StatementPart::Group);
                continue;
            }
            _ if depth > 0 => continue,
            (SqlToken::Word, word) => StatementPart::Word(word),
            (SqlToken::Other, ",") => StatementPart::Comma,
            (SqlToken::Other, ".") => StatementPart::Dot,
            (SqlToken::Other, quoted) => {
                identifier(quoted).map_or(StatementPart::Other, StatementPart::Quoted)
            }
            _ => StatementPart::Other,
        };
        pieces.push(piece);
    }
    Ok(pieces)
}

/// Returns the name in a quoted identifier, or `None` for any other text.
pub(super) fn identifier(text: &str) -> Option<String> {
    let quote = text.chars().next()?;
    let closing = match quote {
        '"' | '`' => quote,
        '[' => ']',
        _ => return None,
    };
    let inner = text.get(1..)?.strip_suffix(closing)?;
    let doubled = format!("{closing}{closing}");
    Some(inner.replace(&doubled, &closing.to_string()))
}

/// Returns the pieces between `SELECT` or `RETURNING` and the next clause, or `None` if the statement returns no rows.
fn column_list<'p, 's>(pieces: &'p [StatementPart<'s>]) -> Option<&'p [StatementPart<'s>]> {
    let writes = pieces
        .iter()
        .find(|piece| {
            ["SELECT", "VALUES", "INSERT", "UPDATE", "DELETE"]
                .iter()
                .any(|verb| piece.is(verb))
        })
        .is_some_and(|verb| !verb.is("SELECT") && !verb.is("VALUES"));
    let begins = if writes { "RETURNING" } else { "SELECT" };
    let start = pieces.iter().position(|piece| piece.is(begins));
    let start = match start {
        Some(start) => start + 1,
        None if writes => return None,
        // The database determines the names of the columns of `VALUES`.
        None => pieces.len(),
    };
    let mut list = &pieces[start..];
    while let Some((first, rest)) = list.split_first() {
        match rest.first() {
            Some(StatementPart::Group) if first.is("ON") => list = &rest[1..],
            _ if first.is("DISTINCT") || first.is("ALL") => list = rest,
            _ => break,
        }
    }
    let is_end = |at: usize| {
        // `a IS DISTINCT FROM b` is an expression.
        let is_comparison = at > 0 && list[at - 1].is("DISTINCT");
        !is_comparison && CLAUSES.iter().any(|clause| list[at].is(clause))
    };
    let end = (0..list.len()).find(|at| is_end(*at)).unwrap_or(list.len());
    Some(&list[..end])
}

/// Returns the name of one column, if it can be read from the text.
fn name(dialect: SqlDialect, item: &[StatementPart<'_>]) -> Option<String> {
    let (last, before) = item.split_last()?;
    let name = match last {
        StatementPart::Quoted(name) => return is_named(before).then(|| name.clone()),
        StatementPart::Word(word) => *word,
        _ => return None,
    };
    let is_value = VALUES.iter().any(|value| last.is(value));
    let is_number = name.starts_with(|c: char| c.is_ascii_digit());
    if is_value || is_number || !is_named(before) {
        return None;
    }
    Some(match dialect {
        SqlDialect::Postgres => name.to_lowercase(),
        SqlDialect::Sqlite | SqlDialect::Mysql => name.to_owned(),
    })
}

/// Returns whether the parts before the last word of an item make that word the name of the column: there are none, or they
/// end in `AS`, in a call or brackets, or in the name of a table and a dot.
fn is_named(before: &[StatementPart<'_>]) -> bool {
    match before {
        []
        | [StatementPart::Group]
        | [
            ..,
            StatementPart::Word(_) | StatementPart::Quoted(_) | StatementPart::Group,
            StatementPart::Group,
        ] => true,
        [.., last] if last.is("AS") => true,
        [tables @ .., StatementPart::Dot] => tables.iter().all(|piece| {
            matches!(
                piece,
                StatementPart::Word(_) | StatementPart::Quoted(_) | StatementPart::Dot
            )
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(dialect: SqlDialect, sql: &str) -> Option<Vec<String>> {
        Statement::parse(dialect, sql).unwrap().columns
    }

    #[test]
    fn the_columns_are_those_that_the_text_names() {
        for (sql, expected) in [
            (
                "SELECT id, t.name, t.zone AS place FROM t",
                &["id", "name", "place"][..],
            ),
            ("SELECT DISTINCT id FROM t", &["id"]),
            (
                "SELECT count(*) AS parts FROM t WHERE kind = :kind",
                &["parts"],
            ),
            ("SELECT count(*) n, max(a) FROM t", &["n"]),
            (
                "SELECT (SELECT a FROM u) b, -1, 2, NULL, x'00' FROM t",
                &["b"],
            ),
            (
                "SELECT \"a b\", `c`, [d] FROM t ORDER BY 1",
                &["a b", "c", "d"],
            ),
            (
                "WITH u AS (SELECT z FROM t) SELECT a FROM u UNION SELECT b FROM v",
                &["a"],
            ),
            (
                "SELECT CASE WHEN a THEN 1 END, CASE WHEN a THEN 1 END AS c FROM t",
                &["c"],
            ),
            ("SELECT a, /* x */ b -- , c\n FROM t", &["a", "b"]),
            (
                "INSERT INTO t (a) VALUES (:a) RETURNING id, a AS given",
                &["id", "given"],
            ),
            ("DELETE FROM t WHERE a = :a", &[]),
            ("INSERT INTO t (a) SELECT b FROM u", &[]),
            ("SELECT :a AS given, a || b AS both", &["given", "both"]),
        ] {
            let found = columns(SqlDialect::Sqlite, sql);
            assert_eq!(found.as_deref().unwrap(), expected, "{sql}");
        }
    }

    #[test]
    fn nothing_is_said_of_columns_that_only_the_database_knows() {
        for sql in [
            "SELECT * FROM t",
            "SELECT t.* FROM t",
            "VALUES (1, 2)",
            "SELECT count(*), sum(a) OVER w FROM t",
            "SELECT a COLLATE NOCASE, NOT b FROM t",
        ] {
            assert_eq!(columns(SqlDialect::Sqlite, sql), None, "{sql}");
        }
    }

    #[test]
    fn postgresql_has_its_own_words() {
        let sql = "SELECT DISTINCT ON (Zone) Zone, \"Id\", a IS DISTINCT FROM b AS Differs FROM t";
        let found = columns(SqlDialect::Postgres, sql);
        assert_eq!(found.unwrap(), ["zone", "Id", "differs"]);
    }
}
