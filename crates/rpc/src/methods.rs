//! The table of all methods: who may call a method, how it responds, and whether a call may be retried. Servers refuse a method
//! without an entry, and clients never retry it.
//!
//! The link always retries a call that never reached a server, whatever the table says.

use crate::peer::Peer;

/// A method of a service.
#[derive(Debug)]
pub struct Method {
    /// The path of requests: `/PACKAGE.SERVICE/METHOD`.
    pub path: &'static str,
    /// The peers that may call the method.
    pub callers: &'static [Peer],
    /// The kind of the response.
    pub answer: ResponseKind,
    /// Whether a client may retry a call.
    pub repeat: RetryPolicy,
}

/// The kind of a method's response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseKind {
    /// A single message.
    Whole,
    /// A stream. A call whose stream has begun is not retried.
    Stream,
    /// A stream of results, one for each message of the client's stream. The server treats each message as a call.
    Results,
}

/// The retry policy of a method: whether a call may be retried when the outcome of the first attempt is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryPolicy {
    /// Calls may be retried, because a repetition does no harm.
    Always,
    /// A call may be retried only if its request is marked as idempotent: it has an idempotency key or only reads.
    IfMarked,
    /// Calls are never retried.
    Never,
}

/// A marker in the extensions of a request that may be retried, because it has an idempotency key or only reads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IdempotentRequest;

macro_rules! methods {
    ($($service:literal { $($method:ident: $($caller:ident)|+, $answer:ident, $repeat:ident;)+ })+) => {
        &[$($(Method {
            path: concat!("/", $service, "/", stringify!($method)),
            callers: &[$(Peer::$caller),+],
            answer: ResponseKind::$answer,
            repeat: RetryPolicy::$repeat,
        },)+)+]
    };
}

/// The table of methods. The standard services for health and reflection are not listed, and open to every peer with a
/// certificate. Comments explain the entries that one might not expect.
pub const METHODS: &[Method] = methods! {
    "wardgate.policy.v1.PolicyService" {
        Identify:            Gateway | ToolRunner | Memory | Audit, Whole, Always;
        Authorize:           Gateway | Memory,       Whole,  Always;
        Approve:             Gateway,                Whole,  Always;
        ListVisible:         Gateway,                Whole,  Always;
        AuthorizeRecall:     Memory,                 Whole,  Always;
        // The gateway calls this before it shows limits or, for operators, revokes access.
        AuthorizeOperator:   Gateway | ToolRunner | Memory | Audit | Console, Whole, Always;
        // The request carries the operator's token.
        ListShadowFlips:     Operator,               Whole,  Always;
        WatchVersion:        Gateway,                Stream, Always;
    }
    "wardgate.toolrunner.v1.ToolRunnerService" {
        ListTools:           Gateway | Operator,     Whole,  Always;
        WatchCatalogue:      Gateway,                Stream, Always;
        // A tool-runner forwards calls that wait on another replica.
        CallTool:            Gateway | ToolRunner,   Stream, IfMarked;
        ListContent:         Gateway,                Whole,  Always;
        GetContent:          Gateway | ToolRunner,   Whole,  IfMarked;
        WatchResources:      Gateway,                Stream, Always;
        // Each call is recorded.
        SetSwitch:           Operator,               Whole,  Never;
        ListSwitches:        Operator,               Whole,  Never;
        DescribeConnection:  Gateway,                Whole,  Always;
        StartConnection:     Gateway,                Whole,  Never;
        FinishConnection:    Gateway,                Whole,  Never;
        ListConnections:     Operator,               Whole,  Never;
        RemoveConnections:   Operator,               Whole,  Never;
    }
    "wardgate.audit.v1.AuditService" {
        // The client sends records again with `retry` set, which also prevents duplicates of records without a call id.
        Append:              Gateway | ToolRunner | Memory | Console, Results, Never;
        // The console asks the policy service who may see the records.
        Query:               Console,                Stream, Always;
        CountCalls:          Policy,                 Whole,  Always;
        GetCheckpoint:       Console,                Whole,  Always;
        // The proof contains the record.
        GetProof:            Console,                Whole,  Always;
        // Each request carries the operator's token and is recorded.
        ReadRecords:         Operator,               Stream, Never;
        WatchRecords:        Operator,               Stream, Never;
        ReadCheckpoint:      Operator,               Whole,  Never;
        ReadProof:           Operator,               Whole,  Never;
        ExportRecords:       Operator,               Stream, Never;
        ReadRetention:       Operator,               Whole,  Never;
        ApplyRetention:      Operator,               Stream, Never;
        ChangeLegalHold:     Operator,               Whole,  Never;
        EraseDataSubject:    Operator,               Whole,  Never;
    }
    "wardgate.memory.v1.MemoryService" {
        // Without an id, each call creates another conversation.
        GetOrCreate:         Gateway | ToolRunner,   Whole,  IfMarked;
        GetContext:          Gateway | ToolRunner,   Whole,  Always;
        // Messages have ids, and a message that exists already counts as appended.
        AddMessages:         Gateway | ToolRunner,   Whole,  Always;
        GetTurn:             Gateway,                Whole,  Always;
        // A retry could erase a message that was added after the first attempt.
        Clear:               Gateway,                Whole,  Never;
        Delete:              Gateway,                Whole,  Never;
        ListConversations:   Gateway | ToolRunner,   Whole,  Always;
        ReadConversation:    Gateway | ToolRunner,   Whole,  Always;
        Search:              Gateway | ToolRunner,   Whole,  Always;
        WatchConversations:  Gateway,                Stream, Always;
        Subscribe:           Gateway,                Whole,  Always;
        Unsubscribe:         Gateway,                Whole,  Always;
        ListSubscriptions:   Gateway,                Whole,  Always;
        // Each call is recorded.
        Survey:              Operator,               Whole,  Never;
        Erase:               Operator,               Whole,  Never;
        SetHold:             Operator,               Whole,  Never;
        ListHolds:           Operator,               Whole,  Never;
    }
};

/// Returns the method at `path`, or `None` if the table has no entry for it.
pub(crate) fn find(path: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.path == path)
}

impl Method {
    /// Returns whether operators may call the method from the command line.
    pub(crate) fn is_for_operators(&self) -> bool {
        self.callers.contains(&Peer::Operator)
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::*;

    #[test]
    fn every_method_is_decided_about_and_answers_as_declared() {
        let set = prost_types::FileDescriptorSet::decode(wardgate_proto::DESCRIPTORS).unwrap();
        let mut declared = Vec::new();
        for file in &set.file {
            for service in &file.service {
                for method in &service.method {
                    let path = format!("/{}.{}/{}", file.package(), service.name(), method.name());
                    let answer = match (method.client_streaming(), method.server_streaming()) {
                        (false, false) => ResponseKind::Whole,
                        (false, true) => ResponseKind::Stream,
                        (true, true) => ResponseKind::Results,
                        // The link buffers a request for retries, and supports only a single message.
                        (true, false) => panic!("{path} is not supported"),
                    };
                    declared.push((path, answer));
                }
            }
        }
        let listed = METHODS.iter();
        let mut listed: Vec<_> = listed
            .map(|method| (method.path.to_owned(), method.answer))
            .collect();
        declared.sort_by(|one, other| one.0.cmp(&other.0));
        listed.sort_by(|one, other| one.0.cmp(&other.0));
        assert_eq!(listed, declared);
    }
}
