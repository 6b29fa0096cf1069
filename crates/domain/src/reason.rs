//! The reasons for which requests and calls are refused or fail, in one table from which the reference documentation is
//! generated.

use wardgate_json::ScanError;

use crate::Status;

/// The name of a reason in responses, records and metrics. All reasons are defined in this file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reason(&'static str);

/// The response or record that accompanies a reason.
#[derive(Debug, Clone, Copy)]
pub enum ReasonOutcome {
    /// The response has one of these HTTP statuses.
    Http(&'static [u16]),
    /// The error is sent in a stream that had already begun.
    InStream,
    /// The record has one of these statuses.
    Recorded(&'static [Status]),
    /// The outcome is described only in the text of the explanation.
    Unstated,
}

/// The explanation of one or more reasons, in Markdown.
#[derive(Debug)]
pub struct Explanation {
    /// The reasons that are explained.
    pub reasons: &'static [Reason],
    /// The outcome that all of these reasons have.
    pub outcome: ReasonOutcome,
    /// What happened; empty if the remedy makes it clear.
    pub meaning: &'static str,
    /// What to do about it; empty if there is nothing to add.
    pub remedy: &'static str,
}

/// A group of related explanations.
#[derive(Debug)]
pub struct ReasonGroup {
    /// The heading of the group.
    pub title: &'static str,
    /// The explanations of the group.
    pub explanations: &'static [Explanation],
}

impl Reason {
    /// The reasons for the denial of a call that waits for an approval, or whose approver refused it.
    pub const OF_APPROVERS: [Self; 2] = [Self::APPROVAL_REQUIRED, Self::APPROVAL_REFUSED];

    /// Returns the reason with this name, or `None` if there is no such reason.
    pub fn of_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|it| it.as_str() == word)
    }

    /// Returns the name of the reason.
    pub fn as_str(self) -> &'static str {
        self.0
    }

    /// Returns the HTTP statuses of responses to requests that are refused for this reason.
    pub fn http_statuses(self) -> impl Iterator<Item = u16> {
        let statuses = self.outcomes().filter_map(|outcome| match outcome {
            ReasonOutcome::Http(statuses) => Some(statuses),
            ReasonOutcome::InStream | ReasonOutcome::Recorded(_) | ReasonOutcome::Unstated => None,
        });
        statuses.flatten().copied()
    }

    /// Returns whether the reason indicates an access violation: a request for something that the caller may not have,
    /// or a token or key that is not accepted. A call of a tool that needs an approval is not a violation, whatever the
    /// approver decides.
    pub fn is_violation(self) -> bool {
        let is_refusal = |outcome| match outcome {
            ReasonOutcome::Http(statuses) => statuses.iter().any(|it| matches!(it, 401 | 403)),
            ReasonOutcome::Recorded(statuses) => statuses.contains(&Status::Denied),
            ReasonOutcome::InStream | ReasonOutcome::Unstated => false,
        };
        !Self::OF_APPROVERS.contains(&self) && self.outcomes().any(is_refusal)
    }

    /// Returns the outcomes of all explanations of this reason.
    fn outcomes(self) -> impl Iterator<Item = ReasonOutcome> {
        let explanations = REASON_GROUPS.iter().flat_map(|group| group.explanations);
        let own = explanations.filter(move |it| it.reasons.contains(&self));
        own.map(|it| it.outcome)
    }
}

impl From<ScanError> for Reason {
    fn from(error: ScanError) -> Self {
        match error {
            ScanError::NotUtf8 => Self::NOT_UTF8,
            ScanError::Syntax(_) => Self::MALFORMED_JSON,
            ScanError::TooDeep(_) => Self::TOO_DEEP,
            ScanError::DuplicateKey(_) => Self::DUPLICATE_KEY,
            ScanError::Nul(_) => Self::NUL_CHARACTER,
            ScanError::LoneSurrogate(_) => Self::LONE_SURROGATE,
            ScanError::ReservedKey(_) => Self::RESERVED_KEY,
        }
    }
}

macro_rules! reasons {
    ($($name:ident = $word:literal;)+) => {
        impl Reason {
            $(
                #[doc = concat!("`", $word, "`: [`REASON_GROUPS`] explains it.")]
                pub const $name: Self = Self($word);
            )+

            /// All reasons.
            pub const ALL: &[Self] = &[$(Self::$name),+];
        }
    };
}

