//! `wardgate health`: is it ready?

use crate::Failure;
use crate::cli::HealthArgs;

pub(crate) async fn run(arguments: &HealthArgs) -> Result<(), Failure> {
    let url = format!("{}/ready", arguments.url.trim_end_matches('/'));
    let answer = reqwest::get(&url).await?;
    let ready = answer.status().is_success();
    let body = answer.text().await?;
    if !ready {
        return Err(format!("{url}: {body}").into());
    }
    println!("{body}");
    Ok(())
}
