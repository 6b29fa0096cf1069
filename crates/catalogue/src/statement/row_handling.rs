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
//! A marker comes too late if its query reads only the results of other queries. It also covers only one branch of a set
//! operation. In both cases, the queries that count are the same as without a marker.
//!
//! A row rule is a function of the returned columns, so equal rows get the same verdict, and nothing of a withheld row
//! shows if equal rows are merged or removed. `DISTINCT` and set operations thus do not combine rows in PostgreSQL. In
//! SQLite and MySQL they do, except for `UNION ALL`, because texts are equal there by the collation of the column: of `d1`
//! and `D1`, only one may remain.
//!
//! What is not understood counts as combining, and as not restricting.

use super::limit::{RowNumber, TrailingLimit};
use super::token_tree::{
    CLAUSES, QueryRole, RESERVED_CLAUSES, SET_OPERATIONS, TokenKind, TokenTree,
};
use super::{BadStatement, ROW_RULE, SqlDialect};

/// Keywords of a query that combines rows, or selects them by their number.
const COMBINING: [&str; 5] = ["GROUP", "HAVING", "OVER", "LIMIT", "FETCH"];

/// Keywords that combine rows in MySQL and MariaDB only. They can be names of columns in the other databases.
const COMBINING_IN_MYSQL: [&str; 3] = ["DISTINCTROW", "MINUS", "PROCEDURE"];

/// The aggregate functions of SQLite, PostgreSQL, MySQL and MariaDB, besides those whose name contains `_AGG` or ends with
/// `AGG`, and the function that numbers the rows of a query.
const AGGREGATES: [&str; 51] = [
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
    "ROWNUM",
    "STD",
    "STDDEV",
    "STDDEV_POP",
    "STDDEV_SAMP",
    "ST_COLLECT",
    "ST_EXTENT",
    "ST_UNION",
    "SUM",
    "TOTAL",
    "VARIANCE",
    "VAR_POP",
    "VAR_SAMP",
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

impl RowHandling {
    pub(super) fn from_sql(dialect: SqlDialect, sql: &str) -> Result<Self, BadStatement> {
        let Some(tokens) = TokenTree::parse(dialect, sql)? else {
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
            restricts_every_row: marker.is_some_and(|marker| tokens.restrict(marker, end)),
            limit,
        })
    }
}

