//! The generated parts of http-endpoints.md, from the tables of routes that the routers are built from.

use std::collections::BTreeMap;
use std::fmt::Write;

use wardgate_gateway::McpMethod;
use wardgate_rpc::routes::RouteInfo;

use super::{assert_sections_current, cell};

fn section(routes: &[&RouteInfo]) -> String {
    let mut page = String::from("| path | methods | who may call it | |\n|---|---|---|---|\n");
    for route in routes {
        let methods: Vec<_> = route.methods.iter().map(http::Method::as_str).collect();
        let methods = if methods.is_empty() {
            "any".to_owned()
        } else {
            format!("`{}`", methods.join("`, `"))
        };
        let _ = writeln!(
            page,
            "| `{}` | {methods} | {} | {} |",
            route.path,
            cell(route.callers),
            cell(route.response)
        );
    }
    page
}

/// Returns the table of JSON-RPC methods. Methods with equal versions and paths share a row.
fn methods() -> String {
    let mut page = String::from("| method | versions | where |\n|---|---|---|\n");
    let alike = |one: &McpMethod, other: &McpMethod| {
        (one.versions, one.paths) == (other.versions, other.paths)
    };
    for methods in wardgate_gateway::METHODS.chunk_by(alike) {
        let names: Vec<_> = methods.iter().map(|method| method.name).collect();
        let (versions, paths) = (methods[0].versions.as_str(), methods[0].paths);
        let _ = writeln!(page, "| `{}` | {versions} | {paths} |", names.join("`, `"));
    }
    page
}

/// Returns the table of failure codes, by HTTP status.
fn chat_failures() -> String {
    let mut codes = BTreeMap::<u16, Vec<_>>::new();
    for (status, code) in wardgate_agent::listed_failures() {
        codes
            .entry(status.as_u16())
            .or_default()
            .push(format!("`{code}`"));
    }
    let mut page = String::from("| status | `code` |\n|---|---|\n");
    for (status, codes) in codes {
        let _ = writeln!(page, "| {status} | {} |", codes.join(", "));
    }
    page
}

#[test]
fn the_page_of_every_http_endpoint_is_current() {
    let sections = [
        ("MCP", wardgate_gateway::listed_routes()),
        ("OAuth metadata", wardgate_gateway::listed_metadata_routes()),
        ("OAuth facade", wardgate_gateway::listed_oauth_routes()),
        ("consent", wardgate_gateway::listed_connect_routes()),
        ("chats", wardgate_agent::listed_routes()),
        ("console", wardgate_console::listed_routes()),
        ("witness", wardgate_witness::listed_routes()),
        ("probes", wardgate_rpc::probes::listed_routes()),
    ];
    let sections = sections.map(|(name, routes)| (name.to_owned(), section(&routes)));
    let failures = ("failures of chats".to_owned(), chat_failures());
    let methods = ("methods".to_owned(), methods());
    let sections: Vec<_> = sections.into_iter().chain([failures, methods]).collect();
    assert_sections_current("http-endpoints.md", &sections);
}
