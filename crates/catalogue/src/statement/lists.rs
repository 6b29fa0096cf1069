//! List parameters: `id IN (:ids)` and `id = ANY (:ids)`, in all dialects.

use super::{BadStatement, SqlDialect, Statement, StatementSegment, is_word_part};

impl Statement {
    /// Declares the parameter `name` to be a list. PostgreSQL binds it as an array anywhere. The other databases use one
    /// placeholder per element, so the parameter is only allowed where several values are.
    pub(crate) fn set_list(&mut self, name: &str) -> Result<(), BadStatement> {
        let Some(index) = self.params.iter().position(|it| it == name) else {
            return Ok(());
        };
        for at in 0..self.segments.len() {
            if self.segments[at] != StatementSegment::Param(index) {
                continue;
            }
            let before = match at.checked_sub(1).map(|before| &self.segments[before]) {
                Some(StatementSegment::Text(text)) => text.as_str(),
                _ => "",
            };
            let is_alone = matches!(
                self.segments.get(at + 1),
                Some(StatementSegment::Text(text)) if text.trim_start().starts_with(')')
            );
            match membership(before).filter(|_| is_alone) {
                Some((operand, is_negated)) => {
                    let operator = match (self.dialect, is_negated) {
                        (SqlDialect::Postgres, false) => "= ANY (",
                        (SqlDialect::Postgres, true) => "<> ALL (",
                        (_, false) => "IN (",
                        (_, true) => "NOT IN (",
                    };
                    self.segments[at - 1] = StatementSegment::Text(format!("{operand} {operator}"));
                }
                None if self.dialect == SqlDialect::Postgres => {}
                None => {
                    return Err(BadStatement {
                        problem: format!(
                            "`:{name}` is a list, but a single value is required here"
                        ),
                        fix: format!("write `… IN (:{name})` or `… = ANY (:{name})`"),
                    });
                }
            }
        }
        Ok(())
    }
}

/// Returns the text before a membership operator at the end of `text`, and whether the operator is negated. The operators,
/// including their opening bracket, are `IN` and `= ANY`, and negated `NOT IN` and `<> ALL`.
fn membership(text: &str) -> Option<(&str, bool)> {
    let text = text.trim_end().strip_suffix('(')?.trim_end();
    if let Some(operand) = without_word(text, "IN") {
        let negated = without_word(operand.trim_end(), "NOT");
        return Some(negated.map_or((operand, false), |operand| (operand, true)));
    }
    if let Some(operand) = without_word(text, "ANY").or_else(|| without_word(text, "SOME")) {
        let operand = operand.trim_end().strip_suffix('=')?;
        return (!operand.ends_with(['<', '>', '!', ':', '='])).then_some((operand, false));
    }
    let operand = without_word(text, "ALL")?.trim_end();
    let operand = operand
        .strip_suffix("<>")
        .or_else(|| operand.strip_suffix("!="))?;
    Some((operand, true))
}

/// Removes a word from the end of `text`, or returns `None` if `text` does not end in it.
fn without_word<'t>(text: &'t str, word: &str) -> Option<&'t str> {
    let (before, last) = text.split_at_checked(text.len().checked_sub(word.len())?)?;
    let is_word = last.eq_ignore_ascii_case(word) && !before.ends_with(is_word_part);
    is_word.then_some(before)
}