reasons! {
    TOKEN_MISSING = "token_missing";
    SCHEME_REFUSED = "scheme_refused";
    AUTHORIZATION_REPEATED = "authorization_repeated";
    AUTHORIZATION_MALFORMED = "authorization_malformed";
    TOKEN_EXPIRED = "token_expired";
    TOKEN_NOT_YET_VALID = "token_not_yet_valid";
    ISSUER_REFUSED = "issuer_refused";
    AUDIENCE_REFUSED = "audience_refused";
    KEY_UNKNOWN = "key_unknown";
    SIGNATURE_INVALID = "signature_invalid";
    ALGORITHM_REFUSED = "algorithm_refused";
    TYPE_REFUSED = "type_refused";
    CLAIM_MISSING = "claim_missing";
    CLAIM_INVALID = "claim_invalid";
    TOKEN_MALFORMED = "token_malformed";
    TOKEN_TOO_LONG = "token_too_long";
    HEADER_PARAMETER_REFUSED = "header_parameter_refused";
    KEYS_UNAVAILABLE = "keys_unavailable";
    API_KEY_UNKNOWN = "api_key_unknown";
    TOKEN_INACTIVE = "token_inactive";
    INTROSPECTION_UNAVAILABLE = "introspection_unavailable";
    TOKEN_REVOKED = "token_revoked";
    REVOCATIONS_UNKNOWN = "revocations_unknown";
    RIGHTS_UNAVAILABLE = "rights_unavailable";
    CALLER_UNLISTED = "caller_unlisted";
    TOKEN_REFUSED = "token_refused";
    INSUFFICIENT_SCOPE = "insufficient_scope";
    ORIGIN_REFUSED = "origin_refused";
    METHOD_NOT_ALLOWED = "method_not_allowed";
    UNSUPPORTED_MEDIA_TYPE = "unsupported_media_type";
    NOT_ACCEPTABLE = "not_acceptable";
    TOO_LARGE = "too_large";
    BODY_TIMEOUT = "body_timeout";
    INCOMPLETE_BODY = "incomplete_body";
    NOT_UTF8 = "not_utf8";
    MALFORMED_JSON = "malformed_json";
    DUPLICATE_KEY = "duplicate_key";
    TOO_DEEP = "too_deep";
    NUL_CHARACTER = "nul_character";
    LONE_SURROGATE = "lone_surrogate";
    RESERVED_KEY = "reserved_key";
    INVALID_REQUEST = "invalid_request";
    INVALID_PARAMS = "invalid_params";
    INVALID_META = "invalid_meta";
    HEADER_MISMATCH = "header_mismatch";
    UNSUPPORTED_VERSION = "unsupported_version";
    MISSING_CAPABILITY = "missing_capability";
    UNKNOWN_METHOD = "unknown_method";
    NOT_FOUND = "not_found";
    UNKNOWN_SESSION = "unknown_session";
    UNKNOWN_EVENT = "unknown_event";
    UNKNOWN_STATE = "unknown_state";
    UNKNOWN_UPSTREAM = "unknown_upstream";
    UNKNOWN_STREAM = "unknown_stream";
    STREAM_UNREACHABLE = "stream_unreachable";
    TOO_MANY_STREAMS = "too_many_streams";
    TOO_MANY_MESSAGES = "too_many_messages";
    TOO_MANY_SUBSCRIPTIONS = "too_many_subscriptions";
    NOT_WATCHED = "not_watched";
    GATEWAY_GONE = "gateway_gone";
    STREAM_NOT_KEPT = "stream_not_kept";
    STORE_UNAVAILABLE = "store_unavailable";
    POLICY_UNAVAILABLE = "policy_unavailable";
    SEALING_FAILED = "sealing_failed";
    RATE_LIMITED = "rate_limited";
    OVER_SHARE = "over_share";
    OVERLOADED = "overloaded";
    NOT_PERMITTED = "not_permitted";
    FORBIDDEN = "forbidden";
    POLICY_ERROR = "policy_error";
    HISTORY_UNAVAILABLE = "history_unavailable";
    APPROVAL_REQUIRED = "approval_required";
    APPROVAL_REFUSED = "approval_refused";
    UNKNOWN_APPROVAL = "unknown_approval";
    APPROVER_REFUSED = "approver_refused";
    DISABLED = "disabled";
    UNKNOWN_TOOL = "unknown_tool";
    UNKNOWN = "unknown";
    UNKNOWN_PROMPT = "unknown_prompt";
    UNKNOWN_RESOURCE = "unknown_resource";
    UNKNOWN_TASK = "unknown_task";
    NOT_AVAILABLE = "not_available";
    IN_DATA = "in_data";
    REPEATED = "repeated";
    DECLINED = "declined";
    APPROVAL_CHANGED = "approval_changed";
    UNREADABLE = "unreadable";
    ARGUMENTS = "arguments";
    REFUSED_BY_AGENT = "refused_by_agent";
    CATALOGUE_UNAVAILABLE = "catalogue_unavailable";
    PERMIT_REFUSED = "permit_refused";
    NOT_DURABLE = "not_durable";
    TOOL_RUNNER_UNAVAILABLE = "tool_runner_unavailable";
    TIMEOUT = "timeout";
    CANCELLED = "cancelled";
    PANIC = "panic";
    INVALID_ARGUMENTS = "invalid_arguments";
    NO_ROWS = "no_rows";
    BUSY = "busy";
    SOURCE_UNAVAILABLE = "source_unavailable";
    NOT_CONNECTED = "not_connected";
    NO_CREDENTIALS = "no_credentials";
    EGRESS_REFUSED = "egress_refused";
    UPSTREAM_UNAUTHORIZED = "upstream_unauthorized";
    HTTP_STATUS = "http_status";
    GRPC_STATUS = "grpc_status";
    BAD_DESCRIPTORS = "bad_descriptors";
    SQL_ERROR = "sql_error";
    COMMAND_FAILED = "command_failed";
    TOOL_ERROR = "tool_error";
    SOURCE_FAILED = "source_failed";
    TOOL_CHANGED = "tool_changed";
    ROW_RULE_TOO_LATE = "row_rule_too_late";
    BAD_RESULT = "bad_result";
    RESULT_TOO_LARGE = "result_too_large";
    INPUT_REQUIRED = "input_required";
    NEEDS_ELICITATION = "needs_elicitation";
    NEEDS_SAMPLING = "needs_sampling";
    NEEDS_ROOTS = "needs_roots";
    NEEDS_CAPABILITY = "needs_capability";
    NEEDS_TASKS = "needs_tasks";
    CLIENT_CANNOT_BE_ASKED = "client_cannot_be_asked";
    CLIENT_DID_NOT_ANSWER = "client_did_not_answer";
    CLIENT_REFUSED = "client_refused";
    NOT_WAITING = "not_waiting";
    BAD_INPUT_REQUESTS = "bad_input_requests";
    TOO_MANY_ROUNDS = "too_many_rounds";
    HANDED_OVER = "handed_over";
    GATEWAY_STOPPING = "gateway_stopping";
    TASK = "task";
    TASK_WORKING = "task_working";
    TASK_INPUT_REQUIRED = "task_input_required";
    TASK_CANCELLED = "task_cancelled";
    TASK_FAILED = "task_failed";
    IDEMPOTENCY_CONFLICT = "idempotency_conflict";
    IDEMPOTENCY_RUNNING = "idempotency_running";
    IDEMPOTENCY_DONE = "idempotency_done";
    IDEMPOTENCY_UNKNOWN = "idempotency_unknown";
    UNKNOWN_CONVERSATION = "unknown_conversation";
    CONFLICT = "conflict";
    HELD = "held";
    DENIED = "denied";
    HIDDEN = "hidden";
    MEMORY_UNAVAILABLE = "memory_unavailable";
}

