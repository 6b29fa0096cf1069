//! What a statement does with the governed rows before it returns them, read from its text without a database.
//!
//! ```text
//!   SELECT … FROM t WHERE a = :a AND :row_rule GROUP BY b ORDER BY c LIMIT 10
//!                                └ restricts   └ combines            └ can be applied to the admitted rows
//! ```
//!
//! If the database does not apply the whole row rule, the rule is applied to the rows that it returns. They must not depend
//! on withheld rows then, so no query may have combined its rows before. The queries that count are the one with the
//! marker `:row_rule` and those around it; without a marker, the whole statement without the subqueries of its
//! expressions. Other subqueries see all rows of their tables, with and without a row rule.
//!
//! What is not understood counts as combining, and as not restricting.

use super::columns::identifier;
use super::limit::{RowNumber, TrailingLimit};
use super::{BadStatement, ROW_RULE, Scanner, SqlDialect, SqlToken};

/// Keywords of a query that combines rows, or selects them by their number. `OFFSET` is not one of them, because it can also
/// be the name of a column.
const COMBINING: [&str; 11] = [
    "GROUP",
    "HAVING",
    "DISTINCT",
    "DISTINCTROW",
    "OVER",
    "UNION",
    "INTERSECT",
    "EXCEPT",
    "MINUS",
    "LIMIT",
    "FETCH",
];

/// The aggregate functions of SQLite, PostgreSQL, MySQL and MariaDB, besides those whose name contains `AGG`.
const AGGREGATES: [&str; 52] = [
    "ANY_VALUE",
    "AVG",
    "BIT_AND",
    "BIT_OR",
    "BIT_XOR",
    "BOOL_AND",
    "BOOL_OR",
    "CORR",
    "COUNT",
    "COVAR_POP",
    "COVAR_SAMP",
    "CUME_DIST",
    "DENSE_RANK",
    "EVERY",
    "GROUPING",
    "GROUP_CONCAT",
    "JSONB_GROUP_ARRAY",
    "JSONB_GROUP_OBJECT",
    "JSON_GROUP_ARRAY",
    "JSON_GROUP_OBJECT",
    "MAX",
    "MEDIAN",
    "MIN",
    "MODE",
    "PERCENTILE",
    "PERCENTILE_CONT",
    "PERCENTILE_DISC",
    "PERCENT_RANK",
    "RANK",
    "REGR_AVGX",
    "REGR_AVGY",
    "REGR_COUNT",
    "REGR_INTERCEPT",
    "REGR_R2",
    "REGR_SLOPE",
    "REGR_SXX",
    "REGR_SXY",
    "REGR_SYY",
    "STD",
    "STDDEV",
    "STDDEV_POP",
    "STDDEV_SAMP",
    "STRING_AGG",
    "ST_COLLECT",
    "ST_EXTENT",
    "ST_UNION",
    "SUM",
    "TOTAL",
    "VARIANCE",
    "VAR_POP",
    "VAR_SAMP",
    "XMLAGG",
];

/// Keywords with which a query begins.
const QUERIES: [&str; 3] = ["SELECT", "WITH", "VALUES"];

/// Keywords that end a WHERE clause.
const CLAUSES: [&str; 16] = [
    "GROUP",
    "HAVING",
    "WINDOW",
    "ORDER",
    "LIMIT",
    "OFFSET",
    "FETCH",
    "FOR",
    "LOCK",
    "INTO",
    "PROCEDURE",
    "RETURNING",
    "UNION",
    "INTERSECT",
    "EXCEPT",
    "MINUS",
];

/// What a statement does with the governed rows.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RowHandling {
    /// Whether a returned row may depend on several governed rows, or on how many there are.
    pub(super) combines_rows: bool,
    /// Whether no row is used for which the marker `:row_rule` is false.
    pub(super) restricts_every_row: bool,
    /// The limit at the end, which is not taken into account in `combines_rows`.
    pub(super) limit: Option<TrailingLimit>,
}

/// A token of a statement that is neither blank nor a comment.
struct StatementToken<'s> {
    kind: TokenKind<'s>,
    at: usize,
    /// The innermost pair of brackets around it, an index into [`Tokens::groups`].
    group: usize,
}

