//! One tool: what it is, a form for a call of it, and what came of that.

use std::sync::Arc;

use maud::{Markup, html};
use serde_json::{Map, Value, json};
use wardgate_domain::CallId;

use crate::Console;
use crate::asked::Visit;
use crate::fields::{Fields, query};
use crate::form::Form;
use crate::http::Answer;
use crate::layout::{self, Part};
use crate::mcp::{CALL_LIMIT, Exchange, Request, RpcError};
use crate::output::{pretty, pretty_text, structured, text};
use crate::problem::Problem;
use crate::tools::{self, Tool};

/// Under one key a tool that may write runs once: a page that is loaded again does not repeat its call.
const KEY: &str = "key";

/// The page, and the call of its form.
pub(crate) async fn page(console: Arc<Console>, mut visit: Visit) -> Answer {
    let name = visit.asked.name().await?;
    let mut tools = tools::all(&console.gateway, &visit.token)
        .await?
        .into_iter();
    // One that is not there and one that this person may not see are one and the same.
    let tool = tools
        .find(|tool| tool.name == name)
        .ok_or(Problem::Unknown)?;
    let form = Form::of(&tool.input_schema);
    if !visit.asked.is_post() {
        let content = whole(&console, &tool, &form.fields(None, &[]), None);
        return Ok(layout::page(
            &visit.caller,
            Part::Tools,
            &tool.name,
            &content,
        ));
    }
    let fields = visit.asked.form()?;
    let (wrong, outcome) = match form.filled(&fields) {
        Err(wrong) => (wrong, None),
        Ok(arguments) => {
            let mut params = Map::new();
            params.insert("name".to_owned(), json!(tool.name));
            let key = own_key(&fields).unwrap_or_else(|| new_key(&console));
            let request = Request {
                method: "tools/call",
                name: Some(&tool.name),
                params,
                arguments: Some(&arguments),
                meta: &[("dev.wardgate/idempotencyKey", &key)],
                limit: CALL_LIMIT,
            };
            let exchange = console.gateway.ask(&visit.token, request).await?;
            (Vec::new(), Some(result(&exchange)))
        }
    };
    let fields = form.fields(Some(&fields), &wrong);
    let content = whole(&console, &tool, &fields, outcome.as_ref());
    Ok(layout::page(
        &visit.caller,
        Part::Tools,
        &tool.name,
        &content,
    ))
}

fn new_key(console: &Console) -> String {
    CallId::new(&console.ambient).to_string()
}

/// The key that the form was made with.
fn own_key(fields: &Fields) -> Option<String> {
    let key: CallId = fields.get(KEY)?.parse().ok()?;
    Some(key.to_string())
}

fn whole(console: &Console, tool: &Tool, fields: &Markup, result: Option<&Markup>) -> Markup {
    html! {
        p { a href="/console/tools" { "All tools" } }
        h1 { (tool.name) }
        @if let Some(title) = tool.title() { p.title { (title) } }
        p { (tool.badges()) }
        @if !tool.description.is_empty() { p.words { (crate::output::cut(&tool.description, 4_000)) } }
        div.two {
            section aria-labelledby="call" {
                h2 #call { "Call it" }
                form method="post" action={ (tool.path()) "#result" } {
                    input type="hidden" name=(KEY) value=(new_key(console));
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
                @else { p.quiet { "Calls are made in your name, decided by the policy, and put on record." } }
            }
        }
    }
}

/// What came of a call.
fn result(exchange: &Exchange) -> Markup {
    let (told, meta) = match &exchange.outcome {
        Ok(result) => (of_tool(result), &result["_meta"]),
        Err(error) => (refused(error), &error.data),
    };
    html! {
        (told)
        (on_record(meta))
        details {
            summary { "JSON-RPC" }
            h3 { "Request" }
            (text("Request", &pretty_text(&exchange.request)))
            h3 { "Answer" }
            (text("Answer", &pretty_text(&exchange.answer)))
        }
    }
}

/// The tool's own answer, which may say that it failed; or the policy's no to these arguments.
fn of_tool(result: &Value) -> Markup {
    let is_error = result["isError"] == json!(true);
    let denied = is_error && result["_meta"]["dev.wardgate/decisionId"].is_string();
    let table = result
        .get("structuredContent")
        .filter(|value| !value.is_null());
    let contents = result["content"].as_array();
    let contents = || contents.into_iter().flatten();
    html! {
        @if denied { p.notice.bad #outcome role="status" { "Refused by the policy." } }
        @else if is_error { p.notice.bad #outcome role="status" { "It failed; the answer says why." } }
        @else { p.notice.good #outcome role="status" { "Done." } }
        @match table {
            Some(table) => {
                (structured(table))
                details { summary { "As text" } @for content in contents() { (block(content)) } }
            }
            None => { @for content in contents() { (block(content)) } }
        }
    }
}

/// One block of content. What is no text is named and not shown.
fn block(content: &Value) -> Markup {
    let kind = content["type"].as_str().unwrap_or("unknown");
    match (kind, content["text"].as_str()) {
        ("text", Some(said)) => text("Text", said),
        ("resource", _) if content["resource"]["text"].is_string() => text(
            "Resource",
            content["resource"]["text"].as_str().unwrap_or_default(),
        ),
        _ => {
            let media = content["mimeType"].as_str().unwrap_or("of no named kind");
            html! { p.quiet { "A piece of content that is not shown here: " (kind) ", " (media) "." } }
        }
    }
}

fn refused(error: &RpcError) -> Markup {
    html! {
        p.notice.bad #outcome role="status" { "Refused: " (error.message) }
        p.quiet { "JSON-RPC error " (error.code)
            @if let Some(reason) = error.data["reason"].as_str() { ", " (reason) } }
    }
}

/// Where the call is on record.
fn on_record(meta: &Value) -> Markup {
    let call = meta["dev.wardgate/callId"].as_str();
    html! {
        @if let Some(call) = call {
            dl.facts {
                dt { "Call" }
                dd { a href={ "/console/record?" (query([("call_id", call)])) } { code { (call) } } }
                @if let Some(decision) = meta["dev.wardgate/decisionId"].as_str() {
                    dt { "Decision" }
                    dd { code { (decision) } }
                }
            }
        }
    }
}
