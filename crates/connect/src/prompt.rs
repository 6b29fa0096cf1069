//! The prompt to a client whose user has not connected a source yet.

use bytes::Bytes;
use serde_json::{Value, json};
use wardgate_domain::Caller;
use wardgate_rpc::client::{ConnectTarget, Person};

use crate::ConnectPages;
use crate::consent_flow::ConnectTicket;

/// The key of the only input request.
const KEY: &str = "connect";

/// The way in which a client leads its user to the page.
#[derive(Debug, PartialEq, Eq)]
pub enum ConnectPrompt {
    /// MCP `inputRequests`, as JSON.
    InputRequests(String),
    /// The text with which the call ends, because the client cannot open a page.
    Message(String),
}

/// Returns the prompt to connect a source. `capabilities` are those of the client, as a JSON object.
pub fn prompt_to_connect(
    connect_pages: &ConnectPages,
    caller: &Caller,
    connect: &ConnectTarget,
    capabilities: Option<&str>,
) -> ConnectPrompt {
    let source = &connect.source;
    if connect_pages.sign_in.as_ref().is_none() {
        return ConnectPrompt::Message(format!(
            "`{source}` acts in the name of its users, but this gateway cannot sign them in: the operator has to set gateway.sign_in."
        ));
    }
    let person = Person {
        tenant: caller.tenant().to_owned(),
        issuer: caller.issuer().to_owned(),
        subject: caller.subject().to_owned(),
    };
    let ticket = ConnectTicket::new(&person, connect, &connect_pages.parts.ambient);
    let Some(link) = ticket.seal(&connect_pages.parts.sealer) else {
        return ConnectPrompt::Message(format!("`{source}` cannot be connected here."));
    };
    let url = format!("{}/connect/{link}", connect_pages.parts.public_url);
    if !shows_pages(capabilities) {
        return ConnectPrompt::Message(format!(
            "`{source}` acts in your name, and you have not authorized it yet. Open {url} in your browser within 15 minutes, authorize \
             it, and call the tool again."
        ));
    }
    let message = format!(
        "`{source}` acts in your name. Open the page, sign in and authorize it; the call then continues."
    );
    let request = json!({
        "method": "elicitation/create",
        "params": { "mode": "url", "message": message, "url": url },
    });
    ConnectPrompt::InputRequests(json!({ KEY: request }).to_string())
}

/// Returns the text with which a call ends if its client repeats it with another answer than that the page was opened.
pub fn declined_message(responses: &Bytes) -> Option<&'static str> {
    let responses: Value = serde_json::from_slice(responses).ok()?;
    let action = responses.get(KEY)?.get("action")?;
    (action != "accept")
        .then_some("The source acts in your name, and you did not authorize it. Nothing was done.")
}

/// Returns whether the client declared elicitation by URL.
fn shows_pages(capabilities: Option<&str>) -> bool {
    let capabilities = capabilities.and_then(|text| serde_json::from_str::<Value>(text).ok());
    capabilities.is_some_and(|it| it["elicitation"]["url"].is_object())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_declared_mode_is_used() {
        for (capabilities, shows) in [
            (None, false),
            (Some("{}"), false),
            (Some(r#"{"elicitation":{}}"#), false),
            (Some(r#"{"elicitation":{"form":{}}}"#), false),
            (Some(r#"{"elicitation":{"url":{}}}"#), true),
        ] {
            assert_eq!(shows_pages(capabilities), shows, "{capabilities:?}");
        }
    }

    #[test]
    fn whatever_is_not_an_acceptance_ends_the_call() {
        for (responses, ends) in [
            (r#"{"connect":{"action":"accept"}}"#, false),
            (r#"{"connect":{"action":"decline"}}"#, true),
            (r#"{"connect":{"action":"cancel"}}"#, true),
            ("{}", false),
        ] {
            let told = declined_message(&Bytes::from_static(responses.as_bytes()));
            assert_eq!(told.is_some(), ends, "{responses}");
        }
    }
}
