//! `wardgate health`: reports whether a process is ready.

use crate::Failure;
use crate::cli::{HealthArgs, OutputFormat};
use crate::commands::output::print_document;

pub(crate) async fn run(arguments: &HealthArgs) -> Result<(), Failure> {
    let url = format!("{}/ready", arguments.url.trim_end_matches('/'));
    let answer = reqwest::get(&url).await?;
    let ready = answer.status().is_success();
    let body = answer.text().await?;
    let format = arguments.output.format();
    // In the table format, the error below contains the whole body.
    if ready || format != OutputFormat::Table {
        print_document(format, &body, || format!("{body}\n"))?;
    }
    if ready {
        Ok(())
    } else {
        Err(format!("{url}: {body}").into())
    }
}
