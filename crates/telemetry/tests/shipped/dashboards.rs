//! Two Grafana dashboards: an overview, and one with all metrics.

use serde_json::{Value, json};

use crate::metrics::{Kind, Metric};

/// Labels that are added by the scrape.
const OF_SCRAPE: &str = "instance, pod, container, endpoint, job, namespace";
/// The selector of the namespace, which matches everything if there are no namespaces.
const OURS: &str = r#"namespace=~"$namespace""#;

/// A graph of the overview.
struct Graph {
    title: &'static str,
    about: &'static str,
    unit: &'static str,
    /// Expressions and legends. `OURS` in an expression is replaced with the selector of the dashboard's variables.
    lines: &'static [(&'static str, &'static str)],
}

/// The rows of the overview: headings and graphs.
const OVERVIEW: &[(&str, &[Graph])] = &[
    (
        "Tool calls",
        &[
            Graph {
                title: "Calls by status",
                about: "All completed tool calls. `not_recorded` are calls that were refused because they could not be recorded.",
                unit: "reqps",
                lines: &[(
                    "sum by (status) (rate(wardgate_tool_calls_total{OURS}[$__rate_interval]))",
                    "{{status}}",
                )],
            },
            Graph {
                title: "Failed calls",
                about: "Share of calls that failed due to Wardgate or the source.",
                unit: "percentunit",
                lines: &[(
                    r#"sum(rate(wardgate_tool_calls_total{OURS, status=~"error|timeout|not_recorded|unknown"}[$__rate_interval])) / sum(rate(wardgate_tool_calls_total{OURS}[$__rate_interval]))"#,
                    "failed",
                )],
            },
            Graph {
                title: "Duration of calls",
                about: "From the request to the recorded outcome, including the tool's own time. Exemplars link to traces.",
                unit: "s",
                lines: &[
                    (
                        "histogram_quantile(0.5, sum by (le) (rate(wardgate_tool_call_duration_seconds_bucket{OURS}[$__rate_interval])))",
                        "p50",
                    ),
                    (
                        "histogram_quantile(0.95, sum by (le) (rate(wardgate_tool_call_duration_seconds_bucket{OURS}[$__rate_interval])))",
                        "p95",
                    ),
                    (
                        "histogram_quantile(0.99, sum by (le) (rate(wardgate_tool_call_duration_seconds_bucket{OURS}[$__rate_interval])))",
                        "p99",
                    ),
                ],
            },
            Graph {
                title: "Busiest tools",
                about: "Beyond 256 tools, a process counts the rest as `other`.",
                unit: "reqps",
                lines: &[(
                    "topk(10, sum by (tool) (rate(wardgate_tool_calls_total{OURS}[$__rate_interval])))",
                    "{{tool}}",
                )],
            },
            Graph {
                title: "Slowest tools",
                about: "99th percentile.",
                unit: "s",
                lines: &[(
                    "topk(10, histogram_quantile(0.99, sum by (le, tool) (rate(wardgate_tool_call_duration_seconds_bucket{OURS}[$__rate_interval]))))",
                    "{{tool}}",
                )],
            },
            Graph {
                title: "Duration by stage",
                about: "95th percentile of each stage of a call.",
                unit: "s",
                lines: &[(
                    "histogram_quantile(0.95, sum by (le, stage) (rate(wardgate_stage_duration_seconds_bucket{OURS}[$__rate_interval])))",
                    "{{stage}}",
                )],
            },
        ],
    ),
    (
        "Load",
        &[
            Graph {
                title: "Calls in flight and their limit",
                about: "Calls in progress at each service, and its adaptive concurrency limit.",
                unit: "short",
                lines: &[
                    (
                        "sum by (service) (wardgate_in_flight_calls{OURS})",
                        "{{service}}",
                    ),
                    (
                        "sum by (service) (wardgate_concurrency_limit{OURS})",
                        "limit of {{service}}",
                    ),
                ],
            },
            Graph {
                title: "Longest queue time",
                about: "Age of the oldest queued call.",
                unit: "s",
                lines: &[(
                    "max by (service) (wardgate_queue_age_seconds{OURS})",
                    "{{service}}",
                )],
            },
            Graph {
                title: "Rejected calls",
                about: "Calls rejected due to overload, before anything ran.",
                unit: "reqps",
                lines: &[(
                    "sum by (service, reason) (rate(wardgate_shed_calls_total{OURS}[$__rate_interval]))",
                    "{{service}} {{reason}}",
                )],
            },
        ],
    ),
    (
        "Refusals",
        &[
            Graph {
                title: "Requests by method",
                about: "All MCP requests, regardless of outcome.",
                unit: "reqps",
                lines: &[(
                    "sum by (method) (rate(mcp_requests_total{OURS}[$__rate_interval]))",
                    "{{method}}",
                )],
            },
            Graph {
                title: "Requests refused before a call",
                about: "Invalid tokens, invalid bodies, exceeded rate limits.",
                unit: "reqps",
                lines: &[(
                    "sum by (reason) (rate(wardgate_refused_requests_total{OURS}[$__rate_interval]))",
                    "{{reason}}",
                )],
            },
            Graph {
                title: "Policy decisions",
                about: "By effect, with the reason of denials.",
                unit: "reqps",
                lines: &[(
                    "sum by (effect, reason) (rate(wardgate_policy_decisions_total{OURS}[$__rate_interval]))",
                    "{{effect}} {{reason}}",
                )],
            },
        ],
    ),
    (
        "Services behind gRPC",
        &[
            Graph {
                title: "Calls by method",
                about: "",
                unit: "reqps",
                lines: &[(
                    "sum by (rpc_method) (rate(rpc_server_call_duration_seconds_count{OURS}[$__rate_interval]))",
                    "{{rpc_method}}",
                )],
            },
            Graph {
                title: "Errors",
                about: "Codes other than OK. CANCELLED: the caller disconnected.",
                unit: "reqps",
                lines: &[(
                    r#"sum by (rpc_method, rpc_response_status_code) (rate(rpc_server_call_duration_seconds_count{OURS, rpc_response_status_code!="OK"}[$__rate_interval]))"#,
                    "{{rpc_method}} {{rpc_response_status_code}}",
                )],
            },
            Graph {
                title: "Duration",
                about: "99th percentile.",
                unit: "s",
                lines: &[(
                    "histogram_quantile(0.99, sum by (le, rpc_method) (rate(rpc_server_call_duration_seconds_bucket{OURS}[$__rate_interval])))",
                    "{{rpc_method}}",
                )],
            },
        ],
    ),
    (
        "Links between services",
        &[
            Graph {
                title: "Replicas by neighbour",
                about: "As seen by their callers; `ejected` replicas temporarily receive no calls after repeated failures.",
                unit: "short",
                lines: &[(
                    "sum by (neighbour, state) (wardgate_link_endpoints{OURS})",
                    "{{neighbour}} {{state}}",
                )],
            },
            Graph {
                title: "Retries",
                about: "Including retries that were not made because the budget was exhausted.",
                unit: "reqps",
                lines: &[(
                    "sum by (neighbour, outcome) (rate(wardgate_link_retries_total{OURS}[$__rate_interval]))",
                    "{{neighbour}} {{outcome}}",
                )],
            },
        ],
    ),
    (
        "Sources and upstream servers",
        &[
            Graph {
                title: "Attempts by outcome",
                about: "`failed`: the source answered with an error; `busy`: it asked to wait; `down`: unreachable or connection lost.",
                unit: "reqps",
                lines: &[(
                    "sum by (source, outcome) (rate(wardgate_source_request_duration_seconds_count{OURS}[$__rate_interval]))",
                    "{{source}} {{outcome}}",
                )],
            },
            Graph {
                title: "Duration",
                about: "95th percentile.",
                unit: "s",
                lines: &[(
                    "histogram_quantile(0.95, sum by (le, source) (rate(wardgate_source_request_duration_seconds_bucket{OURS}[$__rate_interval])))",
                    "{{source}}",
                )],
            },
            Graph {
                title: "Open breakers and quarantined tools",
                about: "Sources with an open circuit breaker, and tools whose current definition is not approved.",
                unit: "short",
                lines: &[
                    (
                        "max by (source) (wardgate_source_breaker_open{OURS})",
                        "shut off: {{source}}",
                    ),
                    (
                        "max by (upstream) (wardgate_quarantined_tools{OURS})",
                        "tools kept out: {{upstream}}",
                    ),
                ],
            },
        ],
    ),
    (
        "Audit log",
        &[
            Graph {
                title: "Records made durable",
                about: "",
                unit: "ops",
                lines: &[(
                    "sum(rate(wardgate_audit_records_total{OURS}[$__rate_interval]))",
                    "records",
                )],
            },
            Graph {
                title: "Time until durable",
                about: "Duration of one batch. Above the adaptive limit, calls are refused.",
                unit: "s",
                lines: &[
                    (
                        "histogram_quantile(0.5, sum by (le) (rate(wardgate_audit_batch_duration_seconds_bucket{OURS}[$__rate_interval])))",
                        "p50",
                    ),
                    (
                        "histogram_quantile(0.99, sum by (le) (rate(wardgate_audit_batch_duration_seconds_bucket{OURS}[$__rate_interval])))",
                        "p99",
                    ),
                    ("max(wardgate_audit_write_limit_seconds{OURS})", "limit"),
                ],
            },
            Graph {
                title: "Age of the newest checkpoint",
                about: "Time since a signed checkpoint covered every record, and since the quorum of witnesses cosigned the newest one.",
                unit: "s",
                lines: &[
                    (
                        "time() - max(wardgate_audit_checkpoint_timestamp_seconds{OURS})",
                        "signed",
                    ),
                    (
                        "time() - max(wardgate_audit_cosigned_timestamp_seconds{OURS})",
                        "cosigned",
                    ),
                ],
            },
            Graph {
                title: "Days until the audit store is full",
                about: "At the rate of the last day.",
                unit: "d",
                lines: &[("min(wardgate_audit_store_days_left{OURS})", "days")],
            },
            Graph {
                title: "Store failures",
                about: "While the audit store cannot be written, no tool runs.",
                unit: "ops",
                lines: &[
                    (
                        "sum(rate(wardgate_audit_store_failures_total{OURS}[$__rate_interval]))",
                        "audit",
                    ),
                    (
                        "sum(rate(wardgate_gateway_store_failures_total{OURS}[$__rate_interval]))",
                        "gateway",
                    ),
                    (
                        "sum(rate(wardgate_tool_runner_store_failures_total{OURS}[$__rate_interval]))",
                        "tool-runner",
                    ),
                    (
                        "sum(rate(wardgate_memory_store_failures_total{OURS}[$__rate_interval]))",
                        "memory",
                    ),
                ],
            },
        ],
    ),
    (
        "Chats",
        &[
            Graph {
                title: "Turns by finish reason",
                about: "",
                unit: "reqps",
                lines: &[(
                    "sum by (finish) (rate(wardgate_agent_turns_total{OURS}[$__rate_interval]))",
                    "{{finish}}",
                )],
            },
            Graph {
                title: "Model responses",
                about: "95th percentile, by model and error.",
                unit: "s",
                lines: &[(
                    "histogram_quantile(0.95, sum by (le, gen_ai_request_model, error_type) (rate(gen_ai_client_operation_duration_bucket{OURS}[$__rate_interval])))",
                    "{{gen_ai_request_model}} {{error_type}}",
                )],
            },
            Graph {
                title: "Tokens",
                about: "",
                unit: "short",
                lines: &[(
                    "sum by (gen_ai_token_type, gen_ai_request_model) (rate(gen_ai_client_token_usage_sum{OURS}[$__rate_interval]))",
                    "{{gen_ai_token_type}} {{gen_ai_request_model}}",
                )],
            },
        ],
    ),
];

