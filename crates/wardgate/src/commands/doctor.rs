//! `wardgate doctor`: checks a deployment, and reports what works, what does not, and how to fix it.
//!
//! ```text
//!  configuration ─▶ keys · secrets · certificates · issuers · neighbours · edges · stores · caller lookup · policy bundle · record
//!                     └─▶ findings: ok │ warn │ fail
//! ```
//!
//! The doctor runs where the services run, with their files: on one machine it checks all of them, in a pod only one
//! (`--service`). It changes nothing; at most it sends a request without a token, whose refusal is recorded.

mod caller_lookup;
mod certificates;
mod clock;
mod dependencies;
mod deployment;
mod edges;
mod finding;
mod keys;
mod policy_bundle;
mod record;
mod secrets;
mod stores;

use deployment::Deployment;
use finding::{CheckStatus, Finding};
use wardgate_domain::mark_invisible;

use crate::Failure;
use crate::cli::{DoctorArgs, OutputFormat};
use crate::commands::output::RowPrinter;

pub(crate) async fn run(arguments: &DoctorArgs) -> Result<(), Failure> {
    let (deployment, mut findings) = Deployment::from_args(arguments).await?;
    findings.extend(keys::examine(&deployment.keys));
    findings.extend(secrets::examine(&deployment.secrets));
    findings.extend(certificates::examine(&deployment.certificates));
    findings.extend(edges::issuers(&deployment.issuers).await);
    findings.extend(dependencies::examine(&deployment.neighbours).await);
    findings.extend(edges::examine(&deployment.edges).await);
    findings.extend(stores::examine(&deployment.stores).await);
    findings.extend(caller_lookup::examine(deployment.caller_lookup.as_ref()).await);
    findings.extend(policy_bundle::examine(deployment.policy_bundle.as_ref()));
    findings.extend(record::examine(&deployment).await);
    print(&findings, arguments.output.format())?;
    let failed = findings
        .iter()
        .filter(|finding| finding.verdict == CheckStatus::Fail)
        .count();
    match failed {
        0 => Ok(()),
        failed => Err(format!("{failed} of {} checks failed", findings.len()).into()),
    }
}

fn print(findings: &[Finding], format: OutputFormat) -> Result<(), Failure> {
    let mut rows = RowPrinter::stdout(format, None)?;
    for finding in findings {
        rows.print(&serde_json::to_string(finding)?, || {
            mark_invisible(&finding.to_string()).into_owned()
        })?;
    }
    rows.finish()
}
