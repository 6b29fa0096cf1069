//! Tests of tools that a server shows only to clients with certain capabilities.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use wardgate_domain::RequiredCapabilities;

use super::{parse_result, raw, soon, text, upstream};
use crate::definition::ToolDefinition;
use crate::testing::fixture::Fixture;
use crate::testing::http::{serve_fixture, settings};
use crate::{
    ClientCapabilities, Participation, PassthroughMembers, Round, RoundStart, Upstream,
    UpstreamError, UpstreamOperation,
};

const ERAS: [&str; 3] = ["modern", "legacy", "both"];

async fn server(era: &str) -> (Fixture, Upstream) {
    let fixture = Fixture::new(era).with_conditional_tools();
    let url = serve_fixture(&fixture, false).await;
    (fixture, upstream(&settings(&url)))
}

fn required_capabilities(tools: &[ToolDefinition]) -> BTreeMap<&str, RequiredCapabilities> {
    let conditional = tools.iter().filter(|tool| !tool.required.is_empty());
    let required = conditional.map(|tool| (tool.name.as_str(), tool.required.clone()));
    required.collect()
}

/// Calls the tool of `definition`, for a client with `capabilities`.
async fn call_pinned(
    upstream: &Upstream,
    definition: &ToolDefinition,
    capabilities: &str,
    is_legacy: bool,
) -> Result<String, UpstreamError> {
    let operation = UpstreamOperation::Tool {
        name: definition.name.to_string(),
        arguments: raw("{}"),
        pin: definition.fingerprint().map(Arc::new),
        may_be_task: false,
    };
    let client = Arc::new(Participation {
        capabilities: ClientCapabilities::parse(capabilities.as_bytes()).unwrap(),
        log_level: None,
        others: PassthroughMembers::default(),
        is_legacy,
    });
    let mut deaf = |_| false;
    let round = upstream.round(
        &operation,
        &client,
        RoundStart::Beginning,
        soon(),
        &mut deaf,
    );
    match round.await? {
        Round::Done(result) => Ok(text(&parse_result(&result))),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_tool_for_certain_clients_is_found_with_the_capabilities_that_it_needs() {
    for era in ERAS {
        let (_, upstream) = server(era).await;
        let tools = upstream.offered_tools(soon()).await.unwrap();
        assert_eq!(tools.len(), 12, "{era}");
        let any: &[&[u8]] = &[br#"{"elicitation":{}}"#, br#"{"sampling":{}}"#];
        let expected = [
            ("ask_user", r#"{"elicitation":{}}"#, &[][..]),
            ("ask_elsewhere", r#"{"elicitation":{"url":{}}}"#, &[]),
            ("ask_model", r#"{"sampling":{}}"#, &[]),
            ("ask_model_in_roots", r#"{"roots":{},"sampling":{}}"#, &[]),
            ("ask_anybody", "", any),
            ("ask_anybody_in_roots", r#"{"roots":{}}"#, any),
        ];
        let expected = expected.map(|(name, needed, alternatives)| {
            let alternatives = alternatives.iter().copied();
            let required = RequiredCapabilities::from_wire(needed.as_bytes(), alternatives);
            (name, required.unwrap())
        });
        assert_eq!(required_capabilities(&tools), expected.into(), "{era}");
    }
}

#[tokio::test]
async fn it_is_looked_for_again_only_when_the_tools_changed() {
    for era in ERAS {
        let (fixture, upstream) = server(era).await;
        let first = upstream.offered_tools(soon()).await.unwrap();
        let listed = || fixture.state.listed.load(Ordering::SeqCst);
        let before = listed();
        let again = upstream.offered_tools(soon()).await.unwrap();
        assert_eq!(listed(), before + 1, "{era}");
        assert_eq!(
            required_capabilities(&again),
            required_capabilities(&first),
            "{era}"
        );
        upstream.announce_changed_tools();
        upstream.offered_tools(soon()).await.unwrap();
        assert!(listed() > before + 2, "{era}");
    }
}

#[tokio::test]
async fn a_pinned_one_is_called_for_a_client_that_has_the_capabilities() {
    for (era, is_legacy) in [
        ("modern", false),
        ("legacy", false),
        ("legacy", true),
        ("both", true),
    ] {
        let (_, upstream) = server(era).await;
        let tools = upstream.offered_tools(soon()).await.unwrap();
        let of = |name: &str| {
            tools
                .iter()
                .find(|tool| tool.name.as_str() == name)
                .unwrap()
        };
        let called = call_pinned(&upstream, of("ask_model"), r#"{"sampling":{}}"#, is_legacy);
        assert_eq!(called.await.unwrap(), "asked", "{era}");
        // A tool for every client matches its pin, whatever other tools the client is shown.
        let called = call_pinned(&upstream, of("cancelled"), r#"{"roots":{}}"#, is_legacy);
        assert_eq!(called.await.unwrap(), "0", "{era}");
    }
}

#[tokio::test]
async fn a_server_that_shows_all_clients_the_same_has_none() {
    for era in ERAS {
        let fixture = Fixture::new(era);
        let url = serve_fixture(&fixture, false).await;
        let upstream = upstream(&settings(&url));
        let tools = upstream.offered_tools(soon()).await.unwrap();
        assert_eq!(
            (tools.len(), required_capabilities(&tools).len()),
            (6, 0),
            "{era}"
        );
        assert_eq!(fixture.state.listed.load(Ordering::SeqCst), 2, "{era}");
    }
}
