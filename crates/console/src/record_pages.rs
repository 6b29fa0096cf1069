//! The record: newest first, filtered; one record with all it holds; and a download.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use http::header;
use maud::{Markup, html};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use wardgate_domain::{Status, Timestamp};
use wardgate_rpc::client::{AuditFilter, StoredRecord};

use crate::Console;
use crate::asked::Visit;
use crate::fields::{Fields, query};
use crate::http::Answer;
use crate::layout::{self, Part};
use crate::output::cut;
use crate::problem::Problem;
use crate::record::{Most, Read, Record};

/// One page.
const ON_PAGE: Most = Most {
    records: 50,
    bytes: 8 << 20,
};

/// One record.
const ONE: Most = Most {
    records: 1,
    bytes: 1 << 20,
};

/// One download.
const IN_FILE: Most = Most {
    records: 5_000,
    bytes: 8 << 20,
};

/// Fields of the filter, in the order of the form: `audit query` has the same.
const FILTER: [&str; 6] = ["subject", "tool", "call_id", "status", "since", "until"];

/// The list.
pub(crate) async fn list(console: Arc<Console>, visit: Visit) -> Answer {
    let fields = visit.asked.query()?;
    let read = read(&console, &visit, &fields, ON_PAGE).await?;
    let filter: Vec<_> = FILTER
        .iter()
        .filter_map(|name| Some((*name, fields.filled(name)?)))
        .collect();
    let older = read.more_before.map(|before| {
        let before = before.to_string();
        let pairs = filter.iter().copied().chain([("before", before.as_str())]);
        format!("/console/record?{}", query(pairs))
    });
    let download = format!("/console/record.jsonl?{}", query(filter.iter().copied()));
    let content = html! {
        h1 { "Record" }
        p.quiet { "What everybody did here, newest first. That you look is on record too." }
        (form(&fields))
        (table(&read)?)
        nav.pages aria-label="Pages" {
            @if fields.filled("before").is_some() {
                a href={ "/console/record?" (query(filter.iter().copied())) } { "Newest" }
            }
            @if let Some(older) = older { a href=(older) rel="next" { "Older" } }
            @if !read.records.is_empty() {
                a href=(download) download="record.jsonl" { "Download as JSON Lines" }
                span.quiet { "at most " (IN_FILE.records) " records or 8 MiB" }
            }
        }
    };
    Ok(layout::page(
        &visit.caller,
        Part::Record,
        "Record",
        &content,
    ))
}

/// All that one record holds.
pub(crate) async fn entry(console: Arc<Console>, mut visit: Visit) -> Answer {
    let sequence: u64 = visit
        .asked
        .name()
        .await?
        .parse()
        .map_err(|_| Problem::Unknown)?;
    let filter = AuditFilter {
        from_sequence: sequence,
        before_sequence: sequence.checked_add(1),
        ..AuditFilter::default()
    };
    let asked = format!("sequence={sequence}");
    let mut read = record(&console)?.read(&visit, &asked, filter, ONE).await?;
    let stored = read.records.pop().ok_or(Problem::Unknown)?;
    let members = members(&stored)?;
    let call = members.get("call_id").and_then(Value::as_str);
    let title = format!("Record {sequence}");
    let content = html! {
        p { a href="/console/record" { "The whole record" } }
        h1 { (title) }
        @if let Some(call) = call {
            p { a href={ "/console/record?" (query([("call_id", call)])) } { "Everything about this call" } }
        }
        div.scroll tabindex="0" role="region" aria-label=(title) {
            table.members {
                thead { tr { th scope="col" { "Member" } th scope="col" { "Value" } } }
                tbody {
                    @for (name, value) in flat(&members) {
                        tr { th scope="row" { (name) } td { code { (cut(&value, 4_000)) } } }
                    }
                    tr { th scope="row" { "leaf hash" } td { code { (stored.leaf_hash) } } }
                }
            }
        }
        p.quiet { "The leaf hash is SHA-256 over a zero byte and the record as it is stored (RFC 6962)." }
    };
    Ok(layout::page(&visit.caller, Part::Record, &title, &content))
}