impl TokenTree<'_> {
    /// Returns whether one of the queries that count combines rows. The tokens from `end` on are left out.
    fn combine(&self, marker: Option<usize>, end: usize) -> bool {
        let Some(marker) = marker else {
            return self.any_combines(&self.table_queries(), end);
        };
        let around = self.queries_around(self.tokens[marker].group);
        // Other queries may combine the rows of a query that has a name.
        let is_shared = around
            .iter()
            .any(|query| self.role(*query) == QueryRole::Named);
        let covers_part = self.have_branches(&around)
            || self.reads_only_queries(around[0])
            || !self.are_tables(&around);
        is_shared
            || self.any_combines(&around, end)
            || (covers_part && self.any_combines(&self.table_queries(), end))
    }

    /// Returns whether one of `queries` combines rows. The tokens from `end` on are left out.
    fn any_combines(&self, queries: &[usize], end: usize) -> bool {
        (0..end).any(|at| {
            let query = self.query_of(self.tokens[at].group);
            (self.is_combining_word(at) && queries.contains(&query))
                || (self.is_aggregate(at) && queries.contains(&self.aggregated_query(query)))
        })
    }

    /// Returns the query whose rows an aggregate function in `query` combines. If that is a subquery without a table of its
    /// own, they are those of the query around it.
    fn aggregated_query(&self, mut query: usize) -> usize {
        let has_from = |query| {
            (0..self.tokens.len()).any(|at| self.tokens[at].group == query && self.is_from(at))
        };
        while self.role(query) == QueryRole::Expression && !has_from(query) {
            query = self.query_around(query);
        }
        query
    }

    fn is_combining_word(&self, at: usize) -> bool {
        let Some(word) = self.word(at) else {
            return false;
        };
        let merges_different_texts = self.dialect != SqlDialect::Postgres;
        match word {
            // `a IS DISTINCT FROM b` and `a IS NOT DISTINCT FROM b` are comparisons.
            "DISTINCT" if self.follows(at, &["IS", "NOT"]) => false,
            "DISTINCT" => merges_different_texts || self.is(at + 1, &["ON"]),
            "UNION" if self.is(at + 1, &["ALL"]) => false,
            // In the other databases, it can be the name of a column.
            "OFFSET" if self.dialect != SqlDialect::Postgres => {
                self.is_open(at + 1) || self.number(at + 1).is_some()
            }
            "OFFSET" => true,
            _ if COMBINING_IN_MYSQL.contains(&word) => self.dialect == SqlDialect::Mysql,
            _ if SET_OPERATIONS.contains(&word) => merges_different_texts,
            _ => COMBINING.contains(&word),
        }
    }

    /// Returns whether an aggregate function is called at `at`, or one that an argument selects.
    fn is_aggregate(&self, at: usize) -> bool {
        let Some(TokenKind::Open(arguments)) = self.kind(at + 1) else {
            return false;
        };
        match &self.tokens[at].kind {
            TokenKind::Word(name) | TokenKind::Quoted(name) => {
                // The smallest or largest of several values in SQLite.
                let is_of_values = self.dialect == SqlDialect::Sqlite
                    && ["MIN", "MAX"].contains(&name.as_str())
                    && (at..self.groups[*arguments].close)
                        .any(|at| self.tokens[at].group == *arguments && self.is_comma(at));
                is_aggregate(name) && !is_of_values
            }
            TokenKind::Name => true,
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

    /// Returns whether no row is used for which the marker is false. The tokens from `end` on are left out.
    fn restrict(&self, marker: usize, end: usize) -> bool {
        let around = self.queries_around(self.tokens[marker].group);
        let comes_too_late = || {
            let mut others = self.table_queries();
            // Without RECURSIVE, a query that begins later is not one that the query with the marker reads.
            let is_recursive = (0..marker).any(|at| self.is(at, &["RECURSIVE"]));
            others.retain(|query| {
                !around.contains(query) && (is_recursive || self.groups[*query].open < marker)
            });
            self.reads_only_queries(around[0]) && self.any_combines(&others, end)
        };
        // One of the other branches would not be restricted.
        !self.have_branches(&around)
            && self.reach_result(around[0], &mut Vec::new())
            && self.is_condition_of_where(marker)
            && !comes_too_late()
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
                let is_list = |at: &usize| self.is_comma(*at);
                if self.is_query(group) || level.iter().any(is_list) || self.has_alternative(&level)
                {
                    return false;
                }
                (first, last) = (self.groups[group].open, self.groups[group].close);
                continue;
            };
            let until = |words: &[&str]| -> Vec<usize> {
                let conditions = level[clause..].iter().copied();
                conditions.take_while(|at| !self.is(*at, words)).collect()
            };
            let conditions = until(&CLAUSES);
            // Some words that end the conditions can also be the name of a column, after which the conditions go on.
            let has_alternative = self.has_alternative(&conditions)
                || (until(&RESERVED_CLAUSES).iter()).any(|at| self.is(*at, &["OR", "XOR"]));
            return self.is_query(group) && conditions.contains(&first) && !has_alternative;
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
        let ends = match self.kind(last + 1) {
            None | Some(TokenKind::Close) => true,
            _ => self.is(last + 1, &["AND"]) || self.is(last + 1, &CLAUSES),
        };
        begins && ends
    }

    /// Returns whether the AND at `at` belongs to a BETWEEN: each AND belongs to the last BETWEEN that is still without one.
    fn is_of_between(&self, at: usize) -> bool {
        let mut open = 0_usize;
        for before in self.level_before(at) {
            if self.is(before, &["BETWEEN"]) {
                open += 1;
            } else if self.is(before, &["AND"]) {
                open = open.saturating_sub(1);
            }
        }
        open > 0
    }

    fn has_alternative(&self, tokens: &[usize]) -> bool {
        tokens.iter().any(|at| self.is(*at, &["OR", "XOR", "CASE"]))
    }
}

/// Returns whether `name`, in upper case, is the name of an aggregate function.
fn is_aggregate(name: &str) -> bool {
    name.ends_with("AGG") || name.contains("_AGG") || AGGREGATES.contains(&name)
}

#[cfg(test)]
mod tests;
