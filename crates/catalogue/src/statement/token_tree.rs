//! The tokens of a statement in nested brackets, and the queries that they form.
//!
//! ```text
//!   SELECT … FROM (SELECT … FROM t) x WHERE a IN (SELECT …)
//!   └ query 0      └ a table                      └ part of an expression
//! ```

use super::columns::identifier;
use super::{BadStatement, Scanner, SqlDialect, SqlToken};

/// The set operations.
pub(super) const SET_OPERATIONS: [&str; 4] = ["UNION", "INTERSECT", "EXCEPT", "MINUS"];

/// Keywords with which a query begins.
const QUERIES: [&str; 4] = ["SELECT", "WITH", "VALUES", "TABLE"];

/// Keywords that end a WHERE clause.
pub(super) const CLAUSES: [&str; 16] = [
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

/// Keywords that end a WHERE clause, and that no database accepts as the name of a column.
pub(super) const RESERVED_CLAUSES: [&str; 7] = [
    "GROUP",
    "HAVING",
    "ORDER",
    "LIMIT",
    "UNION",
    "INTERSECT",
    "EXCEPT",
];

/// A token of a statement that is neither blank nor a comment.
pub(super) struct StatementToken<'s> {
    pub(super) kind: TokenKind<'s>,
    pub(super) at: usize,
    /// The innermost pair of brackets around it, an index into [`TokenTree::groups`].
    pub(super) group: usize,
}

#[derive(PartialEq, Eq)]
pub(super) enum TokenKind<'s> {
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

/// The use of the rows of a query in the rest of the statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QueryRole {
    /// They are read as those of a table, or are the result of the statement.
    Table,
    /// The query is named in WITH. The statement can read it several times.
    Named,
    /// The query is part of an expression.
    Expression,
}

/// A pair of brackets, as the indexes of the two tokens.
pub(super) struct BracketPair {
    pub(super) open: usize,
    pub(super) close: usize,
}

/// A statement as tokens in nested brackets.
pub(super) struct TokenTree<'s> {
    pub(super) dialect: SqlDialect,
    pub(super) tokens: Vec<StatementToken<'s>>,
    /// The brackets. The first entry is the whole statement, which has none.
    pub(super) groups: Vec<BracketPair>,
}

