//! The pages of the record: the filtered list, newest first, one record with all its fields, and a download.

use std::sync::Arc;

use axum::response::{IntoResponse, Response};
use http::{StatusCode, header};
use maud::{Markup, html};
use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use wardgate_domain::{CallId, Status, Timestamp};
use wardgate_rpc::client::{AuditFilter, DataSubjectFilter, RecordDetails, StoredRecord};

use crate::Console;
use crate::fields::{FormFields, query};
use crate::http::PageResult;
use crate::layout::{self, Section};
use crate::output::cut;
use crate::page_request::SignedInRequest;
use crate::problem::Problem;
use crate::record::{ReadLimits, Record, RecordRows};
use crate::record_access::RecordAccess;

/// The limits of a page of the list.
const ON_PAGE: ReadLimits = ReadLimits {
    records: 50,
    bytes: 8 << 20,
};

/// The limits of the page of one record.
const ONE: ReadLimits = ReadLimits {
    records: 1,
    bytes: 1 << 20,
};

/// The limits of a download.
const IN_FILE: ReadLimits = ReadLimits {
    records: 5_000,
    bytes: 8 << 20,
};

/// The fields of the filter, in the order of the form. The command `audit query` has the same filters.
const FILTER: [&str; 8] = [
    "subject", "about", "tenant", "tool", "call_id", "status", "since", "until",
];

/// The fields that only people with access to everybody's calls can use.
const OF_EVERYBODY: [&str; 3] = ["subject", "about", "tenant"];

/// Shows the list.
pub(crate) async fn list(console: Arc<Console>, signed_in: SignedInRequest) -> PageResult {
    let fields = signed_in.page_request.query()?;
    let record = record(&console)?;
    let access = signed_in.viewer.record;
    let is_all = access == RecordAccess::All;
    let has_tenants = signed_in.viewer.caller.tenant().is_empty();
    let filter = match filter(&fields) {
        Ok(filter) => filter,
        // An invalid filter reads nothing. The form keeps its values.
        Err(faults) if access != RecordAccess::None => {
            let content = html! {
                (heading(access))
                p.notice.bad role="status" { "Nothing was read: correct the filter." }
                (form(&fields, access, has_tenants, &faults))
            };
            let (status, title) = (StatusCode::BAD_REQUEST, title(access));
            return Ok(layout::page_with_status(
                status,
                &signed_in.viewer,
                Section::Record,
                title,
                &content,
            ));
        }
        Err(_) => return Err(Problem::NotForYou),
    };
    let read = read_records(record, &signed_in, &question(&fields), filter, ON_PAGE).await?;
    let filter: Vec<_> = FILTER
        .iter()
        .filter(|name| access == RecordAccess::All || !OF_EVERYBODY.contains(*name))
        .filter_map(|name| Some((*name, fields.get_non_blank(name)?)))
        .collect();
    let older = read.more_before.map(|before| {
        let time = read.more_before_time.map(Timestamp::as_micros);
        let before = time.map_or(before.to_string(), |time| format!("{before}@{time}"));
        let pairs = filter.iter().copied().chain([("before", before.as_str())]);
        format!("/console/record?{}", query(pairs))
    });
    let download = format!("/console/record.jsonl?{}", query(filter.iter().copied()));
    let content = html! {
        (heading(access))
        (form(&fields, access, has_tenants, &[]))
        (damage(&read))
        (table(&read, access, is_all && fields.get_non_blank("about").is_some())?)
        nav.pages aria-label="Pages" {
            @if fields.get_non_blank("before").is_some() {
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
        &signed_in.viewer,
        Section::Record,
        title(access),
        &content,
    ))
}

fn title(access: RecordAccess) -> &'static str {
    match access {
        RecordAccess::All => "Record",
        RecordAccess::Own | RecordAccess::None => "Your calls",
    }
}

