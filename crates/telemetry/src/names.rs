//! The names of all metrics and fields.

/// Bucket bounds of all histograms in seconds, from a fast local call to the default time limit.
pub const SECONDS_BUCKETS: &[f64] = &[
    0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5,
    5.0, 10.0, 30.0,
];

/// Bucket bounds of durations of language model responses, which may take minutes (OpenTelemetry GenAI conventions).
pub const GENAI_SECONDS_BUCKETS: &[f64] = &[
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92, 163.84,
    327.68,
];
/// Bucket bounds of token histograms (OpenTelemetry GenAI conventions).
pub const GENAI_TOKENS_BUCKETS: &[f64] = &[
    1.0,
    4.0,
    16.0,
    64.0,
    256.0,
    1_024.0,
    4_096.0,
    16_384.0,
    65_536.0,
    262_144.0,
    1_048_576.0,
];

// === fields of spans and log lines ===

/// Trace id of a log line, in lower-case hexadecimal digits.
pub const TRACE_ID: &str = "trace_id";
/// Span id of a log line, in lower-case hexadecimal digits.
pub const SPAN_ID: &str = "span_id";

/// Id of a tool call, which is the same in the audit record and in the response.
pub const CALL_ID: &str = "wardgate.call.id";
/// Subject of the verified caller.
pub const CALLER: &str = "user.id";
/// Canonical name of the tool (OpenTelemetry GenAI conventions).
pub const TOOL: &str = "gen_ai.tool.name";
/// Size in bytes of a message, or of a part of one, that was parsed as JSON. Logged at level trace: a forwarded call is
/// parsed once in each direction.
pub const JSON_READ: &str = "wardgate.json.read";

// === language models and agents: OpenTelemetry GenAI conventions, fields and labels ===

/// `chat`, `execute_tool` or `invoke_agent`.
pub const GENAI_OPERATION: &str = "gen_ai.operation.name";
/// Protocol of the provider, for example `openai`.
pub const GENAI_PROVIDER: &str = "gen_ai.provider.name";
/// Requested model.
pub const GENAI_REQUEST_MODEL: &str = "gen_ai.request.model";
/// Input messages of a model, in traces if contents are enabled.
pub const GENAI_INPUT_MESSAGES: &str = "gen_ai.input.messages";
/// Output messages of a model, in traces if contents are enabled.
pub const GENAI_OUTPUT_MESSAGES: &str = "gen_ai.output.messages";
/// Number of input tokens.
pub const GENAI_INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
/// Number of output tokens.
pub const GENAI_OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
/// `input` or `output`.
pub const GENAI_TOKEN_TYPE: &str = "gen_ai.token.type";
/// Public name of the assistant.
pub const GENAI_AGENT: &str = "gen_ai.agent.name";
/// Id that a model assigned to its tool call.
pub const GENAI_TOOL_CALL: &str = "gen_ai.tool.call.id";
/// Kind of an error, as one of a few words.
pub const ERROR_TYPE: &str = "error.type";

/// Histogram: tokens of one model response, by `gen_ai.token.type`.
pub const GENAI_TOKENS: &str = "gen_ai.client.token.usage";
/// Histogram, seconds: duration of a complete model response; `error.type` if it failed.
pub const GENAI_SECONDS: &str = "gen_ai.client.operation.duration";
/// Histogram, seconds: time until a model response begins.
pub const GENAI_FIRST_CHUNK_SECONDS: &str = "gen_ai.client.operation.time_to_first_chunk";

// === every service behind gRPC: OpenTelemetry's conventions ===

/// Histogram, seconds: duration of admitted calls, by `rpc_method` and `rpc_response_status_code`.
pub const RPC_SERVER_SECONDS: &str = "rpc_server_call_duration_seconds";
/// Label: `package.Service/Method`.
pub const RPC_METHOD: &str = "rpc_method";
/// Label: name of the gRPC code, for example `OK`.
pub const RPC_CODE: &str = "rpc_response_status_code";

// === overload, of every service that takes calls ===

/// Gauge: calls in progress at a `service`.
pub const IN_FLIGHT_CALLS: &str = "wardgate_in_flight_calls";
/// Gauge: current adaptive limit of concurrent calls of a `service`.
pub const CONCURRENCY_LIMIT: &str = "wardgate_concurrency_limit";
/// Gauge, seconds: waiting time of the oldest queued call of a `service`.
pub const QUEUE_AGE_SECONDS: &str = "wardgate_queue_age_seconds";
/// Counter: calls that a `service` rejected due to overload, by `reason`: `queue_full`, `waited_too_long` or `over_share`.
pub const SHED_CALLS: &str = "wardgate_shed_calls_total";

