//! Every method: who may call it, what it answers with, and whether it may be made twice. One table, so that a method
//! nobody decided about is refused by servers, and made once by clients.
//!
//! A call that never reached a server is made again in any case; that is the link's business.

use crate::peer::Peer;

/// A method of one of the services.
#[derive(Debug)]
pub struct Method {
    /// As requests name it: `/PACKAGE.SERVICE/METHOD`.
    pub path: &'static str,
    /// Who may call it.
    pub callers: &'static [Peer],
    /// What it answers with.
    pub answer: ResponseKind,
    /// Whether a client may make a call of it twice.
    pub repeat: RetryPolicy,
}

/// The kind of a method's response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseKind {
    /// One message.
    Whole,
    /// A stream: what has begun is not begun again.
    Stream,
}

/// The retry policy of a method: whether a call may be made twice when it is not known whether the first was carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryPolicy {
    /// Twice does no harm.
    Always,
    /// Only if the request is marked as having a key, or as one that only reads.
    IfMarked,
    /// Once.
    Never,
}

/// An extension of a request that has a key, or only reads, and so may be made twice.
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

/// Health and reflection, which are not ours, are open to every peer with a certificate. Reasons stand where one might
/// expect otherwise.
pub const METHODS: &[Method] = methods! {
    "wardgate.policy.v1.PolicyService" {
        Identify:            Gateway | ToolRunner | Memory | Audit, Whole, Always;
        Authorize:           Gateway | Memory,       Whole,  Always;
        Approve:             Gateway,                Whole,  Always;
        ListVisible:         Gateway,                Whole,  Always;
        AuthorizeRecall:     Memory,                 Whole,  Always;
        // The gateway shows limits to whoever may read the record, and revokes access for operators.
        AuthorizeOperator:   Gateway | ToolRunner | Memory | Audit | Console, Whole, Always;
        // It brings the operator's token.
        ListShadowFlips:     Operator,               Whole,  Always;
        WatchVersion:        Gateway,                Stream, Always;
    }
    "wardgate.toolrunner.v1.ToolRunnerService" {
        ListTools:           Gateway | Operator,     Whole,  Always;
        WatchCatalogue:      Gateway,                Stream, Always;
        // A tool-runner hands on what waits on another replica.
        CallTool:            Gateway | ToolRunner,   Stream, IfMarked;
        ListContent:         Gateway,                Whole,  Always;
        GetContent:          Gateway | ToolRunner,   Whole,  IfMarked;
        WatchResources:      Gateway,                Stream, Always;
        // Each is on record.
        SetSwitch:           Operator,               Whole,  Never;
        ListSwitches:        Operator,               Whole,  Never;
        DescribeConnection:  Gateway,                Whole,  Always;
        StartConnection:     Gateway,                Whole,  Never;
        FinishConnection:    Gateway,                Whole,  Never;
        ListConnections:     Operator,               Whole,  Never;
        RemoveConnections:   Operator,               Whole,  Never;
    }
    "wardgate.audit.v1.AuditService" {
        // Whoever appends does it again with `retry`, which also settles what has no call's id.
        Append:              Gateway | ToolRunner | Memory | Console, Whole, Never;
        // Whom the console shows it, it asks the policy.
        Query:               Console,                Stream, Always;
        CountCalls:          Policy,                 Whole,  Always;
        GetCheckpoint:       Console,                Whole,  Always;
        // It has the record in it.
        GetProof:            Console,                Whole,  Always;
        // Each brings the operator's token, and is on record.
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
        // Without an id each makes a new conversation.
        GetOrCreate:         Gateway | ToolRunner,   Whole,  IfMarked;
        GetContext:          Gateway | ToolRunner,   Whole,  Always;
        // Messages have ids; what is there already counts as appended.
        AddMessages:         Gateway | ToolRunner,   Whole,  Always;
        GetTurn:             Gateway,                Whole,  Always;
        // In between a message may have come that was not to be erased.
        Clear:               Gateway,                Whole,  Never;
        Delete:              Gateway,                Whole,  Never;
        ListConversations:   Gateway | ToolRunner,   Whole,  Always;
        ReadConversation:    Gateway | ToolRunner,   Whole,  Always;
        Search:              Gateway | ToolRunner,   Whole,  Always;
        WatchConversations:  Gateway,                Stream, Always;
        Subscribe:           Gateway,                Whole,  Always;
        Unsubscribe:         Gateway,                Whole,  Always;
        ListSubscriptions:   Gateway,                Whole,  Always;
        // Each is on record.
        Survey:              Operator,               Whole,  Never;
        Erase:               Operator,               Whole,  Never;
        SetHold:             Operator,               Whole,  Never;
        ListHolds:           Operator,               Whole,  Never;
    }
};

/// The method at `path`, if somebody decided about it.
pub(crate) fn find(path: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.path == path)
}

impl Method {
    /// Whether people at the command line may call it.
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
                    // The link keeps the one message of a request for the case that it sends it again.
                    assert!(!method.client_streaming(), "{path}");
                    declared.push((path, method.server_streaming()));
                }
            }
        }
        let listed = METHODS.iter();
        let mut listed: Vec<_> = listed
            .map(|method| {
                (
                    method.path.to_owned(),
                    method.answer == ResponseKind::Stream,
                )
            })
            .collect();
        declared.sort();
        listed.sort();
        assert_eq!(listed, declared);
    }
}