impl<'s> TokenTree<'s> {
    /// Returns `None` if the brackets do not match.
    pub(super) fn parse(dialect: SqlDialect, sql: &'s str) -> Result<Option<Self>, BadStatement> {
        let mut scanner = Scanner::new(dialect, sql);
        let mut tokens = Vec::new();
        let mut groups = vec![BracketPair { open: 0, close: 0 }];
        let mut open = vec![0];
        while let Some((at, token)) = scanner.next()? {
            let text = &sql[at..scanner.at];
            let group = open.last().copied().unwrap_or_default();
            let kind = match (token, text) {
                (SqlToken::Blank | SqlToken::Comment | SqlToken::Semicolon, _) => continue,
                // PostgreSQL has lists of values in square brackets.
                (SqlToken::Other, "(" | "[") => {
                    open.push(groups.len());
                    let at = tokens.len();
                    groups.push(BracketPair {
                        open: at,
                        close: at,
                    });
                    TokenKind::Open(groups.len() - 1)
                }
                (SqlToken::Other, ")" | "]") => {
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
        Ok((open.len() == 1).then_some(Self {
            dialect,
            tokens,
            groups,
        }))
    }

    pub(super) fn kind(&self, at: usize) -> Option<&TokenKind<'s>> {
        self.tokens.get(at).map(|token| &token.kind)
    }

    /// Returns the word at `at` if it can be a keyword. After a dot, it is the name of a column.
    pub(super) fn word(&self, at: usize) -> Option<&str> {
        let is_column = at > 0 && self.kind(at - 1) == Some(&TokenKind::Other('.'));
        match self.kind(at)? {
            TokenKind::Word(word) if !is_column => Some(word),
            _ => None,
        }
    }

    /// Returns whether the token at `at` is one of these keywords.
    pub(super) fn is(&self, at: usize, words: &[&str]) -> bool {
        self.word(at).is_some_and(|word| words.contains(&word))
    }

    /// Returns whether the token before `at` is one of these words.
    pub(super) fn follows(&self, at: usize, words: &[&str]) -> bool {
        at.checked_sub(1)
            .is_some_and(|before| self.is(before, words))
    }

    pub(super) fn is_open(&self, at: usize) -> bool {
        matches!(self.kind(at), Some(TokenKind::Open(_)))
    }

    pub(super) fn is_comma(&self, at: usize) -> bool {
        self.tokens[at].kind == TokenKind::Other(',')
    }

    /// Returns the indexes of the tokens before `at` in the same brackets, without those of inner brackets.
    pub(super) fn level_before(&self, at: usize) -> impl DoubleEndedIterator<Item = usize> {
        let group = self.tokens[at].group;
        (0..at).filter(move |before| self.tokens[*before].group == group)
    }

    /// Returns whether the brackets contain a query, and not an expression or a join.
    pub(super) fn is_query(&self, group: usize) -> bool {
        let first = self.first_of(group);
        match self.kind(first) {
            _ if group == 0 => true,
            // A query in brackets of its own, or the first branch of a set operation.
            Some(TokenKind::Open(inner)) => {
                let next = self.groups[*inner].close + 1;
                let is_all = next == self.groups[group].close || self.is(next, &CLAUSES);
                is_all && self.is_query(*inner)
            }
            _ => self.is(first, &QUERIES),
        }
    }

    /// Returns the index of the first token in the brackets.
    fn first_of(&self, group: usize) -> usize {
        match group {
            0 => 0,
            _ => self.groups[group].open + 1,
        }
    }

    /// Returns whether the FROM clause of a query begins at `at`. `extract(day FROM a)` and `a IS DISTINCT FROM b` have none.
    pub(super) fn is_from(&self, at: usize) -> bool {
        self.is(at, &["FROM"])
            && self.is_query(self.tokens[at].group)
            && !self.follows(at, &["DISTINCT"])
    }

    /// Returns the use of the rows of the query in these brackets.
    pub(super) fn role(&self, query: usize) -> QueryRole {
        let mut group = query;
        while group != 0 {
            let opens_at = self.groups[group].open;
            if let Some(role) = self.role_at(opens_at) {
                return role;
            }
            group = self.tokens[opens_at].group;
        }
        QueryRole::Table
    }

    /// Returns the role of a query in brackets that open at `at`, by the last clause before it. Returns `None` if its role is
    /// that of the brackets around it: it is a branch of a set operation, or in redundant brackets, or an argument.
    fn role_at(&self, at: usize) -> Option<QueryRole> {
        let first = self.first_of(self.tokens[at].group);
        let mut is_list = false;
        for before in self.level_before(at).rev() {
            let Some(word) = self.word(before) else {
                is_list |= self.is_comma(before);
                continue;
            };
            match word {
                "FROM" if self.is_from(before) => return Some(QueryRole::Table),
                "JOIN" | "STRAIGHT_JOIN" => return Some(QueryRole::Table),
                "WITH" if before == first && self.follows(at, &["AS", "MATERIALIZED"]) => {
                    return Some(QueryRole::Named);
                }
                "WITH" if before == first => return Some(QueryRole::Table),
                // After a comma, the next item of the FROM clause begins.
                "ON" if is_list => {}
                "SELECT" | "WHERE" | "ON" | "HAVING" | "LIMIT" => {
                    return Some(QueryRole::Expression);
                }
                // These words can also be names, so more than the word is required.
                "GROUP" | "ORDER" | "PARTITION" if self.is(before + 1, &["BY"]) => {
                    return Some(QueryRole::Expression);
                }
                "OFFSET" if before + 1 == at => return Some(QueryRole::Expression),
                "VALUES" if before == first => return Some(QueryRole::Expression),
                word if SET_OPERATIONS.contains(&word) => return None,
                _ => {}
            }
        }
        None
    }

    /// Returns the innermost query that contains the tokens of `group`.
    pub(super) fn query_of(&self, mut group: usize) -> usize {
        while !self.is_query(group) {
            group = self.tokens[self.groups[group].open].group;
        }
        group
    }

    /// Returns the innermost query around the query `query`, which is not the whole statement.
    pub(super) fn query_around(&self, query: usize) -> usize {
        self.query_of(self.tokens[self.groups[query].open].group)
    }

    /// Returns the queries that contain the tokens of `group`, from the innermost one to the whole statement.
    pub(super) fn queries_around(&self, group: usize) -> Vec<usize> {
        let mut query = self.query_of(group);
        let mut queries = vec![query];
        while query != 0 {
            query = self.query_around(query);
            queries.push(query);
        }
        queries
    }

    /// Returns whether none of the queries is part of an expression.
    pub(super) fn are_tables(&self, queries: &[usize]) -> bool {
        queries
            .iter()
            .all(|query| self.role(*query) != QueryRole::Expression)
    }

    /// Returns whether every row of the result comes from rows of `query`, as far as the text shows: the query and the queries around
    /// it are tables, and if one of them has a name, a query for which the same holds reads it. `seen` are queries that are
    /// being followed already.
    pub(super) fn reach_result(&self, query: usize, seen: &mut Vec<usize>) -> bool {
        let around = self.queries_around(query);
        if seen.contains(&query) || !self.are_tables(&around) {
            return false;
        }
        seen.push(query);
        let mut named = around
            .iter()
            .filter(|query| self.role(**query) == QueryRole::Named);
        let Some(name) = named.next().map(|query| self.name_of(*query)) else {
            return true;
        };
        (0..self.tokens.len()).any(|at| {
            let is_read = match &self.tokens[at].kind {
                TokenKind::Word(it) | TokenKind::Quoted(it) => Some(it.as_str()) == name,
                _ => false,
            };
            is_read
                && self.begins_item(at)
                && self.reach_result(self.query_of(self.tokens[at].group), seen)
        })
    }

    /// Returns the name of a query in WITH: `name AS (` or `name (columns) AS NOT MATERIALIZED (`.
    fn name_of(&self, query: usize) -> Option<&str> {
        let mut at = self.groups[query].open.checked_sub(1)?;
        while self.is_open(at) || self.is(at, &["AS", "NOT", "MATERIALIZED"]) {
            at = at.checked_sub(1)?;
        }
        if self.kind(at) == Some(&TokenKind::Close) {
            let columns = self.groups.iter().find(|group| group.close == at)?;
            at = columns.open.checked_sub(1)?;
        }
        match self.kind(at)? {
            TokenKind::Word(name) | TokenKind::Quoted(name) => Some(name),
            _ => None,
        }
    }

    /// Returns the queries of the statement, without the subqueries of its expressions.
    pub(super) fn table_queries(&self) -> Vec<usize> {
        (0..self.groups.len())
            .filter(|group| self.is_query(*group) && self.are_tables(&self.queries_around(*group)))
            .collect()
    }

    /// Returns whether an item of a FROM clause begins at `at`.
    fn begins_item(&self, at: usize) -> bool {
        let Some(before) = at.checked_sub(1) else {
            return false;
        };
        match self.tokens[before].kind {
            TokenKind::Other(',') => {
                // Without a FROM before, it is the next query in WITH.
                self.is_query(self.tokens[at].group)
                    && self.level_before(at).any(|before| self.is_from(before))
                    && self.role_at(at) == Some(QueryRole::Table)
            }
            TokenKind::Open(group) => !self.is_query(group) && self.begins_item(before),
            _ if self.is(before, &["LATERAL", "ONLY"]) => self.begins_item(before),
            _ => self.is(before, &["JOIN", "STRAIGHT_JOIN"]) || self.is_from(before),
        }
    }

    /// Returns whether the query reads the results of other queries of the statement, and no table of the database.
    pub(super) fn reads_only_queries(&self, query: usize) -> bool {
        let mut reads_query = false;
        for at in 0..self.tokens.len() {
            if self.query_of(self.tokens[at].group) != query || !self.begins_item(at) {
                continue;
            }
            match &self.tokens[at].kind {
                TokenKind::Open(group) => reads_query |= self.is_query(*group),
                TokenKind::Word(word) if word == "LATERAL" => {}
                // A function.
                TokenKind::Word(_) | TokenKind::Quoted(_) if self.is_open(at + 1) => {}
                TokenKind::Word(name) | TokenKind::Quoted(name) => {
                    let has_schema = self.kind(at + 1) == Some(&TokenKind::Other('.'));
                    if has_schema || !self.is_query_name(name) {
                        return false;
                    }
                    reads_query = true;
                }
                // The name of a query, if the statement names any.
                TokenKind::Name if (0..at).any(|at| self.is(at, &["WITH"])) => reads_query = true,
                TokenKind::Name => return false,
                _ => {}
            }
        }
        reads_query
    }

    /// Returns whether a query of the statement may have this name: it is followed by `AS (`, possibly after a list of columns.
    fn is_query_name(&self, name: &str) -> bool {
        (0..self.tokens.len()).any(|at| {
            let next = match self.kind(at + 1) {
                Some(TokenKind::Open(columns)) => self.groups[*columns].close + 1,
                _ => at + 1,
            };
            matches!(&self.tokens[at].kind, TokenKind::Word(it) | TokenKind::Quoted(it) if it == name)
                && self.is(next, &["AS"])
                && (self.is_open(next + 1) || self.is(next + 1, &["NOT", "MATERIALIZED"]))
        })
    }

    /// Returns whether the rows of one of these queries are combined by a set operation with others.
    pub(super) fn have_branches(&self, queries: &[usize]) -> bool {
        (0..self.tokens.len()).any(|at| {
            self.is(at, &SET_OPERATIONS) && queries.contains(&self.query_of(self.tokens[at].group))
        })
    }
}