// === gateway ===

/// Counter: MCP requests by `method`; unknown methods count as `other`.
pub const MCP_REQUESTS: &str = "mcp_requests_total";
/// Counter: requests refused before a call began, by `reason`.
pub const REFUSED_REQUESTS: &str = "wardgate_refused_requests_total";
/// Counter: requests to the gateway's OAuth endpoints, by `endpoint` (register, authorize, consent, callback, token or
/// revoke) and `outcome`: ok, or the OAuth `error`.
pub const OAUTH_REQUESTS: &str = "wardgate_oauth_requests_total";

/// Counter: client connections closed by the listener, by `reason`: `idle`, `age`, `no_place`, `control_frames`,
/// `protocol_error` or `connection_rate`.
pub const ENDED_CONNECTIONS: &str = "wardgate_ended_connections_total";
/// Counter: accepted tokens; the label `by` is `signature`, or `cache` if the token was verified before.
pub const TOKENS_ACCEPTED: &str = "wardgate_tokens_accepted_total";
/// Counter: fetches of an issuer's key set, by `outcome`.
pub const KEY_SET_READINGS: &str = "wardgate_key_set_readings_total";
/// Histogram, seconds: time until the response to an MCP request begins, by `method` and `outcome` (answered or refused).
pub const MCP_SECONDS: &str = "mcp_server_operation_duration_seconds";
/// Counter: tool calls by `tool` and `status`. Unknown and hidden tools count as `unknown`,
/// tools beyond the label limit as `other`.
pub const TOOL_CALLS: &str = "wardgate_tool_calls_total";
/// Counter: requests for prompts, resources and completions, by `method` and `status`.
pub const CONTENT_REQUESTS: &str = "wardgate_content_requests_total";
/// Counter: failures of the gateway's store.
pub const GATEWAY_STORE_FAILURES: &str = "wardgate_gateway_store_failures_total";
/// Histogram, seconds: duration of a tool call, by `tool`.
pub const TOOL_CALL_SECONDS: &str = "wardgate_tool_call_duration_seconds";
/// Histogram, seconds: duration of a stage of a tool call, by `stage`.
pub const STAGE_SECONDS: &str = "wardgate_stage_duration_seconds";

// === audit ===

/// Counter: audit records made durable.
pub const AUDIT_RECORDS: &str = "wardgate_audit_records_total";
/// Histogram, seconds: time from the first statement until a batch of records is durable.
pub const AUDIT_BATCH_SECONDS: &str = "wardgate_audit_batch_duration_seconds";
/// Counter: writes that the audit store refused or did not complete in time.
pub const AUDIT_STORE_FAILURES: &str = "wardgate_audit_store_failures_total";
/// Histogram, seconds: time to write and flush a batch of records to the second copy, if `audit.second_copy_dir` is set.
pub const AUDIT_COPY_SECONDS: &str = "wardgate_audit_copy_duration_seconds";
/// Counter: writes that the second copy of the audit log refused or did not complete in time.
pub const AUDIT_COPY_FAILURES: &str = "wardgate_audit_copy_failures_total";
/// Gauge, seconds: time after which a write of the audit store counts as failed, derived from recent writes.
pub const AUDIT_WRITE_LIMIT: &str = "wardgate_audit_write_limit_seconds";
/// Gauge: size of the audit log in its store, in bytes.
pub const AUDIT_STORE_BYTES: &str = "wardgate_audit_store_bytes";
/// Gauge: bytes by which the audit log can still grow, if known: the smallest of the remaining `audit.capacity_bytes` and
/// the free space of the file systems of its file and of the second copy.
pub const AUDIT_STORE_FREE_BYTES: &str = "wardgate_audit_store_free_bytes";
/// Gauge: days until the audit store is full at the rate of the last day, if known; infinite if there were no records.
pub const AUDIT_STORE_DAYS_LEFT: &str = "wardgate_audit_store_days_left";
/// Gauge: records that are not yet in the tree of the transparency log.
pub const AUDIT_TREE_BACKLOG: &str = "wardgate_audit_tree_backlog_records";
/// Gauge, seconds: Unix time at which a signed checkpoint last covered every record.
pub const AUDIT_CHECKPOINT_TIME: &str = "wardgate_audit_checkpoint_timestamp_seconds";
/// Gauge, seconds: Unix time at which the newest checkpoint was last cosigned by the quorum; 0 if never since startup.
pub const AUDIT_COSIGNED_TIME: &str = "wardgate_audit_cosigned_timestamp_seconds";
/// Counter: checkpoints that a `witness` did not cosign.
pub const AUDIT_WITNESS_FAILURES: &str = "wardgate_audit_witness_failures_total";
/// Gauge: records not yet delivered to the security tool of an `export`, reported by the exporting replica.
pub const AUDIT_EXPORT_LAG_RECORDS: &str = "wardgate_audit_export_lag_records";
/// Gauge, seconds: age of the oldest record not yet delivered to the security tool of an `export`. While the audit store cannot be
/// read: at least the time since it was last read.
pub const AUDIT_EXPORT_LAG_SECONDS: &str = "wardgate_audit_export_lag_seconds";
/// Counter: events delivered to the security tool of an `export`.
pub const AUDIT_EXPORT_SENT: &str = "wardgate_audit_export_sent_total";
/// Counter: failures of an `export`, by `reason`: undelivered batches (`unreachable`, `refused`, `file`), events that a
/// collector discarded (`rejected`), records that were altered in the store and are omitted (`damaged`), records that
/// cannot be parsed, whose events contain only their bytes (`unreadable`), and failures of the audit store (`store`).
pub const AUDIT_EXPORT_FAILURES: &str = "wardgate_audit_export_failures_total";
/// Counter: recorded anomalies, by `kind`: `denial_burst`, `many_data_subjects`, `watched_policy` and
/// `watched_policy_at_odd_hours`. Requires `audit.anomalies`.
pub const AUDIT_ANOMALIES: &str = "wardgate_audit_anomalies_total";

