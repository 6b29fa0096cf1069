//! Conversion of the residuals of partial evaluation to policies that stand alone.

use cedar_policy::Policy;
use serde_json::{Value, json};

use crate::fault::DecisionFault;
use crate::set::depth;

/// Maximum JSON depth of a rule, about 12 levels of expression after balancing. Cedar can parse this depth on an
/// ordinary thread with a stack of 2 MiB, even in a debug build, in which a level takes 95 KiB of stack (measured).
const MAX_JSON_DEPTH: usize = 28;

/// Returns a residual as JSON, or an error if it cannot be decided from the row alone.
pub(crate) fn stand_alone(residual: &Policy) -> Result<String, DecisionFault> {
    let not_by_row = |problem| DecisionFault::NotByRow {
        policy: residual.id().to_string(),
        problem,
    };
    let mut json = residual
        .to_json()
        .map_err(|_| not_by_row("it cannot be written as JSON"))?;
    for condition in json
        .get_mut("conditions")
        .and_then(Value::as_array_mut)
        .into_iter()
        .flatten()
    {
        let Some(body) = condition.get_mut("body") else {
            continue;
        };
        cut_unreachable(body);
        *body = balance(body.take());
        needs_only_the_row(body).map_err(not_by_row)?;
    }
    if depth(&json) > MAX_JSON_DEPTH {
        return Err(not_by_row("it is nested too deeply"));
    }
    // Permits are sent with every call, so only the id is kept of the annotations.
    if let Some(annotations) = json.get_mut("annotations").and_then(Value::as_object_mut) {
        annotations.retain(|name, _| name == "id");
    }
    Ok(json.to_string())
}

/// Removes operands that are never evaluated: those after `… && false` in a chain of `&&`, and those after `… || true`
/// in a chain of `||`. Partial evaluation leaves such operands in the residual, and replaces those that it cannot
/// evaluate by an error. An example is `resource.open && principal has ward && …` for a caller without a ward.
fn cut_unreachable(expression: &mut Value) {
    match expression {
        Value::Array(items) => items.iter_mut().for_each(cut_unreachable),
        Value::Object(fields) => fields.values_mut().for_each(cut_unreachable),
        _ => return,
    }
    for (operator, stops_at) in [("&&", false), ("||", true)] {
        let left = expression
            .get_mut(operator)
            .and_then(|operands| operands.get_mut("left"));
        if let Some(left) = left.filter(|left| is_never(left, !stops_at)) {
            *expression = left.take();
        }
    }
}

/// Makes chains of `&&` and `||` as shallow as possible, since Cedar parses JSON recursively and uses many kilobytes of
/// stack per level. The operands keep their order, so the result is the same, including errors.
fn balance(expression: Value) -> Value {
    match expression {
        Value::Array(items) => items.into_iter().map(balance).collect(),
        Value::Object(fields) => {
            for operator in ["&&", "||"] {
                if fields.contains_key(operator) {
                    let mut operands = Vec::new();
                    chain(operator, Value::Object(fields), &mut operands);
                    return tree(operator, operands);
                }
            }
            fields
                .into_iter()
                .map(|(name, value)| (name, balance(value)))
                .collect()
        }
        scalar => scalar,
    }
}

/// Collects the operands of a chain of `operator`, from left to right.
fn chain(operator: &str, mut expression: Value, operands: &mut Vec<Value>) {
    match expression.get_mut(operator).map(Value::take) {
        Some(mut sides) => {
            chain(operator, sides["left"].take(), operands);
            chain(operator, sides["right"].take(), operands);
        }
        None => operands.push(balance(expression)),
    }
}

/// Returns the shallowest tree of `operator` over `operands`.
fn tree(operator: &str, mut operands: Vec<Value>) -> Value {
    if operands.len() < 2 {
        return operands.pop().unwrap_or_default();
    }
    let right = operands.split_off(operands.len() / 2);
    let sides = json!({ "left": tree(operator, operands), "right": tree(operator, right) });
    Value::Object([(operator.to_owned(), sides)].into_iter().collect())
}

/// Returns whether `expression` is known never to evaluate to `truth`, although it may evaluate to an error.
fn is_never(expression: &Value, truth: bool) -> bool {
    let side =
        |operands: &Value, side| operands.get(side).is_some_and(|side| is_never(side, truth));
    let both = |operands: &Value| side(operands, "left") && side(operands, "right");
    let either = |operands: &Value| side(operands, "left") || side(operands, "right");
    let mut fields = expression.as_object().into_iter().flatten();
    match fields
        .next()
        .map(|(operator, operands)| (operator.as_str(), operands))
    {
        Some(("Value", Value::Bool(value))) => *value != truth,
        Some(("&&", operands)) => {
            if truth {
                either(operands)
            } else {
                both(operands)
            }
        }
        Some(("||", operands)) => {
            if truth {
                both(operands)
            } else {
                either(operands)
            }
        }
        Some(("!", operands)) => operands.get("arg").is_some_and(|arg| is_never(arg, !truth)),
        _ => false,
    }
}