/// Returns the expressions of the overview.
pub(crate) fn overview_expressions() -> Vec<String> {
    let graphs = OVERVIEW.iter().flat_map(|(_, graphs)| *graphs);
    let lines = graphs.flat_map(|graph| graph.lines);
    lines.map(|(expression, _)| of_ours(expression)).collect()
}

/// Returns the overview dashboard.
pub(crate) fn overview() -> String {
    let mut grid = Grid::default();
    for (heading, graphs) in OVERVIEW {
        grid.row(heading);
        for graph in *graphs {
            let lines = graph.lines.iter();
            let lines =
                lines.map(|(expression, legend)| (of_ours(expression), (*legend).to_owned()));
            grid.graph(graph.title, graph.about, graph.unit, lines.collect());
        }
    }
    dashboard("wardgate-overview", "Wardgate", &grid.panels)
}

/// Returns the dashboard with a panel for each metric.
pub(crate) fn everything(metrics: &[Metric]) -> String {
    let mut grid = Grid::default();
    let mut section = "";
    for metric in metrics {
        if metric.section != section {
            section = &metric.section;
            grid.row(section);
        }
        let name = &metric.name;
        let rate = |part: &str| format!("rate({name}{part}{{{OURS}}}[$__rate_interval])");
        let (unit, lines) = match metric.kind {
            Kind::Counter => {
                let sum = format!("sum without ({OF_SCRAPE}) ({})", rate(""));
                ("ops", vec![(sum, "__auto".to_owned())])
            }
            Kind::Gauge { seconds } => {
                let unit = if seconds { "s" } else { "short" };
                (
                    unit,
                    vec![(format!("{name}{{{OURS}}}"), "__auto".to_owned())],
                )
            }
            Kind::Histogram { seconds } => {
                let unit = if seconds { "s" } else { "short" };
                let quantiles = [("0.5", "p50"), ("0.95", "p95"), ("0.99", "p99")];
                let lines = quantiles.map(|(quantile, legend)| {
                    let sum = format!("sum by (le) ({})", rate("_bucket"));
                    (
                        format!("histogram_quantile({quantile}, {sum})"),
                        legend.to_owned(),
                    )
                });
                (unit, lines.to_vec())
            }
        };
        grid.graph(name, &metric.about, unit, lines);
    }
    dashboard(
        "wardgate-everything",
        "Wardgate: every metric",
        &grid.panels,
    )
}

