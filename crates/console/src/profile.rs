//! The profile of the person who is signed in: the claims of the token and the resulting rights.

use std::sync::Arc;

use maud::html;
use wardgate_domain::AttributeValue;

use crate::Console;
use crate::http::PageResult;
use crate::layout::{self, Section};
use crate::page_request::SignedInRequest;
use crate::record_access::RecordAccess;
use crate::tools;

/// Renders the page. It cannot show whether one particular call is allowed, because rights can depend on arguments and
/// rows.
pub(crate) async fn page(console: Arc<Console>, signed_in: SignedInRequest) -> PageResult {
    let (caller, access) = (&signed_in.viewer.caller, signed_in.viewer.record);
    let tools = tools::fetch_all(&console.gateway, &signed_in.token).await?;
    let content = html! {
        h1 { "Your rights" }
        p.quiet { "Policies decide on the basis of your token. Whether a call is allowed, and which rows and columns it returns, can \
                   depend on its arguments, so this page cannot show it." }
        h2 { "Your identity" }
        dl.facts {
            dt { "Subject" } dd { (caller.subject()) }
            dt { "Issuer" } dd { (caller.issuer()) }
            @if !caller.tenant().is_empty() { dt { "Tenant" } dd { (caller.tenant()) } }
            dt { "Roles" } dd { @if caller.roles().is_empty() { "none" } @else { (caller.roles().join(", ")) } }
            @for (name, value) in caller.attributes() { dt { (name) } dd { (words(value)) } }
            dt { "Token expires" } dd { (caller.expires_at()) }
        }
        h2 { "Your access" }
        dl.facts {
            dt { "Tools" }
            dd { @if tools.is_empty() { "none" } @else { a href="/console/tools" { (tools.len()) " that you may call" } } }
            dt { "Record" }
            dd { @match access {
                RecordAccess::All => { a href="/console/record" { "the calls of all users" } }
                RecordAccess::Own => { a href="/console/record" { "your own calls" } }
                RecordAccess::None if console.record.is_none() => { "not connected to this console" }
                RecordAccess::None => { "no access" }
            } }
        }
    };
    Ok(layout::page(
        &signed_in.viewer,
        Section::Policy,
        "Your rights",
        &content,
    ))
}

fn words(value: &AttributeValue) -> String {
    match value {
        AttributeValue::Text(text) => text.clone(),
        AttributeValue::Integer(number) => number.to_string(),
        AttributeValue::Boolean(truth) => truth.to_string(),
        AttributeValue::List(items) => items.join(", "),
    }
}