/// Checks that an expression in Cedar's JSON format needs only the row. Only the listed operations are allowed.
/// Attributes may be read only of the resource, because there is no other entity when the rule is evaluated. For other
/// entities, Cedar would evaluate `in` to false and everything else to an error.
fn needs_only_the_row(expression: &Value) -> Result<(), &'static str> {
    let mut fields = expression.as_object().into_iter().flatten();
    let (Some((operator, operands)), None) = (fields.next(), fields.next()) else {
        return Err("it is not a Cedar expression");
    };
    let walk = |names: &[&str]| {
        let operand = |name: &&str| operands.get(*name).unwrap_or(&Value::Null);
        names.iter().map(operand).try_for_each(needs_only_the_row)
    };
    let of_the_row = || match operands.get("left") {
        Some(left) if left.get("Var").and_then(Value::as_str) == Some("resource") => Ok(()),
        _ => Err("it uses an entity other than the row"),
    };
    match operator.as_str() {
        "Value" => Ok(()),
        "Var" if operands.as_str() == Some("resource") => Ok(()),
        "Set" => operands
            .as_array()
            .into_iter()
            .flatten()
            .try_for_each(needs_only_the_row),
        "!" | "neg" | "isEmpty" => walk(&["arg"]),
        "==" | "!=" | "<" | "<=" | ">" | ">=" | "&&" | "||" | "+" | "-" | "*" | "contains"
        | "containsAll" | "containsAny" => walk(&["left", "right"]),
        "like" => walk(&["left"]),
        "if-then-else" => walk(&["if", "then", "else"]),
        "is" if operands.get("in").is_none() => walk(&["left"]),
        "." | "has" if operands.get("attr").is_some_and(Value::is_string) => of_the_row(),
        // A row is in no entity but itself, because the schema allows no parents.
        "in" => of_the_row().and_then(|()| walk(&["right"])),
        _ => Err("it uses an operation that row rules do not support"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(condition: &str) -> Value {
        let policy = format!("permit(principal, action, resource) when {{ {condition} }};");
        let json = Policy::parse(None, policy).unwrap().to_json().unwrap();
        json["conditions"][0]["body"].clone()
    }

    #[test]
    fn only_what_can_never_be_reached_is_cut() {
        let cases = [
            ("resource.a && false && context.b", "resource.a && false"),
            ("resource.a || true || context.b", "resource.a || true"),
            (
                "(resource.a && !true) && context.b || resource.c",
                "(resource.a && !true) || resource.c",
            ),
            (
                "!(resource.a || true) && context.b",
                "!(resource.a || true)",
            ),
            (
                "((resource.a || resource.c) && false || false) && context.b",
                "(resource.a || resource.c) && false || false",
            ),
            (
                "resource.a && true && context.b",
                "resource.a && true && context.b",
            ),
            (
                "resource.a || false || context.b",
                "resource.a || false || context.b",
            ),
            (
                "(resource.a || false) && context.b",
                "(resource.a || false) && context.b",
            ),
            (
                "(resource.a && false) || context.b",
                "(resource.a && false) || context.b",
            ),
            (
                "false == (resource.a && false && context.b)",
                "false == (resource.a && false)",
            ),
        ];
        for (before, after) in cases {
            let mut expression = body(before);
            cut_unreachable(&mut expression);
            assert_eq!(expression, body(after), "{before}");
        }
    }

    #[test]
    fn a_long_chain_becomes_a_shallow_tree_in_the_same_order() {
        let chain: Vec<_> = (0..40)
            .map(|n| format!("(resource.a{n} && resource.b)"))
            .collect();
        let balanced = balance(body(&chain.join(" || ")));
        assert!(depth(&balanced) < 20, "{}", depth(&balanced));
        let mut places = chain
            .iter()
            .enumerate()
            .map(|(n, _)| balanced.to_string().find(&format!("\"a{n}\"")).unwrap());
        assert!(places.by_ref().is_sorted());
        let short = body("resource.a && resource.b || !(resource.c || resource.d)");
        assert_eq!(balance(short.clone()), short);
    }

    #[test]
    fn what_looks_at_the_row_alone_passes() {
        for condition in [
            r#"resource has a && resource.a == "x""#,
            r#"resource == Row::"r""#,
            r#"resource in Row::"r""#,
            r#"["a", "b"].contains(resource.a) || !resource.sealed"#,
            r#"if resource.n < 3 then resource.a like "x*" else -resource.n > 2 + 1 * 4"#,
            "resource is Row",
            "resource.tags.isEmpty()",
        ] {
            assert_eq!(needs_only_the_row(&body(condition)), Ok(()), "{condition}");
        }
    }

    #[test]
    fn what_needs_another_entity_is_found_wherever_it_hides() {
        for condition in [
            r#"principal in Role::"R""#,
            r#"User::"u" in Role::"R""#,
            r#"User::"u" in resource.roles"#,
            r#"User::"u".ward == resource.ward"#,
            r#"User::"u" has ward"#,
            "resource.owner.ward == resource.ward",
            "resource in resource.owner.rows",
            r#"resource is Row in Row::"r""#,
            "true && (false || !(if resource.a then principal.b else true))",
            r#"[User::"u".a].contains(resource.a)"#,
            r#"resource.getTag("t") == "x""#,
            r#"resource.hasTag("t")"#,
            "ip(resource.a).isLoopback()",
            "context.a",
            r#"{a: resource.a} == {a: "x"}"#,
        ] {
            assert!(needs_only_the_row(&body(condition)).is_err(), "{condition}");
        }
    }
}