fn of_ours(expression: &str) -> String {
    expression.replace("OURS", OURS)
}

/// A grid of panels, three in a row.
#[derive(Default)]
struct Grid {
    panels: Vec<Value>,
    column: u64,
    line: u64,
}

const WIDTH: u64 = 8;
const HEIGHT: u64 = 8;

impl Grid {
    fn row(&mut self, heading: &str) {
        if self.column > 0 {
            self.line += HEIGHT;
            self.column = 0;
        }
        let place = json!({ "h": 1, "w": 3 * WIDTH, "x": 0, "y": self.line });
        self.push(json!({ "type": "row", "title": heading, "collapsed": false, "gridPos": place, "panels": [] }));
        self.line += 1;
    }

    fn graph(&mut self, title: &str, about: &str, unit: &str, lines: Vec<(String, String)>) {
        let targets: Vec<_> = lines
            .into_iter()
            .zip('A'..='Z')
            .map(|((expression, legend), reference)| {
                // Only buckets have exemplars.
                let has_exemplars = expression.contains("_bucket{");
                json!({ "refId": reference, "expr": expression, "legendFormat": legend, "exemplar": has_exemplars })
            })
            .collect();
        let place = json!({ "h": HEIGHT, "w": WIDTH, "x": self.column * WIDTH, "y": self.line });
        self.push(json!({
            "type": "timeseries",
            "title": title,
            "description": about,
            "datasource": { "type": "prometheus", "uid": "${datasource}" },
            "gridPos": place,
            "fieldConfig": { "defaults": { "unit": unit, "min": 0 }, "overrides": [] },
            "options": { "tooltip": { "mode": "multi", "sort": "desc" } },
            "targets": targets,
        }));
        self.column = (self.column + 1) % 3;
        if self.column == 0 {
            self.line += HEIGHT;
        }
    }

