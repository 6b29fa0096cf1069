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
        [TOKEN_MISSING] Http(401) "" "send `Authorization: Bearer TOKEN`; `WWW-Authenticate` names where to get one";
        [SCHEME_REFUSED] Http(401) "" "use the scheme Bearer";
        [AUTHORIZATION_REPEATED, AUTHORIZATION_MALFORMED] Http(400) "" "send one well-formed `Authorization` header";
        [TOKEN_EXPIRED, TOKEN_NOT_YET_VALID] Http(401) "" "get a new token; check the clocks";
        [ISSUER_REFUSED] Http(401) "" "the token's `iss` must be one of `gateway.auth.issuers`, letter for letter";
        [AUDIENCE_REFUSED] Http(401) "" "ask for a token for this [path](../connect-a-client.md#tokens) (`resource`), or for the issuer's `audience`";
        [KEY_UNKNOWN, SIGNATURE_INVALID, ALGORITHM_REFUSED] Http(401) "" "the token is not signed by a current key of its issuer";
        [TYPE_REFUSED] Http(401) "" "send an access token, not an identity token";
        [CLAIM_MISSING, CLAIM_INVALID] Http(401) "" "the message names the claim";
        [TOKEN_MALFORMED, TOKEN_TOO_LONG, HEADER_PARAMETER_REFUSED] Http(401) "" "send a signed JWT of at most 16 KiB, without keys in its header";
        [KEYS_UNAVAILABLE] Http(503) "" "the issuer's keys cannot be had: try again; operators check `jwks`";
        [API_KEY_UNKNOWN] Http(401) "" "the API key was revoked, or is of another system: get another";
        [TOKEN_INACTIVE] Http(401) "" "the token's issuer says that it has ended or was revoked: get another";
        [INTROSPECTION_UNAVAILABLE] Http(503) "" "the token's issuer cannot be asked about it: try again; operators check `introspection`";
        [TOKEN_REVOKED] Http(401) "" "an operator [revoked](../operate.md#revoke-access) the token, its subject or its sign-in";
        [REVOCATIONS_UNKNOWN] Http(503) "" "the gateway has not read yet what was revoked: try again; operators check `gateway.store`";
        [RIGHTS_UNAVAILABLE] Http(503) "" "the caller's roles cannot be [looked up](../write-a-policy.md#roles-from-a-table-or-a-query): try again; operators check `policy.caller_lookup`";
        [CALLER_UNLISTED] Http(403) "" "the table or query of `policy.caller_lookup` has nobody of that subject: ask an operator";
        [TOKEN_REFUSED] Http(401) "" "the policy service does not accept the token (any more): get another";
        [INSUFFICIENT_SCOPE] Http(403) "" "get a token with the scopes of `WWW-Authenticate`";
        [ORIGIN_REFUSED] Http(403) "" "operators add the host to `gateway.allowed_hosts`, the origin to `gateway.allowed_origins`";
    }
    "The request itself" {
        [METHOD_NOT_ALLOWED] Http(405) "" "`Allow` names the methods";
        [UNSUPPORTED_MEDIA_TYPE] Http(415) "" "send `Content-Type: application/json`";
        [NOT_ACCEPTABLE] Http(406) "" "send `Accept: application/json, text/event-stream`";
        [TOO_LARGE] Http(413) "" "send less; `gateway.limits.body_bytes`";
        [BODY_TIMEOUT] Http(408) "" "send faster; `gateway.limits.body_seconds`";
        [INCOMPLETE_BODY] Http(400) "" "send the whole body: it ended early";
        [NOT_UTF8, MALFORMED_JSON, DUPLICATE_KEY, TOO_DEEP, NUL_CHARACTER, LONE_SURROGATE, RESERVED_KEY] Http(400) "" "the message names the byte";
        [INVALID_REQUEST] Http(400) "" "no JSON-RPC request, a batch in a version without batches, no session to end";
        [INVALID_PARAMS] Http(200) "" "the message names the parameter";
        [INVALID_META] Http(400) "" "`_meta` lacks version or capabilities, or holds a wrong value";
        [HEADER_MISMATCH, UNSUPPORTED_VERSION, MISSING_CAPABILITY] Http(400) "" "see the codes above";
        [UNKNOWN_METHOD] Http(404, 200) "" "no such method; 404 from 2026-07-28";
        [UNKNOWN_APPROVAL] Http(200) "" "no call waits for this person's approval under this id: it was decided, used, has expired, or is for others to approve";
        [NOT_FOUND] Http(404) "" "no such path";
    }
    "Sessions and streams" {
        [UNKNOWN_SESSION] Http(404) "" "initialize again without `Mcp-Session-Id`: it ended, or is another caller's or path's";
        [UNKNOWN_EVENT] Http(400) "" "listen without `Last-Event-ID`: the event is of no answer that this caller may still have";
        [UNKNOWN_STATE] Http(200) "" "begin again without `requestState`: it was used, is too old, or belongs to another request";
        [UNKNOWN_UPSTREAM] Http(404) "" "no such route, or none for this caller (right `connect`)";
        [UNKNOWN_STREAM] Http(404) "" "open a stream by `GET /sse`; operators of several gateways set `gateway.advertise`";
        [STREAM_UNREACHABLE] Http(502) "" "the gateway that has the stream is gone: open another";
        [TOO_MANY_STREAMS] Http(429) "" "close streams: 32 of one subject, `gateway.limits.streams` in all";
        [TOO_MANY_MESSAGES] Http(429) "" "wait for answers: 32 under way of one SSE stream";
        [TOO_MANY_SUBSCRIPTIONS, NOT_WATCHED] Http(200) "" "unsubscribe from some; the resource cannot be watched for this caller";
        [GATEWAY_GONE, STREAM_NOT_KEPT] InStream "" "it may have run: check before you repeat it";
        [STORE_UNAVAILABLE] Http(503, 200) "" "the gateway's store cannot be reached: try again; operators look at `gateway.store`. 200 is for a call";
        [POLICY_UNAVAILABLE] Http(503, 200) "" "it cannot be decided now what the caller may hear: try again. 200 is for a call";
        [SEALING_FAILED] Http(200) "" "the gateway cannot make the id of a stream: report it with the log";
    }
    "Too much to do" {
        [RATE_LIMITED] Http(429) "" "wait for `Retry-After`: `gateway.limits.requests_per_minute` or `quotas`, or the tool's `limits.per_caller`";
        [OVER_SHARE] Http(429) "" "wait; others have room, this caller has more than its share under way";
        [OVERLOADED] Http(503) "" "wait for `Retry-After`; operators scale, or look at what is slow";
    }
    "Decided before anything ran" {
        [NOT_PERMITTED] Recorded(Status::Denied) "" "no policy permits it: add one, or leave it";
        [FORBIDDEN] Recorded(Status::Denied) "" "a policy forbids it";
        [POLICY_ERROR] Recorded(Status::Denied) "" "a policy failed to evaluate, and an error never allows: test it with `wardgate policy explain`";
        [HISTORY_UNAVAILABLE] Recorded(Status::Denied) "" "a policy looks at [earlier calls](../write-a-policy.md#earlier-calls), and how many there were is not known: the log of the policy service says why";
        [APPROVAL_REQUIRED] Recorded(Status::Denied) "" "a policy wants somebody's [approval](../write-a-policy.md#approvals) first: `data.approval` has the id of the request and until when it stands. Call again with the same arguments once it is approved. No violation";
        [APPROVAL_REFUSED] Recorded(Status::Denied) "" "whoever was asked for an approval refused it. No violation";
        [APPROVER_REFUSED] Recorded(Status::Denied) "" "somebody wanted to decide about a call that they may not approve: their own where somebody else has to, or without the role, or one that the policies in force let nobody approve";
        [DISABLED] Recorded(Status::Denied) "" "a switch is off for this caller: `wardgate tools switches`";
        [INSUFFICIENT_SCOPE] Recorded(Status::Denied) "" "the token lacks a scope";
        [TOKEN_REFUSED] Recorded(Status::Denied) "" "the policy service does not accept the token any more";
        [UNKNOWN_TOOL] Recorded(Status::UnknownTool) "" "no such tool";
        [UNKNOWN, UNKNOWN_PROMPT, UNKNOWN_RESOURCE] Recorded(Status::UnknownTool) "" "no such prompt or resource: `unknown` on record, the others for clients";
        [UNKNOWN_TASK] Recorded(Status::UnknownTool) "" "no such task for this caller";
        [HEADER_MISMATCH] Recorded(Status::InvalidArguments) "" "a header `Mcp-Param-…` differs from the argument";
        [UNKNOWN_STATE] Recorded(Status::InvalidArguments) "" "a `requestState` was used before";
        [NOT_AVAILABLE, IN_DATA, REPEATED, DECLINED, APPROVAL_CHANGED] Recorded(Status::Denied) "" "the [agent](../chat-with-an-assistant.md) refused what its model asked for";
        [UNREADABLE, ARGUMENTS] Recorded(Status::InvalidArguments) "" "the same";
        [REFUSED_BY_AGENT] Unstated "" "what the client reads of any of them";
        [MISSING_CAPABILITY] Recorded(Status::Error) "" "the client did not declare what the tool or its question needs";
        [CATALOGUE_UNAVAILABLE] Recorded(Status::Error) "" "the gateway has not heard of the tool-runner yet: try again";
        [POLICY_UNAVAILABLE] Recorded(Status::Error) "" "the policy service did not decide: try again";
        [OVERLOADED] Recorded(Status::Error) "" "a service behind the gateway turned the call away: try again";
        [PERMIT_REFUSED] Recorded(Status::Error) "" "the tool-runner refused the permit twice, as keys or definitions change: try again";
    }
    "Platform" {
        [NOT_DURABLE] Unstated "" "no record could be written, so nothing was released: try again; for a tool that may write, check first. Seen by clients only, with no receipt";
        [TOOL_RUNNER_UNAVAILABLE] Recorded(Status::Error, Status::Unknown) "" "the tool-runner did not answer. With `unknown` (clients read the reason `unknown`) the tool may have run: check before you repeat it";
        [TIMEOUT] Recorded(Status::Timeout) "" "ask for less, or raise the tool's `time_limit`; a write may have happened";
        [CANCELLED] Recorded(Status::Cancelled) "" "the client cancelled, or hung up";
        [STORE_UNAVAILABLE] Recorded(Status::Error) "" "a task's id or a state cannot be stored now";
        [PANIC] Recorded(Status::Error) "" "a fault of Wardgate: report it with the log";
    }
    "A tool and its source" {
        [INVALID_ARGUMENTS] Unstated "the arguments do not fit the schema, or a value the target cannot take" "the text names the argument";
        [NO_ROWS] Unstated "no row: `empty.error` of the tool" "check what was asked for, and the row rule";
        [RATE_LIMITED, BUSY] Unstated "`limits.per_caller`; `limits.concurrency`" "wait. `rate_limited` is HTTP 429 and -32603";
        [TIMEOUT] Unstated "the call's limit, the source's `timeout`, or a limit of the source's own; the text says which" "";
        [SOURCE_UNAVAILABLE] Unstated "it cannot be reached, broke off, is busy, or its breaker is open" "try again; operators look at the source";
        [NOT_CONNECTED] Unstated "the source acts in its caller's name, who has not allowed that" "follow the link; [Let a source act in its callers' name](../connect-an-mcp-server.md#let-a-source-act-in-its-callers-name)";
        [NO_CREDENTIALS] Unstated "no token was granted, or the caller's did not come along" "operators check `auth` of the source";
        [EGRESS_REFUSED] Unstated "the URL or a redirect leads to where the source may not go" "operators check `hosts` and `private`";
        [UPSTREAM_UNAUTHORIZED] Unstated "the MCP server refuses the platform's credentials" "operators check `auth`";
        [HTTP_STATUS, GRPC_STATUS] Unstated "the service answered with that status" "the text names it; `result.error` can release its words";
        [UNKNOWN_METHOD] Unstated "the gRPC service has no such method" "operators check `method`";
        [BAD_DESCRIPTORS] Unstated "the gRPC service does not describe its methods" "operators check `descriptors` of the source";
        [SQL_ERROR] Unstated "the database refused the statement" "its message is in the log, as far as it quotes no values";
        [COMMAND_FAILED] Unstated "the program ended with a code other than 0" "standard error is in the log where `telemetry.log` names `wardgate::standard_error`";
        [TOOL_ERROR] Unstated "the source's own failure: its words as far as class `error` is shown" "";
        [SOURCE_FAILED] Unstated "the source of a prompt or a resource failed" "its own reason is on record";
        [TOOL_CHANGED] Unstated "the MCP server changed the tool after it was approved: nothing was sent" "`wardgate tools diff`, then `approve`";
        [BAD_RESULT] Unstated "what came back cannot be read, does not fit the configuration or the policies' rows" "operators compare `result` with what the source gives";
        [RESULT_TOO_LARGE] Unstated "larger than `max_response_bytes` or `tool_runner.max_result_bytes`" "ask for less";
    }
    "Calls that ask their client" {
        [INPUT_REQUIRED] Recorded(Status::Ok, Status::Error) "`ok`: the client was asked. `error`: the server asked in a way that cannot be passed on, or its caller may not be asked" "";
        [NEEDS_ELICITATION, NEEDS_SAMPLING, NEEDS_ROOTS, NEEDS_CAPABILITY] Recorded(Status::Error) "the server wants a client that can be asked, and this one cannot, or may not be asked" "";
        [NEEDS_TASKS] Recorded(Status::Error) "the tool runs as a task only: call it with 2026-07-28, declare `io.modelcontextprotocol/tasks`, send no idempotency key" "";
        [CLIENT_CANNOT_BE_ASKED] Recorded(Status::Error) "no stream to ask on: use a session of `/mcp`" "";
        [CLIENT_DID_NOT_ANSWER, CLIENT_REFUSED] Recorded(Status::Error) "no answer within ten minutes; the client answered with an error" "";
        [DECLINED] Recorded(Status::Error) "what the tool needs first (a page) was declined" "";
        [NOT_WAITING] Recorded(Status::Error) "the answer came too late or twice: it may have run in part, so check before you call again" "";
        [BAD_INPUT_REQUESTS, TOO_MANY_ROUNDS] Recorded(Status::Error) "the server asks in a form that cannot be passed on; it asked more than eight times" "";
        [HANDED_OVER, GATEWAY_STOPPING] Recorded(Status::Error) "the call goes on at another gateway; the gateway stops, so call again" "";
        [TASK, TASK_WORKING, TASK_INPUT_REQUIRED, TASK_CANCELLED, TASK_FAILED] Unstated "the call became a task; what a look at it found" "";
    }
    "Idempotency keys" {
        [IDEMPOTENCY_CONFLICT] Unstated "the key was used with other arguments" "use a new key";
        [IDEMPOTENCY_RUNNING] Unstated "the call with this key is still running" "ask again later";
        [IDEMPOTENCY_DONE] Unstated "it ran before, and the rules for its result have changed since" "check what it did";
        [IDEMPOTENCY_UNKNOWN] Unstated "it began, and how it ended is not known" "check before you use a new key";
    }
    "Prompts, resources and memory" {
        [UNKNOWN_CONVERSATION] Recorded(Status::InvalidArguments) "" "begin it with `memory/get_or_create`; it may be another caller's";
        [INVALID_PARAMS] Recorded(Status::InvalidArguments) "" "the message names what does not fit";
        [CONFLICT] Recorded(Status::InvalidArguments) "" "another message has that id, or the turn is over: do not retry";
        [HELD] Recorded(Status::Error) "" "a legal hold forbids it: lift the hold first";
        [DENIED] Recorded(Status::Denied) "" "the policy does not let this caller do that";
        [HIDDEN, DISABLED] Recorded(Status::Denied) "" "a result is of a tool that this caller may not see";
        [UNKNOWN_TOOL] Recorded(Status::UnknownTool) "" "a result is of a tool that does not exist";
        [MEMORY_UNAVAILABLE] Recorded(Status::Error) "" "try again; what is added under the same `message_id` is added once";
        [TIMEOUT] Recorded(Status::Timeout) "" "the same";
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
