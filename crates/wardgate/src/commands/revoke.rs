//! `wardgate revoke`: refuses tokens, subjects and sign-ins at every gateway, or accepts them again.

use serde::Deserialize;
use serde_json::value::RawValue;
use wardgate_domain::{ListedRevocation, RevocationKind, mark_invisible};

use super::calls;
use super::output::RowPrinter;
use super::terminal::cell;
use crate::Failure;
use crate::cli::{ClientOptions, OutputFormat, RevocationOptions, RevokeArgs, RevokeCommand};

pub(crate) async fn run(arguments: RevokeArgs) -> Result<(), Failure> {
    match arguments.command {
        RevokeCommand::Token(options) => change(RevocationKind::Token, options).await,
        RevokeCommand::Subject(options) => change(RevocationKind::Subject, options).await,
        RevokeCommand::Session(options) => change(RevocationKind::Session, options).await,
        RevokeCommand::List { operator, output } => list(operator, output.format()).await,
    }
}

async fn change(kind: RevocationKind, options: RevocationOptions) -> Result<(), Failure> {
    let given = [
        ("issuer", &options.issuer),
        ("tenant", &options.tenant),
        ("reason", &options.reason),
    ];
    let given = given.into_iter();
    let given = given.filter_map(|(name, value)| Some((name, value.as_deref()?)));
    let params = [("kind", kind.as_str()), ("name", &options.name)];
    let (method, done) = if options.lift {
        ("revocations/remove", "accepted again")
    } else {
        (
            "revocations/add",
            "revoked: every gateway rejects it within one second",
        )
    };
    let client = calls::client(options.operator, false).await?;
    client
        .request(1, method, params.into_iter().chain(given))
        .await?;
    println!(
        "{} {} is {done}",
        kind.as_str(),
        mark_invisible(&options.name)
    );
    Ok(())
}

async fn list(operator: ClientOptions, format: OutputFormat) -> Result<(), Failure> {
    #[derive(Deserialize)]
    struct RevocationList {
        revocations: Vec<Box<RawValue>>,
    }
    let client = calls::client(operator, false).await?;
    let result = client.request(1, "revocations/list", None).await?;
    let list: RevocationList = serde_json::from_str(result.get())?;
    let mut rows = RowPrinter::stdout(format, None)?;
    for revocation in list.revocations {
        let one: ListedRevocation = serde_json::from_str(revocation.get())?;
        rows.print(revocation.get(), || {
            format!(
                "{:<7}  {:<36}  {:<32}  {} by {}  {}",
                one.kind,
                cell(&one.name),
                one.issuer.as_deref().map_or("any issuer".into(), cell),
                one.revoked_at,
                cell(&one.revoked_by),
                cell(&one.reason),
            )
        })?;
    }
    rows.finish()
}
