//! The pages of one tool: its description, a form to call it, and a page for each call with the result.

use std::sync::Arc;

use http::{HeaderValue, StatusCode, header};
use maud::{Markup, html};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use wardgate_domain::{CallId, Timestamp, indent_json};
use wardgate_edge::GatewayRequest;
use wardgate_mcp::message::ErrorObject;
use wardgate_mcp::meta;

use crate::Console;
use crate::fields::{FormFields, query};
use crate::form::Form;
use crate::http::PageResult;
use crate::layout::{self, Section};
use crate::mcp::{CALL_LIMIT, Exchange, GatewayFault, MCP_PATH};
use crate::output::{pretty, structured_result, text};
use crate::page_request::{SignedInRequest, Viewer};
use crate::problem::Problem;
use crate::problem_page::see_other;
use crate::record_access::RecordAccess;
use crate::results::{CallOutcome, SubmittedCall, result_id};
use crate::tools::{self, GatewayTool};

/// Form field: the unique key of the form. A form that is submitted twice calls the tool once.
const KEY: &str = "key";

/// Form field: the person for whom the page was rendered.
const PERSON: &str = "person";

/// Seconds after which the page of a running call reloads.
const LOOK_AGAIN: HeaderValue = HeaderValue::from_static("2");

/// Shows the tool with an empty form, or handles the submitted form.
pub(crate) async fn page(console: Arc<Console>, mut signed_in: SignedInRequest) -> PageResult {
    let name = signed_in.page_request.name().await?;
    if signed_in.page_request.is_post() {
        return submit(&console, &signed_in, &name).await;
    }
    let tool = tool(&console, &signed_in, &name).await?;
    let content = whole(
        &console,
        &signed_in.viewer,
        &tool,
        &Form::from_schema(&tool.input_schema).fields(None, &[]),
        None,
    );
    Ok(layout::page(
        &signed_in.viewer,
        Section::Tools,
        &tool.name,
        &content,
    ))
}

/// Returns the tool of this name. A tool that does not exist and one that this person may not see are not
/// distinguished.
async fn tool(
    console: &Console,
    signed_in: &SignedInRequest,
    name: &str,
) -> Result<GatewayTool, Problem> {
    let tools = tools::fetch_all(&console.gateway, &signed_in.token).await?;
    let mut tools = tools.into_iter();
    tools.find(|tool| tool.name == name).ok_or(Problem::Unknown)
}

/// Calls the tool once for each form and redirects to the page of the call.
async fn submit(console: &Console, signed_in: &SignedInRequest, name: &str) -> PageResult {
    let fields = signed_in.page_request.form()?;
    let person = fields.get_non_blank(PERSON);
    let is_own = signed_in.is_of_own_page(person);
    // The page of another person may be about a tool that is hidden from the person who is signed in now.
    if person.is_some() && !is_own {
        return Err(Problem::OtherPerson);
    }
    let tool = &tool(console, signed_in, name).await?;
    if !is_own {
        return Err(Problem::OtherPerson);
    }
    let caller = &signed_in.viewer.caller;
    let key = own_key(&fields).unwrap_or_else(|| new_key(console));
    let id = result_id(caller, &tool.name, &key, &signed_in.page_request.body);
    let filled = Form::from_schema(&tool.input_schema).read_arguments(&fields);
    let call = SubmittedCall {
        tool: tool.name.clone(),
        fields,
        at_micros: console.ambient.now().as_micros(),
        outcome: None,
    };
    let path = format!("/console/calls/{id}");
    let begun = console.store.begin(id.clone(), caller, call).await;
    // If the form was submitted before, its call is running or has finished.
    let Some(running) = begun.map_err(|_| Problem::NoStore)? else {
        return Ok(see_other(&format!("{path}#result")));
    };
    let mut call: Option<CallId> = None;
    let outcome = match filled {
        Err(wrong) => CallOutcome::Invalid(wrong),
        Ok(arguments) => match call_tool(console, signed_in, tool, &arguments, &id).await {
            Ok(exchange) => {
                let id = exchange.meta()[meta::CALL_ID].as_str();
                call = id.and_then(|id| id.parse().ok());
                let Exchange {
                    request, answer, ..
                } = exchange;
                CallOutcome::Answered { request, answer }
            }
            Err(fault) => CallOutcome::Failed(fault),
        },
    };
    let finished = running.finish(outcome).await;
    finished.map_err(|_| Problem::ResultLost(call))?;
    let call = call.map(|call| format!("?call={call}")).unwrap_or_default();
    Ok(see_other(&format!("{path}{call}#result")))
}

