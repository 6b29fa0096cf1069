//! Conversion of statements that use the database's own placeholders.

use super::{BadStatement, Scanner, SqlDialect, SqlToken, word};

/// Replaces each of the database's own placeholders in `sql` by `:name`. `name` returns the name of a placeholder by its
/// position, counted from 0.
pub fn name_placeholders<'n>(
    dialect: SqlDialect,
    sql: &str,
    name: impl Fn(usize) -> Option<&'n str>,
) -> Result<String, BadStatement> {
    let mut scanner = Scanner::new(dialect, sql);
    let mut named = String::new();
    let mut text_from = 0;
    let mut unnumbered = 0..;
    while let Some((at, token)) = scanner.next()? {
        match token {
            SqlToken::Param(name) => {
                return Err(scanner.bad(
                    at,
                    &format!("the statement contains both `:{name}` and placeholders"),
                    "write all parameters in the same form",
                ));
            }
            SqlToken::Placeholder => {
                let position = match &sql[at + 1..scanner.at] {
                    "" => unnumbered.next(),
                    number => number
                        .parse()
                        .ok()
                        .and_then(|number: usize| number.checked_sub(1)),
                };
                let Some(name) = position.and_then(&name) else {
                    return Err(scanner.bad(
                        at,
                        "the statement has more placeholders than declared parameters",
                        "declare each parameter",
                    ));
                };
                named.push_str(&sql[text_from..at]);
                // Spaces keep adjacent characters from becoming part of the parameter.
                if named.ends_with(':') {
                    named.push(' ');
                }
                named.push(':');
                named.push_str(name);
                text_from = scanner.at;
                if !word(&sql[text_from..]).is_empty() {
                    named.push(' ');
                }
            }
            _ => {}
        }
    }
    named.push_str(&sql[text_from..]);
    Ok(named)
}