    fn push(&mut self, mut panel: Value) {
        panel["id"] = (self.panels.len() + 1).into();
        self.panels.push(panel);
    }
}

/// Formats a dashboard with one panel per line, so that diffs are readable.
fn dashboard(uid: &str, title: &str, panels: &[Value]) -> String {
    let variables = json!([
        { "name": "datasource", "type": "datasource", "query": "prometheus" },
        {
            "name": "namespace", "type": "query", "query": "label_values(mcp_requests_total, namespace)",
            "datasource": { "type": "prometheus", "uid": "${datasource}" },
            "includeAll": true, "allValue": ".*", "multi": true, "refresh": 2,
            "current": { "text": "All", "value": "$__all" },
        },
    ]);
    let settings = json!({
        "uid": uid, "title": title, "tags": ["wardgate"], "schemaVersion": 39, "version": 1, "editable": false,
        "refresh": "30s", "time": { "from": "now-1h", "to": "now" }, "templating": { "list": variables },
    });
    let panels: Vec<_> = panels.iter().map(|panel| format!("    {panel}")).collect();
    let settings = settings.to_string();
    let settings = settings.strip_suffix('}').unwrap_or_default();
    format!(
        "{settings},\n  \"panels\": [\n{}\n  ]\n}}\n",
        panels.join(",\n")
    )
}