// === witness ===

/// Counter: checkpoints submitted to this witness, by `outcome`: `cosigned`, `malformed`, `unknown_log`, `not_signed`,
/// `conflict`, `inconsistent`, `not_stored`.
pub const WITNESS_SUBMISSIONS: &str = "wardgate_witness_submissions_total";

// === policy ===

/// Counter: policy decisions by `effect` (`allow`, `deny`, `needs_approval`, `needs_intent`) and, for denials, `reason`.
pub const POLICY_DECISIONS: &str = "wardgate_policy_decisions_total";
/// Counter: lookups of callers by `policy.caller_lookup`, by `outcome`: `found`, `unlisted` (the subject is not in the
/// table or query) or `failed` (the call is refused).
pub const CALLER_LOOKUPS: &str = "wardgate_caller_lookups_total";
/// Histogram, seconds: duration of a policy decision, by `effect`.
pub const POLICY_DECISION_SECONDS: &str = "wardgate_policy_decision_duration_seconds";
/// Counter: reloads of policies, by `outcome`: `swapped`, or `refused` if the changed directory is invalid.
pub const POLICY_RELOADS: &str = "wardgate_policy_reloads_total";
/// Gauge: 1 while the policy directory contains an invalid policy set, or the source of bundles offers a refused bundle or is
/// unreachable, otherwise 0.
pub const POLICY_STALE: &str = "wardgate_policy_directory_refused";
/// Counter: policy bundles that were refused, each counted once, by `reason`: `signature`, `damaged`, `too_large`, `older`,
/// `version_reused`, `policies`, `tests`, `state` (its version cannot be stored) or `unreachable`.
pub const POLICY_BUNDLE_REFUSALS: &str = "wardgate_policy_bundle_refusals_total";
/// Gauge: version of the policy bundle in force.
pub const POLICY_BUNDLE_VERSION: &str = "wardgate_policy_bundle_version";
/// Counter: decisions compared with the candidate policy set, by `outcome`: `equal`, `skipped` if the queue was full, or
/// the difference, such as `allowed_to_denied`, `row_rule` or `column_tiers`.
pub const POLICY_SHADOW_DECISIONS: &str = "wardgate_policy_shadow_decisions_total";
/// Gauge: 1 while a candidate policy set is evaluated, 0 while the one in `policy.shadow` is invalid.
pub const POLICY_SHADOW: &str = "wardgate_policy_shadow_in_force";

// === tool-runner ===

