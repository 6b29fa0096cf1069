//! `wardgate audit retention` and `erase`: retention, holds and erasure of the record, for an operator of a running system.

use futures::TryStreamExt;
use serde_json::json;
use wardgate_rpc::client::{
    DataSubjectFilter, HoldDescription, HoldScope, OperatorAuditClient, RetentionStatus,
};

use crate::Failure;
use crate::cli::{AuditErase, AuditRetention, LogVerbosity, OperatorSignIn, RecordSource};
use crate::commands::operator::sign_in_token;
use crate::commands::output::print_document;
use crate::commands::progress::Progress;
use crate::commands::running::{LIMIT, operator_audit};

pub(super) async fn run(arguments: AuditRetention, verbosity: LogVerbosity) -> Result<(), Failure> {
    let client = connect(&arguments.source, &arguments.operator).await?;
    if let Some(name) = arguments.hold {
        let scope = match (arguments.subject, arguments.tenant) {
            (Some(key), tenant) => HoldScope::DataSubject(DataSubjectFilter {
                tenant: tenant.unwrap_or_default(),
                key,
            }),
            (None, Some(tenant)) => HoldScope::Tenant(tenant),
            (None, None) => HoldScope::Whole,
        };
        client.set_hold(&name, scope, LIMIT).await?;
        println!("the legal hold {name} is set");
        return Ok(());
    }
    if let Some(name) = arguments.lift {
        client.lift_hold(&name, LIMIT).await?;
        println!("the legal hold {name} is lifted");
        return Ok(());
    }
    if arguments.apply {
        return apply(&client, verbosity).await;
    }
    let status = client.retention(LIMIT).await?;
    let json = as_json(&status).to_string();
    print_document(arguments.output.format(), &json, || describe(&status))
}

pub(super) async fn erase(arguments: AuditErase) -> Result<(), Failure> {
    let client = connect(&arguments.source, &arguments.operator).await?;
    let subject = DataSubjectFilter {
        tenant: arguments.tenant,
        key: arguments.subject,
    };
    if client.erase(subject, LIMIT).await? {
        println!("the key was destroyed: the details of all calls of this data subject are erased");
    } else {
        println!(
            "this data subject has no key: no call concerned them, or their key was destroyed before"
        );
    }
    Ok(())
}

async fn connect(
    source: &RecordSource,
    operator: &OperatorSignIn,
) -> Result<OperatorAuditClient, Failure> {
    operator_audit(source, sign_in_token(operator).await?)
}

async fn apply(client: &OperatorAuditClient, verbosity: LogVerbosity) -> Result<(), Failure> {
    let mut progress = Progress::new("removed", verbosity);
    let mut steps = std::pin::pin!(client.apply_retention().await?);
    let mut minimum_index = 0;
    while let Some(step) = steps.try_next().await? {
        minimum_index = step.minimum_index;
        progress.print_count(minimum_index, Some(step.removable_below));
    }
    println!("the records below {minimum_index} were removed; their hashes remain in the log");
    Ok(())
}

fn describe(status: &RetentionStatus) -> String {
    let RetentionStatus {
        size,
        minimum_index,
        retention_days,
        removable_below,
        kept_by,
        holds,
    } = status;
    let mut text = format!(
        "records         {size}\n\
         removed below   {minimum_index}\n\
         kept for        {retention_days} days\n\
         removable below {removable_below}\n\
         kept by         {kept_by}\n"
    );
    for hold in holds {
        let about = about(hold);
        let HoldDescription {
            name,
            set_by,
            set_at,
            ..
        } = hold;
        text += &format!("hold            {name}: {about}, by {set_by} at {set_at}\n");
    }
    text
}

fn about(hold: &HoldDescription) -> String {
    match (hold.data_subject, &hold.tenant) {
        (Some(digest), _) => format!("data subject hmac:{digest}"),
        (None, Some(tenant)) => format!("tenant {tenant}"),
        (None, None) => "all records".to_owned(),
    }
}

fn as_json(status: &RetentionStatus) -> serde_json::Value {
    let holds = status.holds.iter().map(|hold| {
        json!({
            "name": hold.name,
            "tenant": hold.tenant,
            "data_subject_hmac": hold.data_subject.map(|digest| digest.to_string()),
            "set_by": hold.set_by,
            "set_at": hold.set_at.to_string(),
        })
    });
    json!({
        "records": status.size,
        "removed_below": status.minimum_index,
        "retention_days": status.retention_days,
        "removable_below": status.removable_below,
        "kept_by": status.kept_by,
        "holds": holds.collect::<Vec<_>>(),
    })
}
