//! Prometheus alert rules, with explanations for operators.

struct Alert {
    name: &'static str,
    severity: &'static str,
    /// How long the condition must hold.
    lasting: &'static str,
    expression: &'static str,
    summary: &'static str,
    /// What the alert means, and what to do.
    description: &'static str,
}

const ALERTS: &[Alert] = &[
    Alert {
        name: "WardgateDown",
        severity: "critical",
        lasting: "5m",
        expression: r#"up{job=~".*wardgate.*"} == 0"#,
        summary: "{{ $labels.job }} does not answer",
        description: "{{ $labels.instance }} has not let its metrics be read for five minutes. See why its pod does not run, or who may reach it.",
    },
    Alert {
        name: "WardgateCallsNotRecorded",
        severity: "critical",
        lasting: "1m",
        expression: r#"sum by (namespace) (rate(wardgate_tool_calls_total{status="not_recorded"}[5m])) > 0"#,
        summary: "Calls are refused because they cannot be recorded",
        description: "The audit service or its store does not take records, and what cannot be recorded is not run. See the audit service's log and its database: reachable, not full, quick enough.",
    },
    Alert {
        name: "WardgateAuditStoreFailing",
        severity: "critical",
        lasting: "5m",
        expression: "sum by (namespace) (rate(wardgate_audit_store_failures_total{}[5m])) > 0",
        summary: "The store of the record refuses writes",
        description: "Its log says why: a full disk, a lost connection, another writer. Until it is mended nothing runs.",
    },
    Alert {
        name: "WardgateAuditCopyFailing",
        severity: "critical",
        lasting: "2m",
        expression: "sum by (namespace) (rate(wardgate_audit_copy_failures_total{}[5m])) > 0",
        summary: "The second copy of the record refuses writes",
        description: "What is not in both places is not acknowledged, so nothing runs. The log of the audit service says why: a disk that is full or not mounted, a file server that does not answer, or another history than the store's. Mend it; without it, unset `audit.second_copy_dir` and start the service again.",
    },
    Alert {
        name: "WardgateAuditStoreFilling",
        severity: "warning",
        lasting: "30m",
        expression: "min by (namespace) (wardgate_audit_store_days_left{}) < 14",
        summary: "The store of the record is full in {{ $value | humanize }} days",
        description: "At the pace of the last day. When it is full nothing runs. Give it room. The record says who makes it grow: `audit query` by caller, and summaries of refusals.",
    },
    Alert {
        name: "WardgateAuditSlow",
        severity: "warning",
        lasting: "10m",
        expression: "histogram_quantile(0.99, sum by (namespace, le) (rate(wardgate_audit_batch_duration_seconds_bucket{}[5m]))) > 0.4",
        summary: "Records take long to become durable",
        description: "One batch in a hundred takes {{ $value | humanizeDuration }}; past `wardgate_audit_write_limit_seconds` calls are refused. The disk or the database of the record is too slow or too busy.",
    },
    Alert {
        name: "WardgateCheckpointsFailing",
        severity: "critical",
        lasting: "5m",
        expression: "time() - max by (namespace) (wardgate_audit_checkpoint_timestamp_seconds{}) > 60",
        summary: "No signed checkpoint covers the newest records",
        description: "The audit service signs none. Its log says why: the tree of a large store is still being built (`wardgate_audit_tree_backlog_records` falls), or the store was changed from outside: then keep it as it is.",
    },
    Alert {
        name: "WardgateQuorumMissing",
        severity: "warning",
        lasting: "5m",
        expression: "time() - max by (namespace) (wardgate_audit_cosigned_timestamp_seconds{}) > 300",
        summary: "The newest checkpoints are not cosigned by the quorum of witnesses",
        description: "`wardgate_audit_witness_failures_total` and the log of the audit service say which witness does not answer, or what it saw of another history.",
    },
    Alert {
        name: "WardgateAnomaly",
        severity: "warning",
        lasting: "0m",
        expression: "sum by (namespace, kind) (increase(wardgate_audit_anomalies_total{}[15m])) > 0",
        summary: "Unusual behaviour of callers: {{ $labels.kind }}",
        description: "`wardgate audit query --event anomaly` says who, from where and how often; `audit query --subject` shows what they did.",
    },
    Alert {
        name: "WardgateAuditExportLags",
        severity: "warning",
        lasting: "10m",
        expression: "max by (namespace, export) (wardgate_audit_export_lag_seconds{}) > 300",
        summary: "The security tool of the export {{ $labels.export }} does not get the record",
        description: "Its first record that is missing there is {{ $value | humanizeDuration }} old. `wardgate_audit_export_failures_total` and the log of the audit service say why; calls go on, and nothing is lost.",
    },
    Alert {
        name: "WardgateCallsFailing",
        severity: "warning",
        lasting: "10m",
        expression: r#"sum by (namespace) (rate(wardgate_tool_calls_total{status=~"error|timeout|not_recorded|unknown"}[10m])) / sum by (namespace) (rate(wardgate_tool_calls_total{}[10m])) > 0.05"#,
        summary: "{{ $value | humanizePercentage }} of calls fail",
        description: "Refusals are not counted. The dashboard shows which tools, and whether their sources are down.",
    },
    Alert {
        name: "WardgateCallsSlow",
        severity: "warning",
        lasting: "15m",
        expression: "histogram_quantile(0.95, sum by (namespace, le) (rate(wardgate_tool_call_duration_seconds_bucket{}[10m]))) > 5",
        summary: "One call in twenty takes longer than five seconds",
        description: "The dashboard shows which tools, and at which stage the time goes.",
    },
    Alert {
        name: "WardgateRpcErrors",
        severity: "warning",
        lasting: "10m",
        expression: r#"sum by (namespace, rpc_method) (rate(rpc_server_call_duration_seconds_count{rpc_response_status_code=~"UNKNOWN|DEADLINE_EXCEEDED|INTERNAL|UNAVAILABLE|DATA_LOSS"}[10m])) / sum by (namespace, rpc_method) (rate(rpc_server_call_duration_seconds_count{}[10m])) > 0.05"#,
        summary: "{{ $labels.rpc_method }} fails in {{ $value | humanizePercentage }} of its calls",
        description: "The service's log has the causes, with the trace id of each.",
    },
    Alert {
        name: "WardgateReplicaEjected",
        severity: "warning",
        lasting: "5m",
        expression: r#"max by (namespace, neighbour) (wardgate_link_endpoints{state="ejected"}) > 0"#,
        summary: "A replica of the {{ $labels.neighbour }} gets no calls",
        description: "It only failed, so its callers keep away from it. Its log says why; if it does not heal, delete its pod.",
    },
    Alert {
        name: "WardgatePolicyRefused",
        severity: "warning",
        lasting: "5m",
        expression: "max by (namespace) (wardgate_policy_directory_refused{}) == 1",
        summary: "A changed policy set is not in force",
        description: "It has a fault, so the one before stays in force. The policy service's log names file and line.",
    },
    Alert {
        name: "WardgateCatalogueFaulty",
        severity: "warning",
        lasting: "0m",
        expression: r#"sum by (namespace) (increase(wardgate_catalogue_reloads_total{outcome="faulty"}[15m])) > 0"#,
        summary: "A changed tool catalogue is not in force",
        description: "It has a fault, so the one before stays in force. The tool-runner's log names the place.",
    },
    Alert {
        name: "WardgateKeysNotRead",
        severity: "warning",
        lasting: "10m",
        expression: r#"sum by (namespace) (rate(wardgate_key_set_readings_total{outcome="failed"}[10m])) > 0"#,
        summary: "The keys of an issuer of tokens cannot be read",
        description: "Those read before are used until they are too old; then all its tokens are refused. See whether the issuer's key set can be reached.",
    },
    Alert {
        name: "WardgateSourceShutOff",
        severity: "warning",
        lasting: "5m",
        expression: "max by (namespace, source) (wardgate_source_breaker_open{}) == 1",
        summary: "Source {{ $labels.source }} gets no calls",
        description: "It only failed, so calls of its tools are refused until a trial succeeds. See whether it can be reached.",
    },
    Alert {
        name: "WardgateToolsQuarantined",
        severity: "info",
        lasting: "15m",
        expression: "max by (namespace, upstream) (wardgate_quarantined_tools{}) > 0",
        summary: "{{ $value }} tools of {{ $labels.upstream }} are kept out",
        description: "Their definitions are not those that were approved. Read `wardgate tools diff`, and approve them or not.",
    },
    Alert {
        name: "WardgateStoreFailing",
        severity: "warning",
        lasting: "5m",
        expression: "sum by (namespace) (rate(wardgate_gateway_store_failures_total{}[5m])) > 0 or sum by (namespace) (rate(wardgate_tool_runner_store_failures_total{}[5m])) > 0 or sum by (namespace) (rate(wardgate_memory_store_failures_total{}[5m])) > 0",
        summary: "A service cannot use its store",
        description: "The logs of gateway, tool-runner and memory say which, and why.",
    },
    Alert {
        name: "WardgateCertificateEnding",
        severity: "warning",
        lasting: "1h",
        expression: "min by (namespace, pod, end) (wardgate_certificate_expiry_timestamp_seconds{}) - time() < 7 * 86400",
        summary: "The certificate that {{ $labels.pod }} uses ends in {{ $value | humanizeDuration }}",
        description: "It is the one in use, not the one in the file. Renew it; if the file is newer, the pod's log says why it was not taken. When it ends the services refuse each other.",
    },
    Alert {
        name: "WardgateCertificateRefused",
        severity: "warning",
        lasting: "5m",
        expression: r#"sum by (namespace, pod, end) (increase(wardgate_certificate_reloads_total{outcome="refused"}[1h])) > 0 unless sum by (namespace, pod, end) (increase(wardgate_certificate_reloads_total{outcome="swapped"}[10m])) > 0"#,
        summary: "{{ $labels.pod }} does not take its changed certificate",
        description: "Its log says why: the key is of another certificate, or a file holds none. The earlier certificate stays in use until it ends.",
    },
    Alert {
        name: "WardgateOverloaded",
        severity: "warning",
        lasting: "5m",
        expression: "sum by (namespace, service) (rate(wardgate_shed_calls_total{}[5m])) > 0.1",
        summary: "The {{ $labels.service }} turns calls away",
        description: "It is asked for more than it can do. More replicas help if the processor is busy; if not, see on the dashboard what it waits for.",
    },
    Alert {
        name: "WardgateRefusalsFlood",
        severity: "info",
        lasting: "10m",
        expression: "sum by (namespace, reason) (rate(wardgate_refused_requests_total{}[5m])) > 10",
        summary: "{{ $value | humanize }} requests a second are refused: {{ $labels.reason }}",
        description: "A client with a fault, or somebody who tries tokens. The record counts them by address and subject.",
    },
];