/// Calls `tool`. A tool that may write runs only once for one key.
async fn call_tool(
    console: &Console,
    signed_in: &SignedInRequest,
    tool: &GatewayTool,
    arguments: &RawValue,
    key: &str,
) -> Result<Exchange, GatewayFault> {
    let mut params = Map::new();
    params.insert("name".to_owned(), json!(tool.name));
    let request = GatewayRequest {
        path: MCP_PATH,
        method: "tools/call",
        name: Some(&tool.name),
        params,
        arguments: Some(arguments),
        meta: &[(meta::IDEMPOTENCY_KEY, key)],
    };
    let exchange = console
        .gateway
        .send_request(&signed_in.token, request, CALL_LIMIT);
    exchange.await
}

/// Shows the result of a call and its form for another call. Loading this page never calls the tool.
pub(crate) async fn call(console: Arc<Console>, mut signed_in: SignedInRequest) -> PageResult {
    let id = signed_in.page_request.name().await?;
    let stored = console.store.get(&id, &signed_in.viewer.caller).await;
    let Some(call) = stored.map_err(|_| Problem::NoStore)? else {
        let call = signed_in.page_request.query()?.get("call").map(str::parse);
        return Err(Problem::NoResult(call.and_then(Result::ok)));
    };
    let tool = tool(&console, &signed_in, &call.tool).await?;
    let mut wrong: &[(String, String)] = &[];
    let mut status = StatusCode::OK;
    let rendered = match &call.outcome {
        None => running_notice(),
        Some(CallOutcome::Invalid(faults)) => {
            (wrong, status) = (faults, StatusCode::UNPROCESSABLE_ENTITY);
            invalid_notice()
        }
        Some(CallOutcome::Answered { request, answer }) => {
            let exchange = Exchange::reread(request.clone(), answer.clone());
            let exchange = exchange.ok_or(GatewayFault::Unreadable)?;
            result(&exchange, signed_in.viewer.record)
        }
        Some(CallOutcome::Failed(fault)) => fault_notice(*fault),
        Some(CallOutcome::Interrupted) => interruption_notice(),
    };
    let at = Timestamp::from_micros(call.at_micros).to_string();
    let at_words = at.get(..19).unwrap_or(&at).replace('T', " at ");
    let rendered = html! {
        p.quiet {
            "Sent by you on " time datetime=(at) { (at_words) } " UTC. Reloading this page does not repeat the call."
        }
        (rendered)
    };
    let fields = Form::from_schema(&tool.input_schema).fields(Some(&call.fields), wrong);
    let content = whole(&console, &signed_in.viewer, &tool, &fields, Some(&rendered));
    let mut page = layout::page_with_status(
        status,
        &signed_in.viewer,
        Section::Tools,
        &tool.name,
        &content,
    );
    if call.outcome.is_none() {
        page.headers_mut().insert(header::REFRESH, LOOK_AGAIN);
    }
    Ok(page)
}

fn running_notice() -> Markup {
    html! { p.notice.warn role="status" { "The call is running. This page reloads every two seconds." } }
}

