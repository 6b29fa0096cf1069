//! The generated parts of errors.md, from the tables of error codes, reasons and statuses.

use std::fmt::Write;

use wardgate_domain::{Explanation, REASON_GROUPS, ReasonGroup, ReasonOutcome, Status};
use wardgate_mcp::error_code::EXPLAINED;

use super::{assert_sections_current, cell};

fn codes() -> String {
    let mut page = String::from("| code | meaning | HTTP | what to do |\n|---|---|---|---|\n");
    for explained in EXPLAINED {
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} |",
            explained.code,
            cell(explained.meaning),
            cell(explained.http),
            cell(explained.remedy),
        );
    }
    page
}

fn statuses() -> String {
    let mut page = String::from("| status | meaning |\n|---|---|\n");
    for status in Status::ALL {
        let _ = writeln!(page, "| `{}` | {} |", status.as_str(), status.meaning());
    }
    page
}

/// A column of the tables of reasons: its heading, and the function that returns its text for a row.
type Column = (&'static str, fn(&Explanation) -> String);

const COLUMNS: [Column; 4] = [
    ("HTTP", |it| match it.outcome {
        ReasonOutcome::Http(statuses) => {
            let statuses: Vec<_> = statuses.iter().map(u16::to_string).collect();
            statuses.join(", ")
        }
        ReasonOutcome::InStream => "in the stream".to_owned(),
        ReasonOutcome::Recorded(_) | ReasonOutcome::Unstated => String::new(),
    }),
    ("status", |it| match it.outcome {
        ReasonOutcome::Recorded(statuses) => {
            let statuses: Vec<_> = statuses.iter().map(|status| status.as_str()).collect();
            format!("`{}`", statuses.join("`, `"))
        }
        ReasonOutcome::Http(_) | ReasonOutcome::InStream | ReasonOutcome::Unstated => String::new(),
    }),
    ("meaning", |it| it.meaning.to_owned()),
    ("what to do", |it| it.remedy.to_owned()),
];

/// Returns the table of a group, without columns that are empty in all of its rows.
fn reasons(group: &ReasonGroup) -> String {
    let columns = COLUMNS.into_iter().filter(|(_, text)| {
        let mut texts = group.explanations.iter().map(text);
        texts.any(|text| !text.is_empty())
    });
    let columns: Vec<_> = columns.collect();
    let headings = columns.iter().map(|(heading, _)| *heading);
    let headings: Vec<_> = ["reason"].into_iter().chain(headings).collect();
    let mut page = format!(
        "| {} |\n|{}\n",
        headings.join(" | "),
        "---|".repeat(headings.len())
    );
    for explanation in group.explanations {
        let reasons = explanation.reasons.iter().map(|reason| reason.as_str());
        let reasons: Vec<_> = reasons.collect();
        let _ = write!(page, "| `{}` |", reasons.join("`, `"));
        for (_, text) in &columns {
            let _ = write!(page, " {} |", cell(&text(explanation)));
        }
        page.push('\n');
    }
    page
}

#[test]
fn the_page_of_every_error_is_current() {
    let groups = REASON_GROUPS.iter();
    let groups = groups.map(|group| (group.title.to_owned(), reasons(group)));
    let others = [("codes", codes()), ("statuses", statuses())];
    let others = others.map(|(name, text)| (name.to_owned(), text));
    let sections: Vec<_> = groups.chain(others).collect();
    assert_sections_current("errors.md", &sections);
}