/// One line of a download: the record's bytes as they are stored, so that the leaf hash can be checked.
#[derive(Serialize)]
struct Line<'a> {
    sequence: u64,
    leaf_hash: String,
    record: &'a RawValue,
}

/// What the filter shows, as a file.
pub(crate) async fn download(console: Arc<Console>, visit: Visit) -> Answer {
    let fields = visit.asked.query()?;
    let read = read(&console, &visit, &fields, IN_FILE).await?;
    let mut lines = String::new();
    for stored in &read.records {
        let line = serde_json::from_slice(&stored.record).and_then(|record| {
            serde_json::to_string(&Line {
                sequence: stored.sequence,
                leaf_hash: stored.leaf_hash.to_string(),
                record,
            })
        });
        lines.push_str(&line.map_err(|_| Problem::RecordAway)?);
        lines.push('\n');
    }
    let headers = [
        (header::CONTENT_TYPE, "application/x-ndjson"),
        (
            header::CONTENT_DISPOSITION,
            "attachment; filename=\"record.jsonl\"",
        ),
    ];
    Ok::<Response, Problem>((headers, lines).into_response())
}

fn record(console: &Console) -> Result<&Record, Problem> {
    console.record.as_ref().ok_or(Problem::NoRecord)
}

async fn read(
    console: &Console,
    visit: &Visit,
    fields: &Fields,
    most: Most,
) -> Result<Read, Problem> {
    let record = record(console)?;
    let filter = filter(fields)?;
    let asked = FILTER.iter().chain(&["before"]);
    let asked = query(asked.filter_map(|name| Some((*name, fields.filled(name)?))));
    record.read(visit, &asked, filter, most).await
}

fn filter(fields: &Fields) -> Result<AuditFilter, Problem> {
    let wrong = |what: &str| Problem::Input(what.to_owned());
    let text = |name| fields.filled(name).map(ToOwned::to_owned);
    let status = fields.filled("status").map(|word| {
        let known = Status::ALL
            .into_iter()
            .find(|status| status.as_str() == word);
        known.ok_or_else(|| wrong("Choose an outcome from the list."))
    });
    let time = |name| {
        let given = fields.filled(name).map(time);
        let wrong = || wrong("Write times as 2026-01-31T08:00, in UTC.");
        given.map(|time| time.ok_or_else(wrong)).transpose()
    };
    let before = fields.filled("before").map(str::parse);
    Ok(AuditFilter {
        subject: text("subject"),
        tool: text("tool"),
        call_id: match fields.filled("call_id") {
            Some(id) => {
                let id: Result<wardgate_domain::CallId, _> = id.parse();
                let id = id.map_err(|_| wrong("A call's id is a UUID."))?;
                Some(id.to_string())
            }
            None => None,
        },
        status: status.transpose()?,
        since: time("since")?,
        until: time("until")?,
        before_sequence: before.transpose().map_err(|_| Problem::Unknown)?,
        ..AuditFilter::default()
    })
}

/// A time as browsers write it (without a zone, taken as UTC), or whole.
fn time(text: &str) -> Option<Timestamp> {
    let whole = [text.to_owned(), format!("{text}Z"), format!("{text}:00Z")];
    whole.iter().find_map(|text| text.parse().ok())
}

