//! The form with which a caller is asked to approve their own call, and the caller's answer.

use serde_json::{Value, json};
use wardgate_domain::{CallToApprove, indent_json, mark_invisible};

/// Key of this request among the input requests of a round.
const KEY: &str = "approval";

/// The answer of a caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalAnswer {
    /// The caller approves the call.
    Approved,
    /// The caller does not approve the call, or dismissed the form.
    Refused,
}

impl ApprovalAnswer {
    /// Returns the answer in `responses`, an MCP object `inputResponses`. Everything except an acceptance is a refusal.
    pub fn from_responses(responses: &[u8]) -> Self {
        let responses: Option<Value> = serde_json::from_slice(responses).ok();
        let action = responses.as_ref().map(|it| &it[KEY]["action"]);
        if action.is_some_and(|action| action == "accept") {
            Self::Approved
        } else {
            Self::Refused
        }
    }
}

/// Returns the request to approve `call`, an MCP object `inputRequests`. It shows the tool and the exact arguments, in
/// which every invisible character is marked.
pub fn approval_form(call: &CallToApprove) -> String {
    let message = format!(
        "Approve this call? It runs once, with exactly these arguments.\n\nTool: {}\nArguments:\n{}",
        call.tool.name,
        mark_invisible(&indent_json(&String::from_utf8_lossy(&call.arguments))),
    );
    let request = json!({
        "method": "elicitation/create",
        "params": {
            "mode": "form",
            "message": message,
            "requestedSchema": { "type": "object", "properties": {} },
        },
    });
    json!({ KEY: request }).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use wardgate_domain::{Ambient, ApprovalId};

    #[test]
    fn the_form_shows_the_exact_arguments_with_invisible_characters_marked() {
        let arguments = "{\"to\":\"a\u{202e}b\",\"amount\":1.10,\"a\":[1e2]}";
        let call = CallToApprove {
            id: ApprovalId::new(&Ambient::system()),
            caller: wardgate_testkit::caller("tom", &[]),
            tool: wardgate_testkit::tool_facts("pay"),
            arguments: Bytes::from_static(arguments.as_bytes()),
            client_ip: String::new(),
        };
        let form: Value = serde_json::from_str(&approval_form(&call)).unwrap();
        let message = form["approval"]["params"]["message"].as_str().unwrap();
        assert!(message.contains("Tool: pay\n"), "{message}");
        assert!(message.contains(r#""to": "a‹U+202E›b""#), "{message}");
        assert!(message.contains(r#""amount": 1.10"#), "{message}");
        assert!(
            message.contains("1e2") || message.contains("1e+2"),
            "{message}"
        );
    }

    #[test]
    fn only_an_acceptance_approves() {
        for (responses, answer) in [
            (
                r#"{"approval":{"action":"accept","content":{}}}"#,
                ApprovalAnswer::Approved,
            ),
            (
                r#"{"approval":{"action":"decline"}}"#,
                ApprovalAnswer::Refused,
            ),
            (
                r#"{"approval":{"action":"cancel"}}"#,
                ApprovalAnswer::Refused,
            ),
            (r#"{"other":{"action":"accept"}}"#, ApprovalAnswer::Refused),
            ("{}", ApprovalAnswer::Refused),
            ("accept", ApprovalAnswer::Refused),
        ] {
            assert_eq!(
                ApprovalAnswer::from_responses(responses.as_bytes()),
                answer,
                "{responses}"
            );
        }
    }
}