#[derive(PartialEq, Eq)]
enum TokenKind<'s> {
    /// A keyword, an identifier or a number, in upper case.
    Word(String),
    /// A quoted identifier in upper case.
    Quoted(String),
    Param(&'s str),
    /// A `{name}`.
    Name,
    /// The bracket that opens this group.
    Open(usize),
    Close,
    /// Any other character, or the first one of a quoted text.
    Other(char),
}

/// A pair of brackets, as the indexes of the two tokens.
struct Group {
    open: usize,
    close: usize,
}

/// A statement as tokens in nested brackets.
struct Tokens<'s> {
    tokens: Vec<StatementToken<'s>>,
    /// The brackets. The first entry is the whole statement, which has none.
    groups: Vec<Group>,
}

impl RowHandling {
    pub(super) fn read(dialect: SqlDialect, sql: &str) -> Result<Self, BadStatement> {
        let Some(tokens) = Tokens::read(dialect, sql)? else {
            return Ok(Self {
                combines_rows: true,
                restricts_every_row: false,
                limit: None,
            });
        };
        let marker = tokens
            .tokens
            .iter()
            .position(|token| token.kind == TokenKind::Param(ROW_RULE));
        let (limit, end) = match tokens.limit() {
            Some((first, limit)) => (Some(limit), first),
            None => (None, tokens.tokens.len()),
        };
        Ok(Self {
            combines_rows: tokens.combine(marker, end),
            restricts_every_row: marker.is_some_and(|marker| tokens.restrict(marker)),
            limit,
        })
    }
}

impl<'s> Tokens<'s> {
    /// Returns `None` if the brackets do not match.
    fn read(dialect: SqlDialect, sql: &'s str) -> Result<Option<Self>, BadStatement> {
        let mut scanner = Scanner::new(dialect, sql);
        let mut tokens = Vec::new();
        let mut groups = vec![Group { open: 0, close: 0 }];
        let mut open = vec![0];
        while let Some((at, token)) = scanner.next()? {
            let text = &sql[at..scanner.at];
            let group = open.last().copied().unwrap_or_default();
            let kind = match (token, text) {
                (SqlToken::Blank | SqlToken::Comment | SqlToken::Semicolon, _) => continue,
                (SqlToken::Other, "(") => {
                    open.push(groups.len());
                    let at = tokens.len();
                    groups.push(Group {
                        open: at,
                        close: at,
                    });
                    TokenKind::Open(groups.len() - 1)
                }
                (SqlToken::Other, ")") => {
                    groups[group].close = tokens.len();
                    open.pop();
                    TokenKind::Close
                }
                (SqlToken::Word, word) => TokenKind::Word(word.to_uppercase()),
                (SqlToken::Param(name), _) => TokenKind::Param(name),
                (SqlToken::Name(_), _) => TokenKind::Name,
                (SqlToken::Other | SqlToken::Placeholder, text) => match identifier(text) {
                    Some(name) => TokenKind::Quoted(name.to_uppercase()),
                    None => TokenKind::Other(text.chars().next().unwrap_or_default()),
                },
            };
            // The closing bracket belongs to the same group as the opening one.
            let group = match (&kind, open.last()) {
                (TokenKind::Close, None) => return Ok(None),
                (TokenKind::Close, Some(around)) => *around,
                _ => group,
            };
            tokens.push(StatementToken { kind, at, group });
        }
        Ok((open.len() == 1).then_some(Self { tokens, groups }))
    }

    /// Returns whether the token at `at` is one of these words.
    fn is(&self, at: usize, words: &[&str]) -> bool {
        let token = self.tokens.get(at);
        matches!(token.map(|it| &it.kind), Some(TokenKind::Word(word)) if words.contains(&word.as_str()))
    }

    /// Returns whether the token before `at` is one of these words.
    fn follows(&self, at: usize, words: &[&str]) -> bool {
        at.checked_sub(1)
            .is_some_and(|before| self.is(before, words))
    }

    fn is_open(&self, at: usize) -> bool {
        let token = self.tokens.get(at);
        matches!(token.map(|it| &it.kind), Some(TokenKind::Open(_)))
    }

    /// Returns whether the brackets contain a query, and not an expression.
    fn is_query(&self, group: usize) -> bool {
        group == 0 || self.is(self.groups[group].open + 1, &QUERIES)
    }