fn heading(access: RecordAccess) -> Markup {
    html! {
        h1 { (title(access)) }
        p.quiet { @match access {
            RecordAccess::All => "The calls of all users, newest first. Your access is recorded too.",
            RecordAccess::Own | RecordAccess::None => "Your recorded calls, newest first. The calls of other users are not shown.",
        } }
    }
}

/// Shows all fields of one record.
pub(crate) async fn entry(console: Arc<Console>, mut signed_in: SignedInRequest) -> PageResult {
    let sequence: u64 = signed_in
        .page_request
        .name()
        .await?
        .parse()
        .map_err(|_| Problem::Unknown)?;
    let filter = AuditFilter {
        from_sequence: sequence,
        before_sequence: sequence.checked_add(1),
        with_details: true,
        ..AuditFilter::default()
    };
    let question = format!("sequence={sequence}");
    let mut read = read_records(record(&console)?, &signed_in, &question, filter, ONE).await?;
    let Some(stored) = read.records.pop() else {
        if read.damaged.is_empty() {
            return Err(Problem::Unknown);
        }
        let title = format!("Record {sequence}");
        let content = html! { h1 { (title) } (damage(&read)) };
        return Ok(layout::page(
            &signed_in.viewer,
            Section::Record,
            &title,
            &content,
        ));
    };
    let members = members(&stored)?;
    let call = members.get("call_id").and_then(Value::as_str);
    let title = format!("Record {sequence}");
    let content = html! {
        p { a href="/console/record" { @match signed_in.viewer.record {
            RecordAccess::All => "All records",
            RecordAccess::Own | RecordAccess::None => "All your calls",
        } } }
        h1 { (title) }
        @if let Some(call) = call {
            p { a href={ "/console/record?" (query([("call_id", call)])) } { "All records of this call" } }
        }
        div.scroll tabindex="0" role="region" aria-label=(title) {
            table.members {
                thead { tr { th scope="col" { "Member" } th scope="col" { "Value" } } }
                tbody {
                    @for (name, value) in flat(&members) {
                        tr { th scope="row" { (name) } td { code { (cut(&value, 4_000)) } } }
                    }
                    tr { th scope="row" { "leaf hash" } td { code { (stored.leaf_hash) } } }
                    @for (name, value) in details(&stored)? {
                        tr { th scope="row" { "details." (name) } td { code { (cut(&value, 4_000)) } } }
                    }
                }
            }
        }
        @if stored.details == Some(RecordDetails::Erased) {
            p role="status" { "The details of this call were erased, with the key of a data subject." }
        }
        @if stored.details == Some(RecordDetails::Undecryptable) {
            p role="status" { "The details of this call cannot be decrypted with the keys of the audit service." }
        }
        p.quiet { "The leaf hash is the SHA-256 digest of a zero byte and the stored record (RFC 6962)." }
    };
    Ok(layout::page(
        &signed_in.viewer,
        Section::Record,
        &title,
        &content,
    ))
}

/// One line of a download. It contains the stored bytes of the record, so that the leaf hash can be verified.
#[derive(Serialize)]
struct DownloadLine<'a> {
    sequence: u64,
    leaf_hash: String,
    record: &'a RawValue,
    /// The columns that the call released, if the filter names a data subject.
    #[serde(skip_serializing_if = "Option::is_none")]
    released: Option<Vec<String>>,
}

