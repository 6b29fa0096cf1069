//! `interface: metrics`: figures of this process and of the tools that it ran.

use futures::future::BoxFuture;
use serde_json::{Map, Value, json};

use super::{Interface, not_implemented_error};
use crate::executor::{Invocation, Output, Sources};
use crate::executor_error::ExecutorError;

/// The interface to the figures of the operating system and the runner.
pub(super) struct Metrics;

impl Interface for Metrics {
    fn answer<'a>(
        &'a self,
        question: &'a str,
        _: &'a Invocation<'a>,
        sources: &'a Sources,
        out: &'a mut Output<'_>,
    ) -> BoxFuture<'a, Result<(), ExecutorError>> {
        Box::pin(async move {
            let answer = async {
                match question {
                "get_system_metrics" => tokio::task::spawn_blocking(system_metrics)
                    .await
                    .map_err(|_| not_implemented_error(question)),
                "get_tool_metrics" => Ok(sources
                    .platform()
                    .counts()
                    .into_iter()
                    .map(|(tool, counts)| {
                        json!({
                            "tool": tool,
                            "calls": counts.calls,
                            "failed": counts.failed,
                            "busy_ms": u64::try_from(counts.busy.as_millis()).unwrap_or(u64::MAX),
                        })
                    })
                    .collect()),
                other => Err(not_implemented_error(other)),
            }
            };
            out.document(answer.await?).map(drop)
        })
    }
}

/// Reads the figures from `/proc`. A figure that the system does not provide is left out.
fn system_metrics() -> Value {
    let mut figures = Map::new();
    let mut add = |name: &str, figure: Option<Value>| {
        if let Some(figure) = figure {
            figures.insert(name.to_owned(), figure);
        }
    };
    let read = |path| std::fs::read_to_string(path).unwrap_or_default();
    let status = read("/proc/self/status");
    add("resident_bytes", kibibytes(&status, "VmRSS:"));
    add("threads", field(&status, "Threads:").map(Value::from));
    let memory = read("/proc/meminfo");
    add("memory_total_bytes", kibibytes(&memory, "MemTotal:"));
    add(
        "memory_available_bytes",
        kibibytes(&memory, "MemAvailable:"),
    );
    let load = read("/proc/loadavg");
    let load = load.split(' ').next().and_then(|it| it.parse::<f64>().ok());
    add("load_average_1m", load.map(Value::from));
    let files = std::fs::read_dir("/proc/self/fd").ok();
    add("open_files", files.map(|files| files.count().into()));
    let processors = std::thread::available_parallelism().ok();
    add("processors", processors.map(|count| count.get().into()));
    Value::Object(figures)
}

fn field(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn kibibytes(text: &str, name: &str) -> Option<Value> {
    field(text, name).map(|count| Value::from(count * 1_024))
}