macro_rules! groups {
    ($($title:literal {
        $([$($reason:ident),+] $outcome:ident $(($($value:tt)+))? $meaning:literal $remedy:literal;)+
    })+) => {
        &[$(ReasonGroup {
            title: $title,
            explanations: &[$(Explanation {
                reasons: &[$(Reason::$reason),+],
                outcome: ReasonOutcome::$outcome $((&[$($value)+]))?,
                meaning: $meaning,
                remedy: $remedy,
            }),+],
        }),+]
    };
}

/// The explanations of all reasons.
pub const REASON_GROUPS: &[ReasonGroup] = groups! {
    "Authentication and access" {
        [TOKEN_MISSING] Http(401) "" "send `Authorization: Bearer TOKEN`; `WWW-Authenticate` names where to get a token";
        [SCHEME_REFUSED] Http(401) "" "use the scheme Bearer";
        [AUTHORIZATION_REPEATED, AUTHORIZATION_MALFORMED] Http(400) "" "send one well-formed `Authorization` header";
        [TOKEN_EXPIRED, TOKEN_NOT_YET_VALID] Http(401) "" "get a new token; check the clocks";
        [ISSUER_REFUSED] Http(401) "" "the token's `iss` must exactly match one of `gateway.auth.issuers`";
        [AUDIENCE_REFUSED] Http(401) "" "request a token for this [path](../connect-a-client.md#tokens) (`resource`), or for the issuer's `audience`";
        [KEY_UNKNOWN, SIGNATURE_INVALID, ALGORITHM_REFUSED] Http(401) "" "the token is not signed by a current key of its issuer: get a new token";
        [TYPE_REFUSED] Http(401) "" "send an access token, not an identity token";
        [CLAIM_MISSING, CLAIM_INVALID] Http(401) "" "the message names the claim";
        [TOKEN_MALFORMED, TOKEN_TOO_LONG, HEADER_PARAMETER_REFUSED] Http(401) "" "send a signed JWT of at most 16 KiB, without keys in its header";
        [KEYS_UNAVAILABLE] Http(503) "" "the issuer's keys cannot be fetched: try again; operators check `jwks`";
        [API_KEY_UNKNOWN] Http(401) "" "the API key was revoked, or belongs to another system: get another key";
        [TOKEN_INACTIVE] Http(401) "" "the issuer reports that the token has expired or was revoked: get a new token";
        [INTROSPECTION_UNAVAILABLE] Http(503) "" "token introspection at the issuer failed: try again; operators check `introspection`";
        [TOKEN_REVOKED] Http(401) "" "an operator [revoked](../operate.md#revoke-access) the token, its subject or its session";
        [REVOCATIONS_UNKNOWN] Http(503) "" "the gateway has not loaded the revocations yet: try again; operators check `gateway.store`";
        [RIGHTS_UNAVAILABLE] Http(503) "" "the [lookup](../write-a-policy.md#roles-from-a-table-or-a-query) of the caller's roles failed: try again; operators check `policy.caller_lookup`";
        [CALLER_UNLISTED] Http(403) "" "the subject is not in the table or query of `policy.caller_lookup`: ask an operator";
        [TOKEN_REFUSED] Http(401) "" "the policy service does not accept the token (any more): get a new token";
        [INSUFFICIENT_SCOPE] Http(403) "" "get a token with the scopes in `WWW-Authenticate`";
        [ORIGIN_REFUSED] Http(403) "" "operators add the host to `gateway.allowed_hosts` or the origin to `gateway.allowed_origins`";
    }
    "The request itself" {
        [METHOD_NOT_ALLOWED] Http(405) "" "use a method in `Allow`";
        [UNSUPPORTED_MEDIA_TYPE] Http(415) "" "send `Content-Type: application/json`";
        [NOT_ACCEPTABLE] Http(406) "" "send `Accept: application/json, text/event-stream`";
        [TOO_LARGE] Http(413) "" "send a smaller body; the limit is `gateway.limits.body_bytes`";
        [BODY_TIMEOUT] Http(408) "" "send the body faster; the limit is `gateway.limits.body_seconds`";
        [INCOMPLETE_BODY] Http(400) "" "send the complete body";
        [NOT_UTF8, MALFORMED_JSON, DUPLICATE_KEY, TOO_DEEP, NUL_CHARACTER, LONE_SURROGATE, RESERVED_KEY] Http(400) "" "the message names the byte position";
        [INVALID_REQUEST] Http(400) "" "the body is not a JSON-RPC request or is a batch in a version without batches, or there is no session to end";
        [INVALID_PARAMS] Http(200) "" "the message names the parameter";
        [INVALID_META] Http(400) "" "`_meta` lacks the version or the capabilities, or has an invalid value";
        [HEADER_MISMATCH, UNSUPPORTED_VERSION, MISSING_CAPABILITY] Http(400) "" "see the codes above";
        [UNKNOWN_METHOD] Http(404, 200) "" "the method does not exist; 404 from 2026-07-28";
        [UNKNOWN_APPROVAL] Http(200) "" "no call with this id waits for the user's approval: it was decided or used, has expired, or has other approvers";
        [NOT_FOUND] Http(404) "" "the path does not exist";
    }
    "Sessions and streams" {
        [UNKNOWN_SESSION] Http(404) "" "initialize again without `Mcp-Session-Id`: the session ended, or belongs to another caller or path";
        [UNKNOWN_EVENT] Http(400) "" "listen without `Last-Event-ID`: the event belongs to no answer that is available to this caller";
        [UNKNOWN_STATE] Http(200) "" "start again without `requestState`: it was used, has expired, or belongs to another request";
        [UNKNOWN_UPSTREAM] Http(404) "" "the route does not exist, or not for this caller (right `connect`)";
        [UNKNOWN_STREAM] Http(404) "" "open a stream by `GET /sse`; operators of several gateways set `gateway.advertise`";
        [STREAM_UNREACHABLE] Http(502) "" "the gateway of the stream is unreachable: open another stream";
        [TOO_MANY_STREAMS] Http(429) "" "close streams; the limits are 32 per subject and `gateway.limits.streams` in total";
        [TOO_MANY_MESSAGES] Http(429) "" "wait for answers; the limit is 32 pending messages per SSE stream";
        [TOO_MANY_SUBSCRIPTIONS, NOT_WATCHED] Http(200) "" "cancel some subscriptions; the resource cannot be watched for this caller";
        [GATEWAY_GONE, STREAM_NOT_KEPT] InStream "" "the call may have run: check before you repeat it";
        [STORE_UNAVAILABLE] Http(503, 200) "" "the gateway's store is unreachable: try again; operators check `gateway.store`. Calls get 200";
        [POLICY_UNAVAILABLE] Http(503, 200) "" "the policy service cannot decide what the caller may receive: try again. Calls get 200";
        [SEALING_FAILED] Http(200) "" "the gateway cannot create a stream id: report it with the log";
    }
    "Too much to do" {
        [RATE_LIMITED] Http(429) "" "wait for `Retry-After`; the limit is `gateway.limits.requests_per_minute` or `quotas`, or the tool's `limits.per_caller`";
        [OVER_SHARE] Http(429) "" "wait: this caller has more than its share of requests in flight";
        [OVERLOADED] Http(503) "" "wait for `Retry-After`; operators add replicas, or find the slow component";
    }
    "Decided before anything ran" {
        [NOT_PERMITTED] Recorded(Status::Denied) "" "no policy permits the call: add one if it should be allowed";
        [FORBIDDEN] Recorded(Status::Denied) "" "a policy forbids the call";
        [POLICY_ERROR] Recorded(Status::Denied) "" "a policy failed to evaluate, which never allows a call: test it with `wardgate policy explain`";
        [HISTORY_UNAVAILABLE] Recorded(Status::Denied) "" "a policy refers to [earlier calls](../write-a-policy.md#earlier-calls), which could not be counted: the policy service's log has the cause";
        [APPROVAL_REQUIRED] Recorded(Status::Denied) "" "a policy requires an [approval](../write-a-policy.md#approvals): `data.approval` has the id and the expiry of the request. Repeat the call with the same arguments after the approval. Not a violation";
        [APPROVAL_REFUSED] Recorded(Status::Denied) "" "an approver refused the call. Not a violation";
        [APPROVER_REFUSED] Recorded(Status::Denied) "" "a user tried to decide on a call that they may not approve: it is their own and requires another user, they lack the role, or the current policies allow nobody to approve it";
        [DISABLED] Recorded(Status::Denied) "" "a switch disables it for this caller: see `wardgate tools switches`";
        [INSUFFICIENT_SCOPE] Recorded(Status::Denied) "" "the token lacks a scope";
        [TOKEN_REFUSED] Recorded(Status::Denied) "" "the policy service does not accept the token any more";
        [UNKNOWN_TOOL] Recorded(Status::UnknownTool) "" "the tool does not exist";
        [UNKNOWN, UNKNOWN_PROMPT, UNKNOWN_RESOURCE] Recorded(Status::UnknownTool) "" "the prompt or resource does not exist; records have `unknown`, clients receive the other two";
        [UNKNOWN_TASK] Recorded(Status::UnknownTool) "" "the task does not exist for this caller";
        [HEADER_MISMATCH] Recorded(Status::InvalidArguments) "" "a header `Mcp-Param-…` differs from the argument";
        [UNKNOWN_STATE] Recorded(Status::InvalidArguments) "" "a `requestState` was used before";
        [NOT_AVAILABLE, IN_DATA, REPEATED, DECLINED, APPROVAL_CHANGED] Recorded(Status::Denied) "" "the [agent](../chat-with-an-assistant.md) refused a call of its model";
        [UNREADABLE, ARGUMENTS] Recorded(Status::InvalidArguments) "" "the agent refused a malformed call of its model";
        [REFUSED_BY_AGENT] Unstated "" "clients receive this reason for all refusals of the agent";
        [MISSING_CAPABILITY] Recorded(Status::Error) "" "the client did not declare a capability that the tool or its question requires";
        [CATALOGUE_UNAVAILABLE] Recorded(Status::Error) "" "the gateway has not received the catalogue from the tool-runner yet: try again";
        [POLICY_UNAVAILABLE] Recorded(Status::Error) "" "the policy service did not decide: try again";
        [OVERLOADED] Recorded(Status::Error) "" "a service behind the gateway rejected the call due to overload: try again";
        [PERMIT_REFUSED] Recorded(Status::Error) "" "the tool-runner refused the permit twice, for example while keys or definitions change: try again";
    }
    "Platform" {
        [NOT_DURABLE] Unstated "" "the call could not be recorded, so nothing was released: try again; for a tool that may write, check first. Only clients receive this reason, without a receipt";
        [TOOL_RUNNER_UNAVAILABLE] Recorded(Status::Error, Status::Unknown) "" "the tool-runner did not answer. With status `unknown` (clients receive the reason `unknown`), the tool may have run: check before you repeat the call";
        [TIMEOUT] Recorded(Status::Timeout) "" "request less, or raise the tool's `time_limit`; a write may have happened";
        [CANCELLED] Recorded(Status::Cancelled) "" "the client cancelled the call or disconnected";
        [STORE_UNAVAILABLE] Recorded(Status::Error) "" "the id of a task or a state cannot be stored: try again";
        [PANIC] Recorded(Status::Error) "" "a bug in Wardgate: report it with the log";
    }
    "A tool and its source" {
        [INVALID_ARGUMENTS] Unstated "the arguments do not match the schema, or a value is not valid for the target" "the text names the argument";
        [NO_ROWS] Unstated "the result has no rows: `empty.error` of the tool" "check the arguments and the row rule";
        [RATE_LIMITED, BUSY] Unstated "the limit `limits.per_caller` or `limits.concurrency` is reached" "wait. `rate_limited` is HTTP 429 and -32603";
        [TIMEOUT] Unstated "the time limit of the call, the source's `timeout`, or a limit in the source has passed; the text names it" "";
        [SOURCE_UNAVAILABLE] Unstated "the source is unreachable or busy, closed the connection, or its circuit breaker is open" "try again; operators check the source";
        [NOT_CONNECTED] Unstated "the caller has not authorized the source to act in their name" "follow the link; [Let a source act in its callers' name](../connect-an-mcp-server.md#let-a-source-act-in-its-callers-name)";
        [NO_CREDENTIALS] Unstated "no token was granted, or the caller's token is not available" "operators check `auth` of the source";
        [EGRESS_REFUSED] Unstated "the URL or a redirect leads to an address that the source may not use" "operators check `hosts` and `private`";
        [UPSTREAM_UNAUTHORIZED] Unstated "the MCP server refuses Wardgate's credentials" "operators check `auth`";
        [HTTP_STATUS, GRPC_STATUS] Unstated "the service answered with an error status" "the text names it; `result.error` can release the service's message";
        [UNKNOWN_METHOD] Unstated "the gRPC service has no such method" "operators check `method`";
        [BAD_DESCRIPTORS] Unstated "the gRPC service does not describe its methods" "operators check `descriptors` of the source";
        [SQL_ERROR] Unstated "the database refused the statement" "the log has its message, unless it quotes values";
        [COMMAND_FAILED] Unstated "the program exited with a code other than 0" "its standard error is in the log if `telemetry.log` names `wardgate::standard_error`";
        [TOOL_ERROR] Unstated "the source reported an error; its message is shown if the class `error` is shown" "";
        [SOURCE_FAILED] Unstated "the source of a prompt or a resource failed" "the record has the source's reason";
        [TOOL_CHANGED] Unstated "the MCP server changed the tool after its approval: nothing was sent" "`wardgate tools diff`, then `approve`";
        [ROW_RULE_TOO_LATE] Unstated "the statement combines rows or the tool has `require_pushdown`, and the database does not apply the whole row rule: nothing was run" "operators write `:row_rule` in WHERE, and rules that can be written as SQL; [Row rules](../connect-a-database.md#row-rules)";
        [BAD_RESULT] Unstated "the result cannot be parsed, or does not match the configuration" "operators compare `result` with the source's response";
        [RESULT_TOO_LARGE] Unstated "the result exceeds `max_response_bytes` or `tool_runner.max_result_bytes`" "request less";
    }
    "Calls that ask their client" {
        [INPUT_REQUIRED] Recorded(Status::Ok, Status::Error) "`ok`: the client was asked. `error`: the server's request cannot be forwarded, or the client may not be asked" "";
        [NEEDS_ELICITATION, NEEDS_SAMPLING, NEEDS_ROOTS, NEEDS_CAPABILITY] Recorded(Status::Error) "the server requires a client that can be asked, and this client cannot or may not be asked" "";
        [NEEDS_TASKS] Recorded(Status::Error) "the tool runs only as a task: call it with 2026-07-28, declare `io.modelcontextprotocol/tasks`, send no idempotency key" "";
        [CLIENT_CANNOT_BE_ASKED] Recorded(Status::Error) "there is no stream to ask the client on: use a session of `/mcp`" "";
        [CLIENT_DID_NOT_ANSWER, CLIENT_REFUSED] Recorded(Status::Error) "the client did not answer within ten minutes; the client answered with an error" "";
        [DECLINED] Recorded(Status::Error) "the user declined to visit the page that the tool requires" "";
        [NOT_WAITING] Recorded(Status::Error) "the answer came too late or twice: the call may have run in part, so check before you repeat it" "";
        [BAD_INPUT_REQUESTS, TOO_MANY_ROUNDS] Recorded(Status::Error) "the server's request cannot be forwarded; the server asked more than eight times" "";
        [HANDED_OVER, GATEWAY_STOPPING] Recorded(Status::Error) "the call continues at another gateway; the gateway shut down before the call completed" "";
        [TASK, TASK_WORKING, TASK_INPUT_REQUIRED, TASK_CANCELLED, TASK_FAILED] Unstated "the call became a task; the state of the task when it was read" "";
    }
    "Idempotency keys" {
        [IDEMPOTENCY_CONFLICT] Unstated "the key was used with other arguments" "use a new key";
        [IDEMPOTENCY_RUNNING] Unstated "the call with this key is still running" "try again later";
        [IDEMPOTENCY_DONE] Unstated "the call ran before, and the rules for its result have changed since" "check its effect";
        [IDEMPOTENCY_UNKNOWN] Unstated "the call began, and its outcome is unknown" "check its effect before you use a new key";
    }
    "Prompts, resources and memory" {
        [UNKNOWN_CONVERSATION] Recorded(Status::InvalidArguments) "" "create it with `memory/get_or_create`; it may belong to another caller";
        [INVALID_PARAMS] Recorded(Status::InvalidArguments) "" "the message names the invalid parameter";
        [CONFLICT] Recorded(Status::InvalidArguments) "" "another message has this id, or the turn is over: do not retry";
        [HELD] Recorded(Status::Error) "" "a legal hold forbids it: lift the hold first";
        [DENIED] Recorded(Status::Denied) "" "no policy permits it for this caller";
        [HIDDEN, DISABLED] Recorded(Status::Denied) "" "a result is from a tool that this caller may not see";
        [UNKNOWN_TOOL] Recorded(Status::UnknownTool) "" "a result is from a tool that does not exist";
        [MEMORY_UNAVAILABLE] Recorded(Status::Error) "" "try again; a message with the same `message_id` is added only once";
        [TIMEOUT] Recorded(Status::Timeout) "" "see `memory_unavailable`";
    }
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_explained() {
        for reason in Reason::ALL {
            let explanations = REASON_GROUPS.iter().flat_map(|group| group.explanations);
            let own = explanations.filter(|it| it.reasons.contains(reason));
            assert_ne!(own.count(), 0, "{reason:?}");
        }
    }

    #[test]
    fn no_word_is_that_of_two_reasons() {
        let words = Reason::ALL.iter().map(|reason| reason.as_str());
        let words: std::collections::BTreeSet<_> = words.collect();
        assert_eq!(words.len(), Reason::ALL.len());
    }
}
