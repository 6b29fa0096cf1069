//! What came of many calls.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::client::Fault;

/// Longest latency that is told apart from longer ones.
const LONGEST: Duration = Duration::from_mins(10);

/// Counts while calls are made.
#[derive(Clone)]
pub(crate) struct Tally {
    /// Microseconds of good answers.
    latencies: Histogram<u64>,
    faults: BTreeMap<String, u64>,
    bytes: u64,
}

impl Tally {
    /// Nothing yet, to three digits.
    pub(crate) fn empty() -> Result<Self, Fault> {
        let longest = u64::try_from(LONGEST.as_micros()).unwrap_or(u64::MAX);
        let latencies = Histogram::new_with_max(longest, 3);
        Ok(Self {
            latencies: latencies.map_err(|error| Fault::Settings(error.to_string()))?,
            faults: BTreeMap::new(),
            bytes: 0,
        })
    }

    pub(crate) fn count(&mut self, latency: Duration, outcome: &Result<Box<RawValue>, Fault>) {
        match outcome {
            Ok(result) => {
                self.bytes += result.get().len() as u64;
                let micros = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
                self.latencies.saturating_record(micros);
            }
            Err(fault) => *self.faults.entry(fault.kind()).or_default() += 1,
        }
    }

    pub(crate) fn add(&mut self, other: &Self) {
        // Equal bounds, so there is room.
        let _ = self.latencies.add(&other.latencies);
        for (kind, count) in &other.faults {
            *self.faults.entry(kind.clone()).or_default() += count;
        }
        self.bytes += other.bytes;
    }

    pub(crate) fn report(&self, duration: Duration) -> Report {
        let millis = |micros| Duration::from_micros(micros).as_secs_f64() * 1000.0;
        let at = |quantile| millis(self.latencies.value_at_quantile(quantile));
        let (good, bad) = (self.latencies.len(), self.faults.values().sum());
        #[expect(
            clippy::cast_precision_loss,
            reason = "a rate is not exact to 16 digits"
        )]
        let per_second = good as f64 / duration.as_secs_f64().max(f64::MIN_POSITIVE);
        Report {
            seconds: duration.as_secs_f64(),
            good,
            bad,
            per_second,
            result_bytes: self.bytes,
            latency_ms: Latency {
                mean: self.latencies.mean() / 1000.0,
                p50: at(0.5),
                p90: at(0.9),
                p99: at(0.99),
                p999: at(0.999),
                max: millis(self.latencies.max()),
            },
            faults: self.faults.clone(),
        }
    }
}

/// What came of it, as JSON and as a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// How long calls were counted.
    pub seconds: f64,
    /// Calls with a verified answer.
    pub good: u64,
    /// Others.
    pub bad: u64,
    /// Good ones a second.
    pub per_second: f64,
    /// Bytes of all results together.
    pub result_bytes: u64,
    /// Of the good ones.
    pub latency_ms: Latency,
    /// How often which fault.
    pub faults: BTreeMap<String, u64>,
}

/// Milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Latency {
    /// On average.
    pub mean: f64,
    /// Half of the calls took no longer.
    pub p50: f64,
    /// 90 % of them.
    pub p90: f64,
    /// 99 % of them.
    pub p99: f64,
    /// 99.9 % of them.
    pub p999: f64,
    /// The longest.
    pub max: f64,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Latency {
            mean,
            p50,
            p90,
            p99,
            p999,
            max,
        } = self.latency_ms;
        writeln!(
            f,
            "{} verified answers in {} s, {:.1} a second",
            self.good, self.seconds, self.per_second
        )?;
        writeln!(
            f,
            "latency ms   mean {mean:.2}   p50 {p50:.2}   p90 {p90:.2}   p99 {p99:.2}   p99.9 {p999:.2}   max {max:.2}"
        )?;
        if self.bad > 0 {
            writeln!(f, "{} without:", self.bad)?;
        }
        for (kind, count) in &self.faults {
            writeln!(f, "  {count:>8}  {kind}")?;
        }
        Ok(())
    }
}