fn invalid_notice() -> Markup {
    html! { p.notice.bad #outcome role="status" { "Nothing was called: correct the marked fields of the form." } }
}

fn fault_notice(fault: GatewayFault) -> Markup {
    html! { p.notice.bad #outcome role="status" { "The gateway did not answer. " (fault.words()) } }
}

fn interruption_notice() -> Markup {
    html! {
        p.notice.bad #outcome role="status" {
            "The browser disconnected before the answer, which cancelled the call. The audit record contains the outcome."
        }
    }
}

fn new_key(console: &Console) -> String {
    CallId::new(&console.ambient).to_string()
}

/// Returns the key that was generated with the form.
fn own_key(fields: &FormFields) -> Option<String> {
    let key: CallId = fields.get(KEY)?.parse().ok()?;
    Some(key.to_string())
}

fn whole(
    console: &Console,
    viewer: &Viewer,
    tool: &GatewayTool,
    fields: &Markup,
    result: Option<&Markup>,
) -> Markup {
    html! {
        p { a href="/console/tools" { "All tools" } }
        h1 { (tool.name) }
        @if let Some(title) = tool.title() { p.title { (title) } }
        p { (tool.badges()) }
        @if !tool.description.is_empty() { p.words { (crate::output::cut(&tool.description, 4_000)) } }
        div.two {
            section aria-labelledby="call" {
                h2 #call { "Call the tool" }
                form method="post" action=(tool.path()) {
                    input type="hidden" name=(KEY) value=(new_key(console));
                    input type="hidden" name=(PERSON) value=(viewer.caller.person());
                    (fields)
                    button { "Call" }
                }
                details {
                    summary { "Input schema" }
                    (text("Input schema", &pretty(&tool.input_schema)))
                }
            }
            section aria-labelledby="result" {
                h2 #result tabindex="-1" { "Result" }
                @if let Some(result) = result { (result) }
                @else { p.quiet { "Calls are made in your name, are subject to the policies, and are recorded." } }
            }
        }
    }
}

/// Renders the outcome of a call.
fn result(exchange: &Exchange, access: RecordAccess) -> Markup {
    let outcome = match &exchange.outcome {
        Ok(result) => of_tool(result),
        Err(error) => refusal_notice(error),
    };
    html! {
        (outcome)
        (on_record(exchange.meta(), access))
        details {
            summary { "JSON-RPC" }
            h3 { "Request" }
            (text("Request", &indent_json(&exchange.request)))
            h3 { "Answer" }
            (text("Answer", &indent_json(&exchange.answer)))
        }
    }
}

/// Renders the result of a tool, which may be an error, or the policy's denial of these arguments.
fn of_tool(result: &Value) -> Markup {
    let is_error = result["isError"] == json!(true);
    let denied = is_error && result["_meta"][meta::DECISION_ID].is_string();
    let table = result
        .get("structuredContent")
        .filter(|value| !value.is_null());
    let contents = result["content"].as_array();
    let contents = || contents.into_iter().flatten();
    html! {
        @if denied { p.notice.bad #outcome role="status" { "Refused by the policy." } }
        @else if is_error { p.notice.bad #outcome role="status" { "The call failed; the answer contains the reason." } }
        @else { p.notice.good #outcome role="status" { "Done." } }
        @match table {
            Some(table) => {
                (structured_result(table))
                details { summary { "As text" } @for content in contents() { (block(content)) } }
            }
            None => { @for content in contents() { (block(content)) } }
        }
    }
}

/// Renders one content block. A block that is not text is named but not shown.
fn block(content: &Value) -> Markup {
    let kind = content["type"].as_str().unwrap_or("unknown");
    match (kind, content["text"].as_str()) {
        ("text", Some(content)) => text("Text", content),
        ("resource", _) if content["resource"]["text"].is_string() => text(
            "Resource",
            content["resource"]["text"].as_str().unwrap_or_default(),
        ),
        _ => {
            let media = content["mimeType"].as_str().unwrap_or("of unknown type");
            html! { p.quiet { "Content that cannot be shown here: " (kind) ", " (media) "." } }
        }
    }
}

fn refusal_notice(error: &ErrorObject) -> Markup {
    html! {
        p.notice.bad #outcome role="status" { "Refused: " (error.message) }
        p.quiet { "JSON-RPC error " (error.code)
            @if let Some(reason) = error.data["reason"].as_str() { ", " (reason) } }
    }
}

/// Renders the ids of the recorded call, with a link if this person may read the record.
fn on_record(meta: &Value, access: RecordAccess) -> Markup {
    let is_linked = access != RecordAccess::None;
    let call = meta[meta::CALL_ID].as_str();
    html! {
        @if let Some(call) = call {
            dl.facts {
                dt { "Call" }
                dd {
                    @if is_linked { a href={ "/console/record?" (query([("call_id", call)])) } { code { (call) } } }
                    @else { code { (call) } }
                }
                @if let Some(decision) = meta[meta::DECISION_ID].as_str() {
                    dt { "Decision" }
                    dd { code { (decision) } }
                }
            }
        }
    }
}
