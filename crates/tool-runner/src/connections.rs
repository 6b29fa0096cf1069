//! Connections of people to sources, which let the sources act in their name.
//!
//! ```text
//!   describe ─▶ start ─▶ the person at the authorization server ─▶ finish: record ─▶ tokens ─▶ store
//!   remove: record ─▶ store ─▶ revoked at the authorization server
//! ```

use std::sync::Arc;

use futures::future::join_all;
use tracing::warn;
use wardgate_domain::{AdminChange, SwitchScope};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::client::{ConnectTarget, IdentifiedOperator, RemoveConnections};

use crate::Error;
use crate::loaded::LoadedCatalogue;
use crate::store::ToolRunnerStore;
use crate::store::connections::StoredConnection;
use crate::switchboard::Switchboard;
use wardgate_egress::{
    AuthError, ConnectError, Grant, GrantCallback, GrantDescription, GrantRequest, Person,
    StartedGrant, UserGrants,
};

pub(crate) async fn describe(
    loaded: &LoadedCatalogue,
    person: &Person,
    connect: &ConnectTarget,
) -> Result<GrantDescription, Error> {
    let per_user = per_user_of(loaded, &connect.source)?;
    let described = per_user.describe(person, connect.scope.as_deref()).await;
    described.map_err(|error| connect_failure(&connect.source, &error))
}

pub(crate) async fn start(
    loaded: &LoadedCatalogue,
    source: &str,
    grant: GrantRequest<'_>,
) -> Result<StartedGrant, Error> {
    let started = per_user_of(loaded, source)?.start(grant).await;
    started.map_err(|error| connect_failure(source, &error))
}

pub(crate) async fn finish(
    loaded: &LoadedCatalogue,
    switchboard: &Switchboard,
    source: &str,
    callback: GrantCallback<'_>,
) -> Result<(), Error> {
    let per_user = per_user_of(loaded, source)?;
    let person = callback.person;
    let change = |failed| AdminChange {
        actor: person.subject.clone(),
        action: "connection.make".to_owned(),
        target: source.to_owned(),
        scope: scope_of(&person.subject, Some(&person.issuer)),
        failed,
        ..AdminChange::default()
    };
    switchboard.record_change(change(false)).await?;
    if let Err(error) = per_user.finish(callback).await {
        switchboard.record_change(change(true)).await?;
        return Err(connect_failure(source, &error));
    }
    Ok(())
}

/// Returns every connection to an operator, and records that the operator has read them.
pub(crate) async fn list(
    switchboard: &Switchboard,
    operator: &IdentifiedOperator,
) -> Result<Vec<StoredConnection>, Error> {
    let reading = operator.change("connection.list", "*");
    switchboard.log().record_reading(operator, reading).await?;
    Ok(switchboard.store().connections().await?)
}

/// Removes connections, including those of sources that are no longer configured, and returns their number. Grants of
/// sources that are still configured are also revoked at the authorization server.
pub(crate) async fn remove(
    loaded: &LoadedCatalogue,
    switchboard: &Switchboard,
    operator: &IdentifiedOperator,
    remove: &RemoveConnections<'_>,
) -> Result<u64, Error> {
    let change = |failed| AdminChange {
        scope: scope_of(remove.subject, remove.issuer),
        failed,
        ..operator.change("connection.remove", remove.source.unwrap_or("*"))
    };
    let log = switchboard.log();
    log.check_permitted(operator, &change(false)).await?;
    switchboard.record_change(change(false)).await?;
    let store = switchboard.store();
    let (issuer, source) = (remove.issuer.unwrap_or(""), remove.source.unwrap_or(""));
    let grants = grants(loaded, store, remove).await;
    match store.disconnect(remove.subject, issuer, source).await {
        Ok(removed) => {
            let revoking = grants.into_iter();
            join_all(revoking.map(|(of, grant)| async move { of.revoke(grant).await })).await;
            Ok(removed)
        }
        Err(error) => {
            switchboard.record_change(change(true)).await?;
            Err(error.into())
        }
    }
}

/// Returns the grants to revoke at sources that are configured. A grant that cannot be read is skipped; its connection
/// is deleted all the same.
async fn grants(
    loaded: &LoadedCatalogue,
    store: &ToolRunnerStore,
    remove: &RemoveConnections<'_>,
) -> Vec<(Arc<UserGrants>, Grant)> {
    let (issuer, source) = (remove.issuer.unwrap_or(""), remove.source.unwrap_or(""));
    let connections = store.connections_of(remove.subject, issuer, source).await;
    let connections = connections.unwrap_or_default();
    let mut grants = Vec::new();
    for StoredConnection { source, person, .. } in connections {
        if let Some(per_user) = loaded.per_user(&source)
            && let Some(grant) = per_user.grant(&person).await
        {
            grants.push((Arc::clone(per_user), grant));
        }
    }
    grants
}

fn per_user_of<'a>(
    loaded: &'a LoadedCatalogue,
    source: &str,
) -> Result<&'a Arc<UserGrants>, Error> {
    loaded.per_user(source).ok_or_else(|| Error::Connection {
        reason: ErrorReason::InvalidMessage,
        text: "no source with this name has `auth` of the type authorization_code".to_owned(),
    })
}

/// Converts an error. The message tells the operator what to correct and contains no data of the person.
fn connect_failure(source: &str, error: &ConnectError) -> Error {
    warn!(source, %error, "a source could not be connected for a caller");
    let reason = match error {
        ConnectError::Store | ConnectError::Auth(AuthError::Endpoint(_) | AuthError::NoStore) => {
            ErrorReason::Unavailable
        }
        ConnectError::Lapsed | ConnectError::OtherIssuer => ErrorReason::Conflict,
        ConnectError::Auth(AuthError::Refused { .. }) => ErrorReason::Denied,
        ConnectError::Auth(_) | ConnectError::NoPkce | ConnectError::NoClient => {
            ErrorReason::Internal
        }
    };
    Error::Connection {
        reason,
        text: error.to_string(),
    }
}

fn scope_of(subject: &str, issuer: Option<&str>) -> String {
    let scope = SwitchScope::User {
        subject: subject.to_owned(),
        issuer: issuer.map(str::to_owned),
    };
    scope.to_string()
}