fn form(fields: &Fields) -> Markup {
    let value = |name| fields.filled(name).unwrap_or_default();
    html! {
        form.filter method="get" action="/console/record" role="search" {
            div { label for="subject" { "Who" } input #subject name="subject" value=(value("subject")) autocomplete="off"; }
            div { label for="tool" { "Tool" } input #tool name="tool" value=(value("tool")) autocomplete="off"; }
            div {
                label for="status" { "Outcome" }
                select #status name="status" {
                    option value="" { "any" }
                    @for status in Status::ALL {
                        option value=(status.as_str()) selected[value("status") == status.as_str()] { (status.as_str()) }
                    }
                }
            }
            div { label for="since" { "Since (UTC)" } input #since type="datetime-local" name="since" value=(value("since")); }
            div { label for="until" { "Until (UTC)" } input #until type="datetime-local" name="until" value=(value("until")); }
            div { label for="call_id" { "Call" } input #call_id name="call_id" value=(value("call_id")) autocomplete="off" spellcheck="false"; }
            div.act { button { "Show" } a href="/console/record" { "Reset" } }
        }
    }
}

fn table(read: &Read) -> Result<Markup, Problem> {
    let rows: Result<Vec<_>, _> = read.records.iter().map(row).collect();
    let rows = rows?;
    Ok(html! {
        @if read.records.is_empty() {
            p role="status" { @if read.more_before.is_some() { "None of the newest. Older ones may match." } @else { "No record matches." } }
        } @else {
            div.scroll tabindex="0" role="region" aria-label="Records" {
                table {
                    thead { tr {
                        th scope="col" { "Time (UTC)" } th scope="col" { "Who" } th scope="col" { "What" }
                        th scope="col" { "Outcome" } th.number scope="col" { "Rows" } th.number scope="col" { "Withheld" }
                        th.number scope="col" { "Masked" } th scope="col" { "Record" }
                    } }
                    tbody { @for row in &rows { (row) } }
                }
            }
        }
    })
}

/// What a record holds.
fn members(stored: &StoredRecord) -> Result<Map<String, Value>, Problem> {
    serde_json::from_slice(&stored.record).map_err(|_| Problem::RecordAway)
}

fn row(stored: &StoredRecord) -> Result<Markup, Problem> {
    let members = members(stored)?;
    let text = |name: &str| members.get(name).and_then(Value::as_str);
    let number = |name: &str| members.get(name).and_then(Value::as_u64);
    let caller = members.get("caller");
    let subject = caller.and_then(|caller| caller["subject"].as_str());
    let roles = caller.and_then(|caller| caller["roles"].as_array());
    let roles: Vec<&str> = roles
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let event = text("event").unwrap_or_default();
    let method = text("method").or_else(|| text("action"));
    let what = ["tool", "requested_tool", "conversation", "target"];
    let what = what.into_iter().find_map(text);
    let status = text("status").unwrap_or(event);
    let kind = match status {
        "ok" => "good",
        "denied" | "unknown_tool" | "error" | "refusals" => "bad",
        "intent" | "execution" | "admin_change" => "",
        _ => "warn",
    };
    let time = text("time").unwrap_or_default();
    Ok(html! {
        tr {
            td.time { time datetime=(time) { (time.get(..19).unwrap_or(time).replace('T', " ")) } }
            td { (subject.or_else(|| text("actor")).unwrap_or("–"))
                @if !roles.is_empty() { " " span.quiet { (roles.join(", ")) } } }
            td { (cut(what.unwrap_or(if method.is_some() { "" } else { "–" }), 128))
                @if let Some(method) = method { " " span.quiet { (cut(method, 128)) } } }
            td { span class={ "badge " (kind) } { (status) }
                @if let Some(reason) = text("reason").filter(|reason| *reason != status) { " " span.quiet { (cut(reason, 64)) } } }
            td.number { @if let Some(rows) = number("rows").or_else(|| number("messages")) { (rows) } }
            td.number { @if let Some(rows) = number("rows_withheld").or_else(|| number("withheld")) { (rows) } }
            td.number { @if let Some(fields) = number("fields_redacted") { (fields) } }
            td { a href={ "/console/record/" (stored.sequence) } { (stored.sequence) } }
        }
    })
}

/// Every member with its value; members of members by their path.
fn flat(members: &Map<String, Value>) -> Vec<(String, String)> {
    let mut all = Vec::new();
    for (name, value) in members {
        match value {
            Value::Object(inner) => {
                let inner = flat(inner).into_iter();
                all.extend(inner.map(|(own, value)| (format!("{name}.{own}"), value)));
            }
            Value::String(text) => all.push((name.clone(), text.clone())),
            other => all.push((name.clone(), other.to_string())),
        }
    }
    all
}
