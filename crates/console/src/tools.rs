//! The list of the tools that this person may see.

use std::sync::Arc;
use std::time::Duration;

use maud::{Markup, html};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use wardgate_edge::GatewayRequest;
use wardgate_mcp::meta::MAY_WRITE;

use crate::Console;
use crate::fields::{query, segment};
use crate::http::PageResult;
use crate::layout::{self, Section};
use crate::mcp::{ASK_LIMIT, GatewayClient, GatewayFault, MCP_PATH};
use crate::output::cut;
use crate::page_request::SignedInRequest;
use crate::problem::Problem;
use crate::record_access::RecordAccess;
use crate::session::SessionToken;

/// Maximum number of pages that are requested from the gateway.
const MAX_PAGES: usize = 100;

/// Maximum number of tools that are requested from the gateway.
const MAX_TOOLS: usize = 10_000;

/// Number of tools on one page.
const ON_PAGE: usize = 40;

/// The period that the link to recent records covers.
const DAY: Duration = Duration::from_hours(24);

/// Maximum number of characters of a description in the list.
const IN_LIST: usize = 280;

/// A tool as the gateway lists it. All its texts are untrusted.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GatewayTool {
    pub(crate) name: String,
    #[serde(default)]
    pub(crate) title: Option<String>,
    #[serde(default)]
    pub(crate) description: String,
    #[serde(default)]
    pub(crate) input_schema: Value,
    #[serde(default)]
    pub(crate) annotations: Map<String, Value>,
    #[serde(default, rename = "_meta")]
    pub(crate) meta: Value,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolListPage {
    tools: Vec<Value>,
    #[serde(default)]
    next_cursor: Option<String>,
}

/// Returns all tools that the gateway lists for this person.
pub(crate) async fn fetch_all(
    gateway: &GatewayClient,
    token: &SessionToken,
) -> Result<Vec<GatewayTool>, Problem> {
    let mut tools = Vec::new();
    let mut cursor: Option<String> = None;
    for _ in 0..MAX_PAGES {
        let mut params = Map::new();
        if let Some(cursor) = &cursor {
            params.insert("cursor".to_owned(), json!(cursor));
        }
        let request = GatewayRequest {
            path: MCP_PATH,
            method: "tools/list",
            name: None,
            params,
            arguments: None,
            meta: &[],
        };
        let exchange = gateway.send_request(token, request, ASK_LIMIT).await?;
        let result = exchange
            .outcome
            .map_err(|error| Problem::Refused(error.message))?;
        let page: ToolListPage =
            serde_json::from_value(result).map_err(|_| GatewayFault::Unreadable)?;
        // Tools that cannot be parsed are left out, so that the others can be used.
        let readable = page.tools.into_iter();
        tools.extend(readable.filter_map(|tool| serde_json::from_value(tool).ok()));
        match page.next_cursor {
            None => return Ok(tools),
            next if next == cursor || tools.len() > MAX_TOOLS => break,
            next => cursor = next,
        }
    }
    Err(GatewayFault::TooLarge.into())
}

impl GatewayTool {
    /// Returns the title of the tool, if it has one.
    pub(crate) fn title(&self) -> Option<&str> {
        let given = self.title.as_deref();
        given.or_else(|| self.annotations.get("title")?.as_str())
    }

    pub(crate) fn path(&self) -> String {
        format!("/console/tools/{}", segment(&self.name))
    }

    fn mentions(&self, search_text: &str) -> bool {
        let texts = [
            Some(self.name.as_str()),
            self.title(),
            Some(&self.description),
        ];
        let mut texts = texts.into_iter().flatten();
        texts.any(|text| text.to_lowercase().contains(search_text))
    }

    /// Returns whether the gateway treats the tool as one that may write although it hints that it only reads.
    fn is_distrusted(&self) -> bool {
        self.meta.get(MAY_WRITE).is_some()
    }

    /// Renders the tool's annotations, which are only hints. A hint that the tool only reads is left out if it is not trusted.
    pub(crate) fn badges(&self) -> Markup {
        let hints = [
            ("readOnlyHint", true, "only reads", "good"),
            ("destructiveHint", true, "may delete data", "bad"),
            (
                "idempotentHint",
                true,
                "repeatable without further effect",
                "",
            ),
            ("openWorldHint", true, "uses external systems", ""),
            ("readOnlyHint", false, "may change data", "warn"),
        ];
        let badges = hints
            .into_iter()
            .filter(|(name, value, ..)| self.annotations.get(*name) == Some(&Value::Bool(*value)))
            .filter(|(name, ..)| *name != "readOnlyHint" || !self.is_distrusted());
        html! {
            @if self.is_distrusted() {
                span class="badge warn" title="No setting trusts the hint of the tool that it only reads" { "may change data" }
            }
            @for (name, value, words, kind) in badges {
                span class={ "badge " (kind) } title={ "Hint of the tool: " (name) " " (value) } { (words) }
            }
        }
    }
}