/// Counter: calls refused before the tool ran, by `reason`.
pub const CALLS_REFUSED: &str = "wardgate_tool_runner_refused_calls_total";
/// Counter: rows of a `tool` that were withheld because the row rule cannot be evaluated for them. Its statement or its
/// `result` does not fit the policy schema, or a policy fails.
pub const ROWS_UNDECIDED: &str = "wardgate_tool_runner_rows_undecided_total";
/// Counter: reloads of the tool catalogue, by `outcome`: loaded or faulty.
pub const CATALOGUE_RELOADS: &str = "wardgate_catalogue_reloads_total";
/// Counter: failures of the tool-runner's store.
pub const STORE_FAILURES: &str = "wardgate_tool_runner_store_failures_total";
/// Gauge: tools of an `upstream` that are quarantined because their current definition is not approved.
pub const QUARANTINED_TOOLS: &str = "wardgate_quarantined_tools";
/// Counter: statements cancelled before completion, due to a time limit, a full result or a client disconnect.
pub const STOPPED_STATEMENTS: &str = "wardgate_stopped_statements_total";
/// Histogram, seconds: duration of an attempt on a `source`, by `outcome`: ok, failed (the source answered with an error),
/// busy, down or timeout.
pub const SOURCE_SECONDS: &str = "wardgate_source_request_duration_seconds";
/// Gauge: 1 while the circuit breaker of a `source` is open, otherwise 0.
pub const BREAKER_OPEN: &str = "wardgate_source_breaker_open";
/// Counter: times the circuit breaker of a `source` opened after consecutive failures.
pub const BREAKER_OPENED: &str = "wardgate_source_breaker_opened_total";
/// Counter: retryable failures of a `source`, by `outcome`: made (retried) or `over_budget`.
pub const RETRIES: &str = "wardgate_source_retries_total";
/// Counter: calls refused by a tool's limits, by `tool` and `limit`: rate or concurrency.
pub const LIMITED_CALLS: &str = "wardgate_limited_calls_total";
/// Counter: requests refused because a `quota` of the gateway was exhausted.
pub const QUOTA_REFUSALS: &str = "wardgate_quota_refusals_total";
/// Counter: calls of tools with cached results, by `outcome`: hit or miss.
pub const RESULT_CACHE: &str = "wardgate_result_cache_lookups_total";

// === memory ===

/// Counter: requests to the memory service, by `method` and `outcome`: done, refused or failed.
pub const MEMORY_REQUESTS: &str = "wardgate_memory_requests_total";
/// Histogram, seconds: duration of a request, by `method`.
pub const MEMORY_REQUEST_SECONDS: &str = "wardgate_memory_request_duration_seconds";
/// Counter: messages stored.
pub const MESSAGES_ADDED: &str = "wardgate_memory_messages_added_total";
/// Counter: messages whose text was withheld from a reader.
pub const MESSAGES_WITHHELD: &str = "wardgate_memory_messages_withheld_total";
/// Counter: erased conversations; the label `by` is the owner, an operator or retention.
pub const CONVERSATIONS_ERASED: &str = "wardgate_memory_conversations_erased_total";
/// Counter: failures of the memory store.
pub const MEMORY_STORE_FAILURES: &str = "wardgate_memory_store_failures_total";

// === agent ===

/// Counter: turns by `finish`, the reason in the last event of the stream.
pub const AGENT_TURNS: &str = "wardgate_agent_turns_total";
/// Counter: tool calls of models that were refused, by `reason`: `not_available`, `in_data`, unreadable, arguments,
/// repeated, declined or `approval_changed`.
pub const AGENT_REFUSED_CALLS: &str = "wardgate_agent_refused_calls_total";
/// Counter: reloads of the assistants' files, by `outcome`: swapped or refused.
pub const AGENT_RELOADS: &str = "wardgate_assistant_reloads_total";

// === console ===

/// Counter: console pages served, by `page` and HTTP `status`.
pub const CONSOLE_PAGES: &str = "wardgate_console_pages_total";

// === keys and secrets ===

/// Gauge: when the `file` whose secret is in use was last modified, in seconds since 1970, by `kind`: `key` (of a service),
/// `password` (of a store) or `credential` (of a source, a model provider, an identity provider or an export). The time is that
/// of the secret in use: a file that was replaced counts once it is read. NaN: no service of the process uses the file any more.
pub const SECRET_FILE_MODIFIED: &str = "wardgate_secret_file_modified_timestamp_seconds";

// === links between services ===

/// Gauge: Unix time at which the certificate in use at an `end` was issued; `end` is `grpc_server`, `grpc_client` or
/// `http_server`.
pub const CERTIFICATE_ISSUED: &str = "wardgate_certificate_issued_timestamp_seconds";
/// Gauge: Unix time at which the certificate in use at an `end` expires.
pub const CERTIFICATE_ENDS: &str = "wardgate_certificate_expiry_timestamp_seconds";
/// Counter: reloads of the certificate files at an `end`, by `outcome`: swapped or refused.
pub const CERTIFICATE_RELOADS: &str = "wardgate_certificate_reloads_total";
/// Gauge: replicas of a `neighbour` service, by `state`: ready, ejected, unready or connecting.
pub const LINK_ENDPOINTS: &str = "wardgate_link_endpoints";
/// Counter: retryable failed calls of a `neighbour`, by `outcome`: unsent (not received by a server, retried), `silent` (no
/// answer within half of its time, retried), made (retried), `over_budget` or `pushed_back`.
pub const LINK_RETRIES: &str = "wardgate_link_retries_total";