    /// Returns whether the rows of the query are read as those of a table, or are the result of the statement.
    fn is_table(&self, query: usize) -> bool {
        let opens_at = self.groups[query].open;
        query == 0 || self.follows(opens_at, &["FROM", "JOIN", "LATERAL"]) || self.is_named(query)
    }

    /// Returns whether the query has a name, in the list of WITH. The statement can read it several times.
    fn is_named(&self, query: usize) -> bool {
        query != 0 && self.follows(self.groups[query].open, &["AS", "MATERIALIZED"])
    }

    /// Returns the innermost query that contains the tokens of `group`.
    fn query_of(&self, mut group: usize) -> usize {
        while !self.is_query(group) {
            group = self.tokens[self.groups[group].open].group;
        }
        group
    }

    /// Returns the queries that contain the token at `at`, from the innermost one to the whole statement.
    fn queries_around(&self, at: usize) -> Vec<usize> {
        let mut query = self.query_of(self.tokens[at].group);
        let mut queries = vec![query];
        while query != 0 {
            query = self.query_of(self.tokens[self.groups[query].open].group);
            queries.push(query);
        }
        queries
    }

    /// Returns whether one of the queries that count combines rows. The tokens from `end` on are left out.
    fn combine(&self, marker: Option<usize>, end: usize) -> bool {
        let queries = match marker {
            Some(marker) => self.queries_around(marker),
            None => (0..self.groups.len())
                .filter(|group| self.is_query(*group) && self.is_table(*group))
                .collect(),
        };
        // Other queries may combine the rows of a query that has a name.
        let is_shared = marker.is_some() && queries.iter().any(|query| self.is_named(*query));
        let mut tokens = 0..end;
        is_shared
            || tokens.any(|at| {
                let query = self.query_of(self.tokens[at].group);
                queries.contains(&query) && self.combines_at(at)
            })
    }

    fn combines_at(&self, at: usize) -> bool {
        let is_call = self.is_open(at + 1);
        match &self.tokens[at].kind {
            TokenKind::Word(word) | TokenKind::Quoted(word) if is_call && is_aggregate(word) => {
                true
            }
            TokenKind::Word(word) if COMBINING.contains(&word.as_str()) => {
                let is_column = at > 0 && self.tokens[at - 1].kind == TokenKind::Other('.');
                // `a IS DISTINCT FROM b` and `a IS NOT DISTINCT FROM b` are comparisons.
                let is_comparison = word == "DISTINCT" && self.follows(at, &["IS", "NOT"]);
                !is_column && !is_comparison
            }
            TokenKind::Word(word) if word == "OFFSET" => is_call || self.number(at + 1).is_some(),
            TokenKind::Name => is_call,
            _ => false,
        }
    }

    /// Returns the number at `at`, if it is a whole number without a sign, or a parameter.
    fn number(&self, at: usize) -> Option<RowNumber> {
        match &self.tokens.get(at)?.kind {
            TokenKind::Word(word) => word.parse().ok().map(RowNumber::Literal),
            TokenKind::Param(name) if *name != ROW_RULE => {
                Some(RowNumber::Param((*name).to_owned()))
            }
            _ => None,
        }
    }

    /// Returns the limit at the end of the statement and the index of its first token.
    fn limit(&self) -> Option<(usize, TrailingLimit)> {
        const LONGEST: usize = 8;
        let from = self.tokens.len().saturating_sub(LONGEST);
        (from..self.tokens.len()).find_map(|first| Some((first, self.limit_from(first)?)))
    }

