//! The pages of calls that wait for a person's approval: the list of them, and one call with its arguments and two
//! equal buttons.

use std::sync::Arc;

use maud::{Markup, html};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, json};
use wardgate_domain::{WaitingCall, indent_json};
use wardgate_edge::GatewayRequest;

use crate::Console;
use crate::fields::segment;
use crate::http::PageResult;
use crate::layout::{self, Section};
use crate::mcp::{ASK_LIMIT, GatewayFault, MCP_PATH};
use crate::page_request::SignedInRequest;
use crate::problem::Problem;
use crate::problem_page::see_other;

const PATH: &str = "/console/approvals";

/// Form field: the person for whom the page was rendered.
const PERSON: &str = "person";

/// Form field: the decision.
const DECISION: &str = "decision";

fn path_of(call: &WaitingCall) -> String {
    format!("{PATH}/{}", segment(&call.id))
}

/// Lists the calls that this person may decide about.
pub(crate) async fn list(console: Arc<Console>, signed_in: SignedInRequest) -> PageResult {
    #[derive(Deserialize)]
    struct ApprovalList {
        approvals: Vec<WaitingCall>,
    }
    let ApprovalList { approvals } =
        send_request(&console, &signed_in, "approvals/list", None).await?;
    let content = html! {
        h1 { "Approvals" }
        p.quiet { "Calls that a policy permits only after you have approved them. Each runs once, with exactly these arguments." }
        @if approvals.is_empty() { p role="status" { "No call waits for your approval." } }
        ul.cards {
            @for call in &approvals {
                li {
                    h2 { a href=(path_of(call)) { (call.tool) } }
                    p { "Called by " (call.caller.subject) }
                    p.quiet { "Since " (call.requested_at) ", until " (call.expires_at) }
                }
            }
        }
    };
    let viewer = &signed_in.viewer;
    Ok(layout::page(
        viewer,
        Section::Approvals,
        "Approvals",
        &content,
    ))
}

/// Shows one call with its arguments, or handles the decision of its form.
pub(crate) async fn page(console: Arc<Console>, mut signed_in: SignedInRequest) -> PageResult {
    #[derive(Deserialize)]
    struct OneApproval {
        approval: WaitingCall,
    }
    let id = signed_in.page_request.name().await?;
    if signed_in.page_request.is_post() {
        return decide(&console, &signed_in, &id).await;
    }
    let found = send_request(&console, &signed_in, "approvals/get", Some(&id)).await?;
    let OneApproval { approval: call } = found;
    let content = waiting_call(&signed_in, &call);
    let viewer = &signed_in.viewer;
    Ok(layout::page(
        viewer,
        Section::Approvals,
        &call.tool,
        &content,
    ))
}

fn waiting_call(signed_in: &SignedInRequest, call: &WaitingCall) -> Markup {
    let person = signed_in.viewer.caller.person().to_string();
    html! {
        p { a href=(PATH) { "Approvals" } }
        h1 { (call.tool) }
        dl.facts {
            dt { "Caller" } dd { (call.caller.subject) }
            dt { "Issuer" } dd { (call.caller.issuer) }
            dt { "Needs" } dd { "an approval by " (call.approvers) }
            dt { "Since" } dd { (call.requested_at) }
            dt { "Until" } dd { (call.expires_at) }
        }
        h2 { "Arguments" }
        p.quiet { "The call runs once, with exactly these arguments, when its caller repeats it." }
        pre tabindex="0" { (indent_json(call.arguments.as_deref().unwrap_or_default())) }
        form.bar method="post" action=(path_of(call)) {
            input type="hidden" name=(PERSON) value=(person);
            button.plain name=(DECISION) value="refuse" { "Refuse" }
            button.plain name=(DECISION) value="approve" { "Approve" }
        }
    }
}

/// Sends the decision of the form to the gateway and redirects to the list.
async fn decide(console: &Console, signed_in: &SignedInRequest, id: &str) -> PageResult {
    let fields = signed_in.page_request.form()?;
    if !signed_in.is_of_own_page(fields.get_non_blank(PERSON)) {
        return Err(Problem::OtherPerson);
    }
    let method = match fields.get_non_blank(DECISION) {
        Some("approve") => "approvals/approve",
        Some("refuse") => "approvals/refuse",
        _ => {
            return Err(Problem::Input("The form contains no decision.".to_owned()));
        }
    };
    let _decided: Map<_, _> = send_request(console, signed_in, method, Some(id)).await?;
    Ok(see_other(PATH))
}

async fn send_request<T: DeserializeOwned>(
    console: &Console,
    signed_in: &SignedInRequest,
    method: &str,
    id: Option<&str>,
) -> Result<T, Problem> {
    let params = id.map(|id| ("id".to_owned(), json!(id)));
    let request = GatewayRequest {
        path: MCP_PATH,
        method,
        name: None,
        params: params.into_iter().collect(),
        arguments: None,
        meta: &[],
    };
    let exchange = console
        .gateway
        .send_request(&signed_in.token, request, ASK_LIMIT);
    let result = exchange.await?.outcome;
    let result = result.map_err(|error| Problem::Refused(error.message))?;
    Ok(serde_json::from_value(result).map_err(|_| GatewayFault::Unreadable)?)
}