/// Shows the list, filtered by the search text.
pub(crate) async fn list(console: Arc<Console>, signed_in: SignedInRequest) -> PageResult {
    let fields = signed_in.page_request.query()?;
    let search = fields.get_non_blank("q").unwrap_or_default().to_owned();
    let mut tools = fetch_all(&console.gateway, &signed_in.token).await?;
    let of_all = tools.len();
    let search_text = search.to_lowercase();
    tools.retain(|tool| tool.mentions(&search_text));
    let pages = tools.len().div_ceil(ON_PAGE).max(1);
    let page = fields.get("page").and_then(|page| page.parse().ok());
    let page = page.unwrap_or(1).clamp(1, pages);
    let listed = tools.iter().skip((page - 1) * ON_PAGE).take(ON_PAGE);
    let to = |page: usize| {
        let page = page.to_string();
        format!(
            "/console/tools?{}",
            query([("q", search.as_str()), ("page", page.as_str())])
        )
    };
    let content = html! {
        h1 { "Tools" }
        @if of_all == 0 { (without_tools(&console, signed_in.viewer.record)) }
        @else {
            p.quiet { "The tools that you may call. Other tools are not listed." }
            form.search method="get" action="/console/tools" role="search" {
                label for="q" { "Find" }
                input #q type="search" name="q" value=(search);
                button { "Find" }
                @if !search.is_empty() { a href="/console/tools" { "Show all" } }
            }
            p #count role="status" {
                @if search.is_empty() { (of_all) @if of_all == 1 { " tool" } @else { " tools" } }
                @else { (tools.len()) " of " (of_all) " tools" }
            }
        }
        ul.cards {
            @for tool in listed {
                li {
                    h2 { a href=(tool.path()) { (tool.name) } }
                    @if let Some(title) = tool.title() { p.title { (title) } }
                    p { (cut(&tool.description, IN_LIST)) }
                    p { (tool.badges()) }
                }
            }
        }
        @if pages > 1 {
            nav.pages aria-label="Pages" {
                @if page > 1 { a href=(to(page - 1)) rel="prev" { "Previous" } }
                span { "Page " (page) " of " (pages) }
                @if page < pages { a href=(to(page + 1)) rel="next" { "Next" } }
            }
        }
    };
    Ok(layout::page(
        &signed_in.viewer,
        Section::Tools,
        "Tools",
        &content,
    ))
}

/// Renders what a person without tools can do in the console, which is typically an auditor.
fn without_tools(console: &Console, access: RecordAccess) -> Markup {
    let of = |filter: &[(&str, &str)]| format!("/console/record?{}", query(filter.iter().copied()));
    let day_ago = console.ambient.now().minus(DAY).to_string();
    let since = day_ago.get(..16).unwrap_or_default();
    html! {
        p #count role="status" { "Your roles may not call any tool. The following pages are available to you:" }
        ul.cards.links {
            @match access {
                RecordAccess::All => {
                    li {
                        h2 { a href="/console/record" { "The record" } }
                        p { "All calls and their outcomes, newest first, with filters and a download." }
                    }
                    li {
                        h2 { a href=(of(&[("status", "denied")])) { "Refused calls" } }
                        p { "Calls that the policy did not permit." }
                    }
                    li {
                        h2 { a href=(of(&[("status", "error")])) { "Failed calls" } }
                        p { "Calls that were permitted and failed." }
                    }
                    li {
                        h2 { a href=(of(&[("since", since)])) { "The last 24 hours" } }
                        p { "Everything since " (since.replace('T', " ")) " UTC." }
                    }
                }
                RecordAccess::Own => li {
                    h2 { a href="/console/record" { "Your calls" } }
                    p { "Your recorded calls." }
                },
                RecordAccess::None => {}
            }
            li {
                h2 { a href="/console/policy" { "Your rights" } }
                p { "The claims of your token, and your access. The tools that you may call depend on your roles." }
            }
        }
    }
}
