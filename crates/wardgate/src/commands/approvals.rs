//! `wardgate approvals`: calls that wait for the approval of the signed-in user.

use serde::Deserialize;
use serde_json::value::RawValue;
use wardgate_domain::{WaitingCall, indent_json, mark_invisible};

use super::calls;
use super::output::{RowPrinter, print_document};
use super::terminal::cell;
use crate::Failure;
use crate::cli::{ApprovalOptions, ApprovalsArgs, ApprovalsCommand, ClientOptions, OutputFormat};

pub(crate) async fn run(arguments: ApprovalsArgs) -> Result<(), Failure> {
    match arguments.command {
        ApprovalsCommand::List { approver, output } => list(approver, output.format()).await,
        ApprovalsCommand::Show { about, output } => show_approval(about, output.format()).await,
        ApprovalsCommand::Approve(about) => {
            let id = about.id;
            request(about.approver, "approvals/approve", Some(&id.to_string())).await?;
            println!("approved {id}: the call runs once, when its caller repeats it");
            Ok(())
        }
        ApprovalsCommand::Refuse(about) => {
            let id = about.id;
            request(about.approver, "approvals/refuse", Some(&id.to_string())).await?;
            println!("refused {id}");
            Ok(())
        }
    }
}

async fn list(approver: ClientOptions, format: OutputFormat) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct ApprovalList {
        approvals: Vec<Box<RawValue>>,
    }
    let result = request(approver, "approvals/list", None).await?;
    let list: ApprovalList = serde_json::from_str(result.get())?;
    let mut rows = RowPrinter::stdout(format, Some(HEADING))?;
    for waiting in list.approvals {
        let call: WaitingCall = serde_json::from_str(waiting.get())?;
        rows.print(waiting.get(), || {
            format!(
                "{:<36}  {:<24}  {:<16}  {}",
                cell(&call.id),
                cell(&call.tool),
                cell(&call.caller.subject),
                cell(&call.expires_at),
            )
        })?;
    }
    rows.finish()
}

/// Heading of the columns of the list.
const HEADING: &str =
    "ID                                    TOOL                      CALLER            UNTIL";

async fn show_approval(about: ApprovalOptions, format: OutputFormat) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct OneApproval {
        approval: Box<RawValue>,
    }
    let id = about.id.to_string();
    let result = request(about.approver, "approvals/get", Some(&id)).await?;
    let OneApproval { approval } = serde_json::from_str(result.get())?;
    let call: WaitingCall = serde_json::from_str(approval.get())?;
    print_document(format, approval.get(), || {
        format!("{}\n", mark_invisible(&describe(&call)))
    })
}

fn describe(call: &WaitingCall) -> String {
    format!(
        "id         {}\ntool       {}\ncaller     {} of {}\nfrom       {}\nneeds      {}\nasked at   {}\nuntil      {}\n\
         arguments  {}",
        call.id,
        call.tool,
        cell(&call.caller.subject),
        cell(&call.caller.issuer),
        cell(&call.client_ip),
        call.approvers,
        call.requested_at,
        call.expires_at,
        call.arguments
            .as_deref()
            .map_or("-".to_owned(), indent_json),
    )
}

async fn request(
    approver: ClientOptions,
    method: &'static str,
    id: Option<&str>,
) -> Result<Box<RawValue>, Failure> {
    let client = calls::client(approver, false).await?;
    Ok(client.request(1, method, id.map(|id| ("id", id))).await?)
}