/// Downloads the filtered records as a file.
pub(crate) async fn download(console: Arc<Console>, signed_in: SignedInRequest) -> PageResult {
    let fields = signed_in.page_request.query()?;
    let filter = filter(&fields).map_err(|faults| {
        let fault = faults.into_iter().next();
        Problem::Input(fault.map_or_else(String::new, |fault| fault.problem.to_owned()))
    })?;
    let record = record(&console)?;
    let read = read_records(record, &signed_in, &question(&fields), filter, IN_FILE).await?;
    let mut lines = String::new();
    for damage in &read.damaged {
        let line = match damage.sequence {
            Some(sequence) => json!({ "sequence": sequence, "damage": damage.problem }),
            None => json!({ "damage": damage.problem }),
        };
        lines.push_str(&line.to_string());
        lines.push('\n');
    }
    if read.may_be_incomplete {
        lines.push_str(&json!({ "damage": INCOMPLETE }).to_string());
        lines.push('\n');
    }
    for stored in &read.records {
        let line = serde_json::from_slice(&stored.record).and_then(|record| {
            serde_json::to_string(&DownloadLine {
                sequence: stored.sequence,
                leaf_hash: stored.leaf_hash.to_string(),
                record,
                released: (stored.details.as_ref()).and_then(RecordDetails::released_columns),
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

/// Reads records for the person who is signed in.
async fn read_records(
    record: &Record,
    signed_in: &SignedInRequest,
    question: &str,
    filter: AuditFilter,
    most: ReadLimits,
) -> Result<RecordRows, Problem> {
    let (caller, peer) = (&signed_in.viewer.caller, signed_in.token.peer());
    record
        .read_records(caller, peer, question, filter, most)
        .await
}

/// Returns the filter as a query string. The record of the access contains its digest.
fn question(fields: &FormFields) -> String {
    let names = FILTER.iter().chain(&["before"]);
    query(names.filter_map(|name| Some((*name, fields.get_non_blank(name)?))))
}

/// A field of the filter that is invalid, and what would be valid.
#[derive(Debug, Clone, Copy)]
struct FilterFault {
    field: &'static str,
    problem: &'static str,
}

/// Parses the filter from `fields`, or returns all its faults.
fn filter(fields: &FormFields) -> Result<AuditFilter, Vec<FilterFault>> {
    let mut faults = Vec::new();
    let text = |name| fields.get_non_blank(name).map(ToOwned::to_owned);
    let status = |word: &str| {
        let mut known = Status::ALL.into_iter();
        known.find(|status| status.as_str() == word)
    };
    let call_id = |id: &str| id.parse().ok().map(|id: CallId| id.to_string());
    let before = parse_field(
        fields,
        "before",
        page_position,
        "The address of this page is not valid: `before` must be the number of a record.",
        &mut faults,
    );
    let filter = AuditFilter {
        subject: text("subject"),
        data_subject: text("about").map(|key| DataSubjectFilter {
            tenant: text("tenant").unwrap_or_default(),
            key,
        }),
        with_details: fields.get_non_blank("about").is_some(),
        tool: text("tool"),
        call_id: parse_field(
            fields,
            "call_id",
            call_id,
            "The id of a call is a UUID.",
            &mut faults,
        ),
        status: parse_field(
            fields,
            "status",
            status,
            "Choose an outcome from the list.",
            &mut faults,
        ),
        since: parse_field(fields, "since", time, WRITE_TIMES, &mut faults),
        until: parse_field(fields, "until", time, WRITE_TIMES, &mut faults),
        before_sequence: before.map(|(sequence, _)| sequence),
        before_time: before.and_then(|(_, time)| time),
        ..AuditFilter::default()
    };
    if faults.is_empty() {
        Ok(filter)
    } else {
        Err(faults)
    }
}

const WRITE_TIMES: &str = "Write times as 2026-01-31T08:00, in UTC.";

fn parse_field<T>(
    fields: &FormFields,
    field: &'static str,
    parse: impl Fn(&str) -> Option<T>,
    problem: &'static str,
    faults: &mut Vec<FilterFault>,
) -> Option<T> {
    let given = fields.get_non_blank(field)?;
    let parsed = parse(given);
    if parsed.is_none() {
        faults.push(FilterFault { field, problem });
    }
    parsed
}

/// Parses the position where a page ends and the next one begins: a sequence number, optionally followed by `@` and the
/// time in microseconds, which stores that order records by time need.
fn page_position(text: &str) -> Option<(u64, Option<Timestamp>)> {
    let (sequence, time) = match text.split_once('@') {
        Some((sequence, time)) => (sequence, Some(Timestamp::from_micros(time.parse().ok()?))),
        None => (text, None),
    };
    Some((sequence.parse().ok()?, time))
}

/// The notice for a reader who may not know which records are damaged.
const INCOMPLETE: &str = "Records of the audit log were changed, removed, or cannot be read. Some of them may be missing here. \
                          Inform the operator.";

/// Lists the records that were changed or removed in the store, or that cannot be read.
fn damage(read: &RecordRows) -> Markup {
    html! {
        @if !read.damaged.is_empty() {
            div.notice.bad role="alert" {
                p { "The audit store was modified outside the audit service, or is corrupt. Inform the operator: the store must be \
                     preserved unchanged, and compared with a backup." }
                ul { @for damage in &read.damaged { li { (damage) } } }
            }
        }
        @if read.may_be_incomplete {
            div.notice.bad role="alert" { p { (INCOMPLETE) } }
        }
    }
}

/// Parses a time, either in RFC 3339 format or as browsers send it, without a zone, which is taken as UTC.
fn time(text: &str) -> Option<Timestamp> {
    let whole = [text.to_owned(), format!("{text}Z"), format!("{text}:00Z")];
    whole.iter().find_map(|text| text.parse().ok())
}

/// Renders the form of the filter. `has_tenants` is whether the viewer may choose the tenant of a data subject.
fn form(
    fields: &FormFields,
    access: RecordAccess,
    has_tenants: bool,
    faults: &[FilterFault],
) -> Markup {
    let value = |name| fields.get_non_blank(name).unwrap_or_default();
    let fault = |name: &str| faults.iter().find(|fault| fault.field == name);
    // In a field of the type `datetime-local` browsers do not show an invalid value.
    let time = |name: &str| {
        if fault(name).is_some() {
            "text"
        } else {
            "datetime-local"
        }
    };
    let invalid = |name: &str| fault(name).map(|_| "true");
    let problem = |name: &str| {
        html! { @if let Some(fault) = fault(name) { p.fault role="alert" { (fault.problem) } } }
    };
    html! {
        (problem("before"))
        form.filter method="get" action="/console/record" role="search" {
            @if access == RecordAccess::All {
                div { label for="subject" { "Who" } input #subject name="subject" value=(value("subject")) autocomplete="off"; }
            }
            @if access == RecordAccess::All {
                div { label for="about" { "Data subject" } input #about name="about" value=(value("about")) autocomplete="off" spellcheck="false"; }
                @if has_tenants {
                    div { label for="tenant" { "Tenant of the data subject" } input #tenant name="tenant" value=(value("tenant")) autocomplete="off"; }
                }
            }
            div { label for="tool" { "Tool" } input #tool name="tool" value=(value("tool")) autocomplete="off"; }
            div {
                label for="status" { "Outcome" }
                select #status name="status" aria-invalid=[invalid("status")] {
                    option value="" { "any" }
                    @for status in Status::ALL {
                        option value=(status.as_str()) selected[value("status") == status.as_str()] { (status.as_str()) }
                    }
                }
                (problem("status"))
            }
            div {
                label for="since" { "Since (UTC)" }
                input #since type=(time("since")) name="since" value=(value("since")) aria-invalid=[invalid("since")];
                (problem("since"))
            }
            div {
                label for="until" { "Until (UTC)" }
                input #until type=(time("until")) name="until" value=(value("until")) aria-invalid=[invalid("until")];
                (problem("until"))
            }
            div {
                label for="call_id" { "Call" }
                input #call_id name="call_id" value=(value("call_id")) autocomplete="off" spellcheck="false"
                    aria-invalid=[invalid("call_id")];
                (problem("call_id"))
            }
            div.act { button { "Show" } a href="/console/record" { "Reset" } }
        }
    }
}

fn table(read: &RecordRows, access: RecordAccess, with_released: bool) -> Result<Markup, Problem> {
    let is_all = access == RecordAccess::All;
    let rows: Result<Vec<_>, _> = read
        .records
        .iter()
        .map(|stored| row(stored, is_all, with_released))
        .collect();
    let rows = rows?;
    Ok(html! {
        @if read.records.is_empty() {
            p role="status" { @if read.more_before.is_some() { "No record of the newest ones matches. Older ones may match." } @else { "No record matches." } }
        } @else {
            div.scroll tabindex="0" role="region" aria-label="Records" {
                table {
                    thead { tr {
                        th scope="col" { "Time (UTC)" } @if is_all { th scope="col" { "Who" } } th scope="col" { "What" }
                        th scope="col" { "Outcome" } th.number scope="col" { "Rows" } th.number scope="col" { "Withheld" }
                        th.number scope="col" { "Masked" } @if with_released { th scope="col" { "Released" } }
                        th scope="col" { "Record" }
                    } }
                    tbody { @for row in &rows { (row) } }
                }
            }
        }
    })
}

/// Parses the fields of a record.
fn members(stored: &StoredRecord) -> Result<Map<String, Value>, Problem> {
    serde_json::from_slice(&stored.record).map_err(|_| Problem::RecordAway)
}

fn row(stored: &StoredRecord, with_caller: bool, with_released: bool) -> Result<Markup, Problem> {
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
    let what = [
        "tool",
        "requested_tool",
        "conversation",
        "target",
        "anomaly",
    ];
    let what = what.into_iter().find_map(text);
    let status = text("status").unwrap_or(event);
    let kind = match status {
        "ok" => "good",
        "denied" | "unknown_tool" | "error" | "refusals" | "anomaly" => "bad",
        "intent" | "execution" | "admin_change" => "",
        _ => "warn",
    };
    let time = text("time").unwrap_or_default();
    Ok(html! {
        tr {
            td.time { time datetime=(time) { (time.get(..19).unwrap_or(time).replace('T', " ")) } }
            @if with_caller {
                td { (subject.or_else(|| text("actor")).unwrap_or("–"))
                    @if !roles.is_empty() { " " span.quiet { (roles.join(", ")) } } }
            }
            td { (cut(what.unwrap_or(if method.is_some() { "" } else { "–" }), 128))
                @if let Some(method) = method { " " span.quiet { (cut(method, 128)) } } }
            td { span class={ "badge " (kind) } { (status) }
                @if let Some(reason) = text("reason").filter(|reason| *reason != status) { " " span.quiet { (cut(reason, 64)) } } }
            td.number { @if let Some(rows) = number("rows").or_else(|| number("messages")) { (rows) } }
            td.number { @if let Some(rows) = number("rows_withheld").or_else(|| number("withheld")) { (rows) } }
            td.number { @if let Some(fields) = number("fields_redacted") { (fields) } }
            @if with_released { td { (format_released_columns(stored)) } }
            td { a href={ "/console/record/" (stored.sequence) } { (stored.sequence) } }
        }
    })
}

/// Formats the columns that a call released.
fn format_released_columns(stored: &StoredRecord) -> String {
    let Some(details) = &stored.details else {
        return String::new();
    };
    match details.released_columns() {
        Some(columns) => columns.join(", "),
        None if *details == RecordDetails::Undecryptable => "(undecryptable)".to_owned(),
        None => "(erased)".to_owned(),
    }
}

/// Returns the details of a call, or nothing if it has none or they are unreadable.
fn details(stored: &StoredRecord) -> Result<Vec<(String, String)>, Problem> {
    let Some(RecordDetails::Open(details)) = &stored.details else {
        return Ok(Vec::new());
    };
    let details = serde_json::from_slice(details).map_err(|_| Problem::RecordAway)?;
    Ok(flat(&details))
}

/// Flattens nested objects: every value is listed with the path of its field.
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
