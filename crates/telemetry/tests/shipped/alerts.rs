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
        summary: "{{ $labels.job }} is down",
        description: "The metrics of {{ $labels.instance }} could not be scraped for five minutes. Check whether its pod runs, and the network policies.",
    },
    Alert {
        name: "WardgateCallsNotRecorded",
        severity: "critical",
        lasting: "1m",
        expression: r#"sum by (namespace) (rate(wardgate_tool_calls_total{status="not_recorded"}[5m])) > 0"#,
        summary: "Calls are refused because they cannot be recorded",
        description: "The audit service or its store does not accept records, so calls are refused. Check the audit service's log, and that its database is reachable, not full and fast enough.",
    },
    Alert {
        name: "WardgateAuditStoreFailing",
        severity: "critical",
        lasting: "5m",
        expression: "sum by (namespace) (rate(wardgate_audit_store_failures_total{}[5m])) > 0",
        summary: "The audit store refuses writes",
        description: "The log of the audit service has the cause: a full disk, a lost connection or another writer. No tool runs until it is fixed.",
    },
    Alert {
        name: "WardgateAuditCopyFailing",
        severity: "critical",
        lasting: "2m",
        expression: "sum by (namespace) (rate(wardgate_audit_copy_failures_total{}[5m])) > 0",
        summary: "The second copy of the audit log refuses writes",
        description: "Records that are not in both places are not acknowledged, so no tool runs. The log of the audit service has the cause: a full or unmounted disk, an unresponsive file server, or a history that differs from the store's. Fix it, or unset `audit.second_copy_dir` and restart the service to run without it.",
    },
    Alert {
        name: "WardgateAuditStoreFilling",
        severity: "warning",
        lasting: "30m",
        expression: "min by (namespace) (wardgate_audit_store_days_left{}) < 14",
        summary: "The audit store will be full in {{ $value | humanize }} days",
        description: "Estimated from the growth of the last day. No tool runs when it is full. Add space. `audit query` by caller and the summaries of refusals show which callers cause the growth.",
    },
    Alert {
        name: "WardgateAuditSlow",
        severity: "warning",
        lasting: "10m",
        expression: "histogram_quantile(0.99, sum by (namespace, le) (rate(wardgate_audit_batch_duration_seconds_bucket{}[5m]))) > 0.4",
        summary: "Audit records are slow to become durable",
        description: "The 99th percentile of a batch is {{ $value | humanizeDuration }}; above `wardgate_audit_write_limit_seconds`, calls are refused. The disk or the database of the audit log is too slow or too busy.",
    },
    Alert {
        name: "WardgateCheckpointsFailing",
        severity: "critical",
        lasting: "5m",
        expression: "time() - max by (namespace) (wardgate_audit_checkpoint_timestamp_seconds{}) > 60",
        summary: "No signed checkpoint covers the newest records",
        description: "The audit service signs no checkpoints. Its log has the cause: the tree of a large store is still being built (`wardgate_audit_tree_backlog_records` falls), or the store was altered externally; in that case, preserve it unchanged.",
    },
    Alert {
        name: "WardgateQuorumMissing",
        severity: "warning",
        lasting: "5m",
        expression: "time() - max by (namespace) (wardgate_audit_cosigned_timestamp_seconds{}) > 300",
        summary: "The newest checkpoints are not cosigned by the quorum of witnesses",
        description: "`wardgate_audit_witness_failures_total` and the log of the audit service show which witness does not answer or has seen a different history.",
    },
    Alert {
        name: "WardgateAnomaly",
        severity: "warning",
        lasting: "0m",
        expression: "sum by (namespace, kind) (increase(wardgate_audit_anomalies_total{}[15m])) > 0",
        summary: "Unusual behaviour of callers: {{ $labels.kind }}",
        description: "`wardgate audit query --event anomaly` shows the caller, address and count; `audit query --user` shows the caller's calls.",
    },
    Alert {
        name: "WardgateAuditExportLags",
        severity: "warning",
        lasting: "10m",
        expression: "max by (namespace, export) (wardgate_audit_export_lag_seconds{}) > 300",
        summary: "The export {{ $labels.export }} does not deliver audit records",
        description: "The oldest undelivered record is {{ $value | humanizeDuration }} old. `wardgate_audit_export_failures_total` and the log of the audit service have the cause. Calls continue, and no record is lost.",
    },
    Alert {
        name: "WardgateCallsFailing",
        severity: "warning",
        lasting: "10m",
        expression: r#"sum by (namespace) (rate(wardgate_tool_calls_total{status=~"error|timeout|not_recorded|unknown"}[10m])) / sum by (namespace) (rate(wardgate_tool_calls_total{}[10m])) > 0.05"#,
        summary: "{{ $value | humanizePercentage }} of calls fail",
        description: "Refusals are not counted. The dashboard shows the affected tools and the state of their sources.",
    },
    Alert {
        name: "WardgateCallsSlow",
        severity: "warning",
        lasting: "15m",
        expression: "histogram_quantile(0.95, sum by (namespace, le) (rate(wardgate_tool_call_duration_seconds_bucket{}[10m]))) > 5",
        summary: "One call in twenty takes longer than five seconds",
        description: "The dashboard shows the affected tools and the slow stages.",
    },
    Alert {
        name: "WardgateRpcErrors",
        severity: "warning",
        lasting: "10m",
        expression: r#"sum by (namespace, rpc_method) (rate(rpc_server_call_duration_seconds_count{rpc_response_status_code=~"UNKNOWN|DEADLINE_EXCEEDED|INTERNAL|UNAVAILABLE|DATA_LOSS"}[10m])) / sum by (namespace, rpc_method) (rate(rpc_server_call_duration_seconds_count{}[10m])) > 0.05"#,
        summary: "{{ $value | humanizePercentage }} of calls of {{ $labels.rpc_method }} fail",
        description: "The service's log has the causes and trace ids.",
    },
    Alert {
        name: "WardgateReplicaEjected",
        severity: "warning",
        lasting: "5m",
        expression: r#"max by (namespace, neighbour) (wardgate_link_endpoints{state="ejected"}) > 0"#,
        summary: "A replica of the {{ $labels.neighbour }} receives no calls",
        description: "The replica failed repeatedly and was ejected by its callers. Its log has the cause. If it does not recover, delete its pod.",
    },
    Alert {
        name: "WardgatePolicyRefused",
        severity: "warning",
        lasting: "5m",
        expression: "max by (namespace) (wardgate_policy_directory_refused{}) == 1",
        summary: "A changed policy set was rejected",
        description: "The changed set has an error, or a policy bundle was refused or cannot be fetched, so the previous set stays in force. The policy service's log names the reason.",
    },
    Alert {
        name: "WardgateCatalogueFaulty",
        severity: "warning",
        lasting: "0m",
        expression: r#"sum by (namespace) (increase(wardgate_catalogue_reloads_total{outcome="faulty"}[15m])) > 0"#,
        summary: "A changed tool catalogue was rejected",
        description: "The changed catalogue has an error, so the previous one stays in force. The tool-runner's log names the location.",
    },
    Alert {
        name: "WardgateRowsUndecided",
        severity: "warning",
        lasting: "0m",
        // A series begins with its first rows, which `increase` does not see.
        expression: "sum by (namespace, tool) ((wardgate_tool_runner_rows_undecided_total{} unless wardgate_tool_runner_rows_undecided_total{} offset 15m) or increase(wardgate_tool_runner_rows_undecided_total{}[15m])) > 0",
        summary: "The row rule cannot be evaluated for rows of {{ $labels.tool }}",
        description: "The rows are withheld, so callers may miss rows that they should see. The tool-runner's log names the column that is missing or has another type than in the policy schema.",
    },
    Alert {
        name: "WardgateKeysNotRead",
        severity: "warning",
        lasting: "10m",
        expression: r#"sum by (namespace) (rate(wardgate_key_set_readings_total{outcome="failed"}[10m])) > 0"#,
        summary: "The keys of a token issuer cannot be fetched",
        description: "The cached keys are used until they expire; after that, all tokens of the issuer are refused. Check whether the issuer's key set is reachable.",
    },
    Alert {
        name: "WardgateSourceShutOff",
        severity: "warning",
        lasting: "5m",
        expression: "max by (namespace, source) (wardgate_source_breaker_open{}) == 1",
        summary: "The circuit breaker of source {{ $labels.source }} is open",
        description: "The source failed repeatedly, so calls of its tools are refused until a trial call succeeds. Check whether it is reachable.",
    },
    Alert {
        name: "WardgateToolsQuarantined",
        severity: "info",
        lasting: "15m",
        expression: "max by (namespace, upstream) (wardgate_quarantined_tools{}) > 0",
        summary: "{{ $value }} tools of {{ $labels.upstream }} are quarantined",
        description: "Their definitions differ from the approved ones. Review `wardgate tools diff`, then approve or reject them.",
    },
    Alert {
        name: "WardgateStoreFailing",
        severity: "warning",
        lasting: "5m",
        expression: "sum by (namespace) (rate(wardgate_gateway_store_failures_total{}[5m])) > 0 or sum by (namespace) (rate(wardgate_tool_runner_store_failures_total{}[5m])) > 0 or sum by (namespace) (rate(wardgate_memory_store_failures_total{}[5m])) > 0",
        summary: "A service cannot use its store",
        description: "The logs of the gateway, the tool-runner and the memory service have the cause.",
    },
    Alert {
        name: "WardgateCertificateEnding",
        severity: "warning",
        lasting: "1h",
        expression: "min by (namespace, pod, end) (wardgate_certificate_expiry_timestamp_seconds{}) - time() < 7 * 86400",
        summary: "The certificate in use by {{ $labels.pod }} expires in {{ $value | humanizeDuration }}",
        description: "This is the certificate in use, not the one in the file. Renew it; if the file is newer, the pod's log states why it was not loaded. After expiry, services refuse each other's connections.",
    },
    Alert {
        name: "WardgateCertificateRefused",
        severity: "warning",
        lasting: "5m",
        expression: r#"sum by (namespace, pod, end) (increase(wardgate_certificate_reloads_total{outcome="refused"}[1h])) > 0 unless sum by (namespace, pod, end) (increase(wardgate_certificate_reloads_total{outcome="swapped"}[10m])) > 0"#,
        summary: "{{ $labels.pod }} rejected its changed certificate",
        description: "Its log has the cause: the key does not match the certificate, or a file contains none. The previous certificate stays in use until it expires.",
    },
    Alert {
        name: "WardgateSecretOld",
        severity: "info",
        lasting: "1h",
        expression: "time() - min by (namespace, kind, file) (wardgate_secret_file_modified_timestamp_seconds{}) > 365 * 86400",
        summary: "The {{ $labels.kind }} in {{ $labels.file }} is {{ $value | humanizeDuration }} old",
        description: "It has been in use for more than a year. How each key and password is replaced, and which keys stay, is in `deploy/README.md` under *Rotate keys*; silence the alert for a key that stays. Kubernetes writes the files of a Secret anew when a pod starts, so there a secret may be older than this says.",
    },
    Alert {
        name: "WardgateOverloaded",
        severity: "warning",
        lasting: "5m",
        expression: "sum by (namespace, service) (rate(wardgate_shed_calls_total{}[5m])) > 0.1",
        summary: "The {{ $labels.service }} rejects calls due to overload",
        description: "The load exceeds its capacity. If the CPU is busy, add replicas; otherwise the dashboard shows what it waits for.",
    },
    Alert {
        name: "WardgateRefusalsFlood",
        severity: "info",
        lasting: "10m",
        expression: "sum by (namespace, reason) (rate(wardgate_refused_requests_total{}[5m])) > 10",
        summary: "{{ $value | humanize }} requests per second are refused: {{ $labels.reason }}",
        description: "A faulty client, or an attempt to guess tokens. The audit log counts the refusals by address and subject.",
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
        "# Alerts\n\nThis page is generated by `make dashboards` from the rules of the Helm chart \
         (`metrics.prometheusRule`). If\n`metrics.prometheusRule.runbookUrl` is the URL of this page, each alert links to its section.\n",
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
