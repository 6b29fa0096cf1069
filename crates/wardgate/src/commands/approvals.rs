//! `wardgate approvals`: calls that wait for the approval of whoever is signed in.

use serde::Deserialize;
use serde_json::value::RawValue;
use wardgate_domain::{WaitingCall, escape_invisible_json, indent_json, mark_invisible};

use super::calls;
use super::terminal::cell;
use crate::Failure;
use crate::cli::{ApprovalOptions, ApprovalsArgs, ApprovalsCommand, ClientOptions};

pub(crate) async fn run(arguments: ApprovalsArgs) -> Result<(), Failure> {
    match arguments.command {
        ApprovalsCommand::List { approver, json } => list(approver, json).await,
        ApprovalsCommand::Show { about, json } => show(about, json).await,
        ApprovalsCommand::Approve(about) => {
            let id = about.id;
            request(about.approver, "approvals/approve", Some(&id.to_string())).await?;
            println!("approved {id}: it runs once when its caller repeats it");
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

async fn list(approver: ClientOptions, json: bool) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct ApprovalList {
        approvals: Vec<Box<RawValue>>,
    }
    let result = request(approver, "approvals/list", None).await?;
    let list: ApprovalList = serde_json::from_str(result.get())?;
    if json {
        for call in list.approvals {
            println!("{}", escape_invisible_json(call.get()));
        }
        return Ok(());
    }
    println!("{HEADING}");
    for call in list.approvals {
        let call: WaitingCall = serde_json::from_str(call.get())?;
        println!(
            "{:<36}  {:<24}  {:<16}  {}",
            cell(&call.id),
            cell(&call.tool),
            cell(&call.caller.subject),
            cell(&call.expires_at),
        );
    }
    Ok(())
}

/// Over the columns of a list.
const HEADING: &str =
    "ID                                    TOOL                      CALLER            UNTIL";

async fn show(about: ApprovalOptions, json: bool) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct OneApproval {
        approval: Box<RawValue>,
    }
    let id = about.id.to_string();
    let result = request(about.approver, "approvals/get", Some(&id)).await?;
    let OneApproval { approval } = serde_json::from_str(result.get())?;
    if json {
        println!("{}", escape_invisible_json(approval.get()));
        return Ok(());
    }
    let call: WaitingCall = serde_json::from_str(approval.get())?;
    let text = format!(
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
    );
    println!("{}", mark_invisible(&text));
    Ok(())
}

async fn request(
    approver: ClientOptions,
    method: &'static str,
    id: Option<&str>,
) -> Result<Box<RawValue>, Failure> {
    let client = calls::client(approver, false).await?;
    Ok(client.request(1, method, id.map(|id| ("id", id))).await?)
}
