//! The limits of a turn and its usage.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;
use wardgate_domain::Digest;

use crate::assistant::TurnLimits;
use crate::event::Cap;
use crate::model::{FunctionCall, TokenUsage};

/// The budget of a turn: its limits and its usage so far.
#[derive(Debug)]
pub(super) struct TurnBudget {
    limits: TurnLimits,
    deadline: Instant,
    usage: TokenUsage,
    calls: HashMap<Digest, u32>,
    repeated: bool,
}

impl TurnBudget {
    pub(super) fn new(limits: TurnLimits) -> Self {
        Self {
            limits,
            deadline: Instant::now() + Duration::from_secs(limits.seconds),
            usage: TokenUsage::default(),
            calls: HashMap::new(),
            repeated: false,
        }
    }

    /// Returns the time after which no tool runs.
    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Returns the time after which no model is waited for. The final answer has the same amount of time again.
    pub(super) fn last_deadline(&self) -> Instant {
        self.deadline + Duration::from_secs(self.limits.seconds)
    }

    pub(super) fn usage(&self) -> TokenUsage {
        self.usage
    }

    pub(super) fn add(&mut self, usage: TokenUsage) {
        self.usage.input = self.usage.input.saturating_add(usage.input);
        self.usage.output = self.usage.output.saturating_add(usage.output);
    }

    /// Counts a call. Returns `false` if an identical call was already made as often as allowed.
    pub(super) fn may_call(&mut self, call: &FunctionCall) -> bool {
        let made = self.calls.entry(identity(call)).or_default();
        *made += 1;
        let may = *made <= self.limits.identical_calls;
        self.repeated |= !may;
        may
    }

    /// Returns the limit that forbids the use of tools in `round`, or `None` if no limit is reached.
    pub(super) fn cap(&self, round: usize) -> Option<Cap> {
        if self.repeated {
            Some(Cap::IdenticalCalls)
        } else if round as u64 >= u64::from(self.limits.turns) {
            Some(Cap::Turns)
        } else if self.usage.input.saturating_add(self.usage.output) >= self.limits.tokens {
            Some(Cap::Tokens)
        } else if self.is_too_dear() {
            Some(Cap::Cost)
        } else if Instant::now() >= self.deadline {
            Some(Cap::Seconds)
        } else {
            None
        }
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "no turn takes 2⁵³ tokens, and money is not counted to the last of them"
    )]
    fn is_too_dear(&self) -> bool {
        self.limits.cost.is_some_and(|cost| {
            let budget =
                self.usage.input as f64 * cost.input.0 + self.usage.output as f64 * cost.output.0;
            budget / 1_000_000.0 >= cost.most.0
        })
    }
}

/// Returns a digest of the tool and its arguments, independent of the order of members and of white space.
fn identity(call: &FunctionCall) -> Digest {
    let arguments = match serde_json::from_str::<Value>(&call.arguments) {
        Ok(mut arguments) => {
            arguments.sort_all_objects();
            arguments.to_string()
        }
        Err(_) => call.arguments.clone(),
    };
    Digest::compute(
        Value::from(vec![call.name.as_str(), &arguments])
            .to_string()
            .as_bytes(),
    )
}

/// Estimates the token count of a text as a quarter of its characters, for providers that do not report token counts.
pub(super) fn estimate(characters: usize) -> u64 {
    (characters as u64).div_ceil(4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn call(arguments: &str) -> FunctionCall {
        FunctionCall {
            id: String::new(),
            name: "t".to_owned(),
            arguments: arguments.to_owned(),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_same_call_is_the_same_however_it_is_written() {
        let mut budget = TurnBudget::new(TurnLimits::default());
        assert!(budget.may_call(&call(r#"{"a":1,"b":[2]}"#)));
        assert!(budget.may_call(&call(r#"{ "b": [2], "a": 1 }"#)));
        assert!(budget.may_call(&call(r#"{"a":2,"b":[2]}"#)));
        assert_eq!(budget.cap(1), None);
        assert!(!budget.may_call(&call(r#"{"b":[2],"a":1}"#)));
        assert_eq!(budget.cap(1), Some(Cap::IdenticalCalls));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_spent_is_the_price_of_what_was_read_and_written() {
        let cost = json!({"most": 0.5, "input": 2, "output": 10});
        let mut budget = TurnBudget::new(TurnLimits {
            cost: serde_json::from_value(cost).unwrap(),
            tokens: u64::MAX,
            ..TurnLimits::default()
        });
        let mut add = |input, output| {
            budget.add(TokenUsage { input, output });
            budget.cap(1)
        };
        assert_eq!(add(9_999, 30_000), None);
        assert_eq!(add(1, 18_000), Some(Cap::Cost));
    }

    #[test]
    fn money_is_a_number_not_below_zero() {
        for most in [json!(-1), json!("0.5"), json!(null)] {
            let cost = json!({"most": most, "input": 1, "output": 1});
            assert!(serde_json::from_value::<TurnLimits>(json!({"cost": cost})).is_err());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn rounds_tokens_and_time_come_to_their_limits() {
        let limits = TurnLimits::default();
        let mut budget = TurnBudget::new(limits);
        assert_eq!(budget.cap(limits.turns as usize), Some(Cap::Turns));
        tokio::time::advance(Duration::from_secs(limits.seconds)).await;
        assert_eq!(budget.cap(0), Some(Cap::Seconds));
        budget.add(TokenUsage {
            input: limits.tokens,
            output: 0,
        });
        assert_eq!(budget.cap(0), Some(Cap::Tokens));
    }
}
