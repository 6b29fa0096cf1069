//! Detection of placeholders inside quotes, where they are plain text and are not replaced.

use super::{BadStatement, Scanner, SqlDialect, SqlToken, word};

/// Text inside the quotes of a statement that looks like a placeholder.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct QuotedPlaceholder<'s> {
    /// The name, without braces or colon.
    pub(crate) name: &'s str,
    /// The placeholder as it is written.
    pub(crate) shown: &'s str,
    /// The line in the statement, counted from 1.
    pub(crate) line: usize,
}

/// Returns every `{name}` and `:name` inside quotes of `sql`.
pub(crate) fn quoted_placeholders(
    dialect: SqlDialect,
    sql: &str,
) -> Result<Vec<QuotedPlaceholder<'_>>, BadStatement> {
    let mut scanner = Scanner::new(dialect, sql);
    let mut found = Vec::new();
    while let Some((at, token)) = scanner.next()? {
        let text = &sql[at..scanner.at];
        // A token of one character is punctuation; a longer one is quoted.
        if !matches!(token, SqlToken::Other) || text.len() < 2 {
            continue;
        }
        for (offset, mark) in text.match_indices(['{', ':']) {
            let rest = &text[offset + 1..];
            let name = word(rest);
            let is_braced = mark == "{" && rest[name.len()..].starts_with('}');
            let is_double = text[..offset].ends_with(':');
            if name.is_empty() || is_double || (mark == "{" && !is_braced) {
                continue;
            }
            let end = offset + 1 + name.len() + usize::from(is_braced);
            found.push(QuotedPlaceholder {
                name,
                shown: &text[offset..end],
                line: sql[..at + offset].matches('\n').count() + 1,
            });
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stands_in_quotes_is_found_and_what_is_bound_is_not() {
        let sql = "SELECT a::text, ':b' FROM {t}\nWHERE a = :a AND b LIKE '%{q}%' AND c = '12:30' AND d = 'x::y'";
        let found = quoted_placeholders(SqlDialect::Postgres, sql).unwrap();
        let found: Vec<_> = found.iter().map(|it| (it.shown, it.line)).collect();
        assert_eq!(found, [(":b", 1), ("{q}", 2), (":30", 2)]);
    }
}
