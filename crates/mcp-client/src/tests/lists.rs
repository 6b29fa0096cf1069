//! Tests of lists that violate the protocol or exceed limits.

use super::{soon, upstream};
use crate::UpstreamError;
use crate::testing::program::settings;

#[tokio::test]
async fn a_list_without_end_is_none() {
    let circle = upstream(&settings("circle")).list_tools(soon()).await;
    assert!(matches!(circle, Err(UpstreamError::BadResult(_))));
    let endless = upstream(&settings("endless")).list_tools(soon()).await;
    assert!(matches!(endless, Err(UpstreamError::TooLarge)));
}

#[tokio::test]
async fn faulty_tools_are_left_out_alone() {
    let tools = upstream(&settings("faulty"))
        .list_tools(soon())
        .await
        .unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool.name.as_str()).collect();
    // `x-mcp-header` is ignored over stdio.
    assert_eq!(names, ["good", "marked", "last"]);
}