/// Returns the expressions of all alerts.
pub(crate) fn expressions() -> Vec<String> {
    let of = |alert: &Alert| alert.expression.to_owned();
    ALERTS.iter().map(of).collect()
}

/// Returns the file of rules.
pub(crate) fn rules() -> String {
    let rules: Vec<_> = ALERTS.iter().map(rule).collect();
    format!(
        "# Made by `make dashboards`.\ngroups:\n  - name: wardgate\n    rules:\n{}",
        rules.concat()
    )
}

/// Returns the page that documents the alerts. Each rule links to it.
pub(crate) fn page() -> String {
    let mut page = String::from(
        "# Alerts\n\nThis page is made by `make dashboards`, from the rules that the Helm chart brings \
         (`metrics.prometheusRule`). With\n`metrics.prometheusRule.runbookUrl` set to its address each alert links to its part.\n",
    );
    for alert in ALERTS {
        page.push_str(&format!(
            "\n## {}\n\n*{}, after {}.* {}\n\n```text\n{}\n```\n",
            alert.name,
            alert.severity,
            alert.lasting,
            alert
                .description
                .replace("{{ $labels.", "`")
                .replace("{{ $value | humanizeDuration }}", "`value`")
                .replace(" }}", "`"),
            alert.expression
        ));
    }
    page
}

fn rule(alert: &Alert) -> String {
    // A JSON string is also a YAML string.
    let quoted = |text: &str| serde_json::Value::from(text).to_string();
    format!(
        "      - alert: {}\n        expr: {}\n        for: {}\n        labels: {{ severity: {} }}\n        annotations:\n          summary: {}\n          description: {}\n          runbook_url: \"RUNBOOK_URL#{}\"\n",
        alert.name,
        quoted(alert.expression),
        alert.lasting,
        alert.severity,
        quoted(alert.summary),
        quoted(alert.description),
        alert.name.to_lowercase(),
    )
}
