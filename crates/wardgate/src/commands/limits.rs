//! `wardgate limits`: prints the usage of rate limits and quotas by caller.

use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use wardgate_domain::mark_invisible;
use wardgate_resilience::{BucketOwner, LimitState};

use super::calls;
use super::output::RowPrinter;
use super::terminal::cell;
use crate::Failure;
use crate::cli::LimitsArgs;

pub(crate) async fn run(arguments: LimitsArgs) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct LimitList {
        limits: Vec<Box<RawValue>>,
    }
    let client = calls::client(arguments.operator, false).await?;
    let result = client.request(1, "limits/list", None).await?;
    let list: LimitList = serde_json::from_str(result.get())?;
    let heading = format!(
        "{:<20} {:<10} {:>8} {:>8}  {:<8}  WHOSE",
        "LIMIT", "RATE", "USED", "LEFT", "RESETS"
    );
    let mut rows = RowPrinter::stdout(arguments.output.format(), Some(&heading))?;
    for limit in list.limits {
        let one: LimitState = serde_json::from_str(limit.get())?;
        rows.print(limit.get(), || {
            format!(
                "{:<20} {:<10} {:>8} {:>8}  {:<8}  {}",
                cell(&one.owner.limit),
                String::from(one.rate),
                one.used,
                one.left,
                resets(Duration::from_secs(one.resets_in_seconds)),
                whose(&one)
            )
        })?;
    }
    rows.finish()
}

/// Formats the time until the whole limit is available again.
fn resets(after: Duration) -> String {
    match after.as_secs() {
        0 => "-".to_owned(),
        seconds @ 1..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{} h", seconds.div_ceil(3_600)),
    }
}

fn whose(state: &LimitState) -> String {
    let BucketOwner {
        tenant,
        issuer,
        subject,
        tool,
        claims,
        ..
    } = &state.owner;
    let tenant = tenant.as_ref().filter(|tenant| !tenant.is_empty());
    let named = [
        ("", subject),
        ("of ", issuer),
        ("in tenant ", &tenant.cloned()),
        ("tool ", tool),
    ];
    let named = named.into_iter();
    let named = named.filter_map(|(word, name)| Some(format!("{word}{}", name.as_ref()?)));
    let claims = claims
        .iter()
        .map(|(claim, value)| format!("{claim}={value}"));
    let words: Vec<_> = named.chain(claims).collect();
    match (words.is_empty(), state.used, state.per.is_empty()) {
        (false, ..) => mark_invisible(&words.join(" ")).into_owned(),
        (true, 0, _) => "nobody".to_owned(),
        (true, _, true) => "everybody".to_owned(),
        (true, _, false) => "unknown".to_owned(),
    }
}
