//! `limits` of a tool, `retry` and `breaker` of a source.

use std::num::NonZeroU32;

use wardgate_yaml::Node;

use crate::fault::{Faults, FieldReader};
use wardgate_resilience::{BreakerSettings, LimitSettings, ParseRateError, RetrySettings};

pub(super) fn read_limits(node: &Node, faults: &mut Faults) -> Option<LimitSettings> {
    let mut fields = FieldReader::new(node, "limits", faults)?;
    let concurrency = fields.take_optional("concurrency");
    let concurrency = concurrency.and_then(|node| count(node, "concurrency", faults));
    let per_caller = fields.take_optional("per_caller").and_then(|node| {
        let text = faults.text(node, "per_caller")?;
        text.parse()
            .map_err(|error: ParseRateError| {
                faults.add(node.at, "`per_caller` is not a rate", error.to_string());
            })
            .ok()
    });
    fields.finish(faults);
    Some(LimitSettings {
        concurrency: concurrency.and_then(NonZeroU32::new),
        per_caller,
    })
}

pub(super) fn read_retry(node: &Node, faults: &mut Faults) -> Option<RetrySettings> {
    let mut fields = FieldReader::new(node, "retry", faults)?;
    let default = RetrySettings::default();
    let attempts = fields.take_optional("attempts");
    let attempts = attempts.and_then(|node| count(node, "attempts", faults));
    let first = fields.take_optional("first");
    let first = first.and_then(|node| faults.duration(node, "first"));
    let longest = fields.take_optional("longest");
    let longest = longest.and_then(|node| faults.duration(node, "longest"));
    fields.finish(faults);
    Some(RetrySettings {
        attempts: attempts.unwrap_or(default.attempts),
        first: first.unwrap_or(default.first),
        longest: longest.unwrap_or(default.longest),
    })
}

pub(super) fn read_breaker(node: &Node, faults: &mut Faults) -> Option<BreakerSettings> {
    let mut fields = FieldReader::new(node, "breaker", faults)?;
    let default = BreakerSettings::default();
    let failures = fields.take_optional("failures");
    let failures = failures.and_then(|node| count(node, "failures", faults));
    let probe_after = fields.take_optional("probe_after");
    let probe_after = probe_after.and_then(|node| faults.duration(node, "probe_after"));
    fields.finish(faults);
    Some(BreakerSettings {
        failures: failures.unwrap_or(default.failures),
        probe_after: probe_after.unwrap_or(default.probe_after),
    })
}

fn count(node: &Node, what: &str, faults: &mut Faults) -> Option<u32> {
    let count = faults.positive(node, what)?;
    Some(u32::try_from(count).unwrap_or(u32::MAX))
}
