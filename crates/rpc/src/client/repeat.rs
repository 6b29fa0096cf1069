//! Which calls may be made once more when it is not known whether the first was carried out: a table, so that a
//! method nobody decided about is made once.
//!
//! A call that never reached a server is made again in any case; that is the link's business.

/// Whether a call may be made twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Repeat {
    /// Twice does no harm.
    Always,
    /// Only if the request is marked as [`Repeatable`].
    IfMarked,
    /// Once.
    Never,
}

/// What a method answers with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// One message.
    Whole,
    /// A stream: what has begun is not begun again.
    Stream,
}

/// As an extension of a request: it has a key, or only reads, so that it may be made twice.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Repeatable;

use Answer::{Stream, Whole};
use Repeat::{Always, IfMarked, Never};

/// Every method. Reasons stand where one might expect otherwise.
const TABLE: [(&str, Answer, Repeat); 37] = [
    ("/wardgate.policy.v1.PolicyService/Authorize", Whole, Always),
    (
        "/wardgate.policy.v1.PolicyService/ListVisible",
        Whole,
        Always,
    ),
    (
        "/wardgate.policy.v1.PolicyService/AuthorizeRecall",
        Whole,
        Always,
    ),
    (
        "/wardgate.policy.v1.PolicyService/WatchVersion",
        Stream,
        Always,
    ),
    (
        "/wardgate.toolrunner.v1.ToolRunnerService/ListTools",
        Whole,
        Always,
    ),
    (
        "/wardgate.toolrunner.v1.ToolRunnerService/WatchCatalogue",
        Stream,
        Always,
    ),
    (
        "/wardgate.toolrunner.v1.ToolRunnerService/CallTool",
        Stream,
        IfMarked,
    ),
    (
        "/wardgate.toolrunner.v1.ToolRunnerService/Relay",
        Stream,
        Never,
    ),
    (
        "/wardgate.toolrunner.v1.ToolRunnerService/ListContent",
        Whole,
        Always,
    ),
    (
        "/wardgate.toolrunner.v1.ToolRunnerService/GetContent",
        Whole,
        IfMarked,
    ),
    (
        "/wardgate.toolrunner.v1.ToolRunnerService/WatchResources",
        Stream,
        Always,
    ),
    // Each is on record.
    (
        "/wardgate.toolrunner.v1.ToolRunnerService/SetSwitch",
        Whole,
        Never,
    ),
    (
        "/wardgate.toolrunner.v1.ToolRunnerService/ListSwitches",
        Whole,
        Always,
    ),
    (
        "/wardgate.toolrunner.v1.ToolRunnerService/DescribeConnection",
        Whole,
        Always,
    ),
    (
        "/wardgate.toolrunner.v1.ToolRunnerService/StartConnection",
        Whole,
        Never,
    ),
    (
        "/wardgate.toolrunner.v1.ToolRunnerService/FinishConnection",
        Whole,
        Never,
    ),
    (
        "/wardgate.toolrunner.v1.ToolRunnerService/ListConnections",
        Whole,
        Always,
    ),
    (
        "/wardgate.toolrunner.v1.ToolRunnerService/RemoveConnections",
        Whole,
        Never,
    ),
    // Whoever appends does it again with `retry`, which also settles what has no call's id.
    ("/wardgate.audit.v1.AuditService/Append", Whole, Never),
    ("/wardgate.audit.v1.AuditService/Query", Stream, Always),
    // Without an id each makes a new conversation.
    (
        "/wardgate.memory.v1.MemoryService/GetOrCreate",
        Whole,
        IfMarked,
    ),
    (
        "/wardgate.memory.v1.MemoryService/GetContext",
        Whole,
        Always,
    ),
    // Messages have ids; what is there already counts as appended.
    (
        "/wardgate.memory.v1.MemoryService/AddMessages",
        Whole,
        Always,
    ),
    ("/wardgate.memory.v1.MemoryService/GetTurn", Whole, Always),
    // In between a message may have come that was not to be erased.
    ("/wardgate.memory.v1.MemoryService/Clear", Whole, Never),
    ("/wardgate.memory.v1.MemoryService/Delete", Whole, Never),
    (
        "/wardgate.memory.v1.MemoryService/ListConversations",
        Whole,
        Always,
    ),
    (
        "/wardgate.memory.v1.MemoryService/ReadConversation",
        Whole,
        Always,
    ),
    ("/wardgate.memory.v1.MemoryService/Search", Whole, Always),
    (
        "/wardgate.memory.v1.MemoryService/WatchConversations",
        Stream,
        Always,
    ),
    ("/wardgate.memory.v1.MemoryService/Subscribe", Whole, Always),
    (
        "/wardgate.memory.v1.MemoryService/Unsubscribe",
        Whole,
        Always,
    ),
    (
        "/wardgate.memory.v1.MemoryService/ListSubscriptions",
        Whole,
        Always,
    ),
    ("/wardgate.memory.v1.MemoryService/Survey", Whole, Always),
    ("/wardgate.memory.v1.MemoryService/Erase", Whole, Never),
    ("/wardgate.memory.v1.MemoryService/SetHold", Whole, Never),
    ("/wardgate.memory.v1.MemoryService/ListHolds", Whole, Always),
];

/// What holds for the method at `path`.
pub(crate) fn rule(path: &str) -> (Answer, Repeat) {
    let listed = TABLE.iter().find(|(method, ..)| *method == path);
    listed.map_or((Stream, Never), |(_, answer, repeat)| (*answer, *repeat))
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
                    let answer = if method.server_streaming() {
                        Stream
                    } else {
                        Whole
                    };
                    // The link keeps the one message of a request for the case that it sends it again.
                    assert!(!method.client_streaming(), "{path}");
                    declared.push((path, answer));
                }
            }
        }
        let listed = TABLE
            .iter()
            .map(|(path, answer, _)| ((*path).to_owned(), *answer));
        let mut listed: Vec<_> = listed.collect();
        declared.sort_by(|one, other| one.0.cmp(&other.0));
        listed.sort_by(|one, other| one.0.cmp(&other.0));
        assert_eq!(listed, declared);
    }

    #[test]
    fn what_nobody_decided_about_is_made_once() {
        assert_eq!(rule("/wardgate.new.v1.NewService/Do").1, Never);
    }
}
