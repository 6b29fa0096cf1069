//! The results of many calls.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;
use serde_json::value::RawValue;

use crate::client::Fault;

/// The longest latency that is distinguished from longer ones.
const LONGEST: Duration = Duration::from_mins(10);

/// The counts while calls are being made.
#[derive(Clone)]
pub(crate) struct Tally {
    /// The latencies of verified responses, in microseconds.
    latencies: Histogram<u64>,
    faults: BTreeMap<String, u64>,
    bytes: u64,
}

impl Tally {
    /// Creates an empty tally, whose latencies have three significant digits.
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
        // The bounds are equal, so this cannot fail.
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

/// The results of a load, which are output as JSON or as a table.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// The time for which calls were counted, in seconds.
    pub seconds: f64,
    /// The number of calls with a verified response.
    pub good: u64,
    /// The number of other calls.
    pub bad: u64,
    /// The number of calls with a verified response per second.
    pub per_second: f64,
    /// The size of all results, in bytes.
    pub result_bytes: u64,
    /// The latency of the calls with a verified response.
    pub latency_ms: Latency,
    /// The number of faults of each kind.
    pub faults: BTreeMap<String, u64>,
}

/// Latencies, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Latency {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 90th percentile.
    pub p90: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The 99.9th percentile.
    pub p999: f64,
    /// The maximum.
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