    /// Returns the limit that the tokens from `first` on are, and nothing else.
    fn limit_from(&self, first: usize) -> Option<TrailingLimit> {
        let mut form = Vec::new();
        let mut numbers = Vec::new();
        for at in first..self.tokens.len() {
            let token = &self.tokens[at];
            form.push(match (&token.kind, self.number(at)) {
                _ if token.group != 0 => return None,
                (_, Some(number)) => {
                    numbers.push(number);
                    "N"
                }
                (TokenKind::Other(','), _) => ",",
                (TokenKind::Word(word), _) if word == "ROW" => "ROWS",
                (TokenKind::Word(word), _) if word == "NEXT" => "FIRST",
                (TokenKind::Word(word), _) => word,
                _ => return None,
            });
        }
        let mut numbers = numbers.into_iter();
        let (one, other) = (numbers.next(), numbers.next());
        let (skip, take) = match form.join(" ").as_str() {
            "LIMIT N" | "FETCH FIRST N ROWS ONLY" => (None, one),
            "OFFSET N" | "OFFSET N ROWS" => (one, None),
            "LIMIT N OFFSET N" | "LIMIT N OFFSET N ROWS" => (other, one),
            "LIMIT N , N"
            | "OFFSET N LIMIT N"
            | "OFFSET N ROWS LIMIT N"
            | "OFFSET N FETCH FIRST N ROWS ONLY"
            | "OFFSET N ROWS FETCH FIRST N ROWS ONLY" => (one, other),
            _ => return None,
        };
        Some(TrailingLimit {
            at: self.tokens[first].at,
            skip,
            take,
        })
    }

    /// Returns whether no row is used for which the marker is false.
    fn restrict(&self, marker: usize) -> bool {
        let queries = self.queries_around(marker);
        // One of the other branches would not be restricted.
        let has_branches = (0..self.tokens.len()).any(|at| {
            let query = self.query_of(self.tokens[at].group);
            self.is(at, &["UNION", "INTERSECT", "EXCEPT", "MINUS"]) && queries.contains(&query)
        });
        !has_branches
            && queries.iter().all(|query| self.is_table(*query))
            && self.is_condition_of_where(marker)
    }

    /// Returns whether the marker is one of the conditions that WHERE combines with AND, possibly in brackets.
    fn is_condition_of_where(&self, marker: usize) -> bool {
        let (mut first, mut last) = (marker, marker);
        loop {
            if !self.is_condition(first, last) {
                return false;
            }
            let group = self.tokens[first].group;
            let level = (0..self.tokens.len()).filter(|at| self.tokens[*at].group == group);
            let level: Vec<_> = level.collect();
            let is_where = |at: &usize| *at < first && self.is(*at, &["WHERE"]);
            let Some(clause) = level.iter().rposition(is_where) else {
                let is_list = |at: &usize| self.tokens[*at].kind == TokenKind::Other(',');
                if self.is_query(group) || level.iter().any(is_list) || self.has_alternative(&level)
                {
                    return false;
                }
                (first, last) = (self.groups[group].open, self.groups[group].close);
                continue;
            };
            let conditions = level[clause..].iter().copied();
            let conditions = conditions.take_while(|at| !self.is(*at, &CLAUSES));
            let conditions: Vec<_> = conditions.collect();
            return self.is_query(group)
                && conditions.contains(&first)
                && !self.has_alternative(&conditions);
        }
    }

    /// Returns whether the tokens from `first` to `last` are a whole condition of AND, or the only one.
    fn is_condition(&self, first: usize, last: usize) -> bool {
        let Some(before) = first.checked_sub(1) else {
            return false;
        };
        let begins = self.is_open(before)
            || self.is(before, &["WHERE"])
            || (self.is(before, &["AND"]) && !self.is_of_between(before));
        let ends = match self.tokens.get(last + 1).map(|it| &it.kind) {
            None | Some(TokenKind::Close) => true,
            _ => self.is(last + 1, &["AND"]) || self.is(last + 1, &CLAUSES),
        };
        begins && ends
    }

    /// Returns whether the AND at `at` belongs to a BETWEEN.
    fn is_of_between(&self, at: usize) -> bool {
        let group = self.tokens[at].group;
        let mut words = (0..at).rev().filter(|before| {
            self.tokens[*before].group == group && self.is(*before, &["BETWEEN", "AND"])
        });
        words.next().is_some_and(|word| self.is(word, &["BETWEEN"]))
    }

    fn has_alternative(&self, tokens: &[usize]) -> bool {
        tokens.iter().any(|at| self.is(*at, &["OR", "XOR", "CASE"]))
    }
}

/// Returns whether `name`, in upper case, is the name of an aggregate function.
fn is_aggregate(name: &str) -> bool {
    name.contains("AGG") || AGGREGATES.contains(&name)
}

#[cfg(test)]
mod tests;
