//! Client of the tool-runner for connections: the grants by which people let sources act on their behalf.

use std::time::Duration;

use bytes::Bytes;
use wardgate_domain::{BearerToken, InvalidMessage, Timestamp};
use wardgate_proto::toolrunner::v1 as pb;

use super::{CallError, ConnectTarget, ToolRunnerClient, request, within};

/// Maximum time for a request that may involve a third-party authorization server.
const LIMIT: Duration = Duration::from_secs(40);

/// A user, regardless of their rights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The tenant, or empty if the deployment has only one.
    pub tenant: String,
    /// The issuer of the user's token.
    pub issuer: String,
    /// The subject that the issuer assigned to the user.
    pub subject: String,
}

/// The information that a user gets before they grant a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionDescription {
    /// The host of the service that is called on the user's behalf.
    pub service_host: String,
    /// The host of the authorization server.
    pub server_host: String,
    /// The requested scope, or `None` if the authorization server determines it.
    pub scope: Option<String>,
}

/// A request to begin a grant.
#[derive(Debug, Clone)]
pub struct StartConnection<'a> {
    /// The user who grants the connection.
    pub person: &'a Person,
    /// The source to connect.
    pub connect: &'a ConnectTarget,
    /// The redirect URI of the authorization request.
    pub redirect_uri: &'a str,
    /// The `state` of the authorization request.
    pub state: &'a str,
    /// The URL of the gateway's client metadata document.
    pub client_metadata_url: Option<&'a str>,
}

/// A grant that was begun.
#[derive(Clone)]
pub struct StartedConnection {
    /// The URL that the user has to open.
    pub authorization_url: String,
    /// The state of the grant, which has to be sent again with the authorization code.
    pub pending: Bytes,
}

/// A request to finish a grant after the user was redirected back.
#[derive(Clone)]
pub struct FinishConnection<'a> {
    /// The user who grants the connection.
    pub person: &'a Person,
    /// The source to connect.
    pub connect: &'a ConnectTarget,
    /// The state of the grant from [`StartedConnection`].
    pub pending: Bytes,
    /// The authorization code.
    pub code: &'a str,
    /// The issuer in the authorization response, if there is one.
    pub issuer: Option<&'a str>,
}

/// A connection of a user to a source, which acts on the user's behalf.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceConnection {
    /// The name of the source.
    pub source: String,
    /// The user.
    pub person: Person,
    /// The time when the connection was granted.
    pub connected_at: Timestamp,
    /// The time when the tokens were last renewed.
    pub changed_at: Timestamp,
}

/// A request to remove connections.
#[derive(Debug, Clone)]
pub struct RemoveConnections<'a> {
    /// The subject of the user.
    pub subject: &'a str,
    /// The issuer of the user, or `None` for any issuer.
    pub issuer: Option<&'a str>,
    /// The name of the source, or `None` for all sources.
    pub source: Option<&'a str>,
}

impl ToolRunnerClient {
    /// Returns the information that a user gets before they grant a connection.
    pub async fn describe_connection(
        &self,
        person: &Person,
        connect: &ConnectTarget,
    ) -> Result<ConnectionDescription, CallError> {
        let message = pb::DescribeConnectionRequest {
            person: Some(person.into()),
            connect: Some(connect.into()),
        };
        let mut client = self.client.clone();
        within(LIMIT, async move {
            let described = client.describe_connection(request(message, LIMIT)).await?;
            let described = described.into_inner();
            Ok(ConnectionDescription {
                service_host: described.service_host,
                server_host: described.server_host,
                scope: some(described.scope),
            })
        })
        .await
    }

    /// Begins a grant, and returns the URL that the user has to open.
    pub async fn start_connection(
        &self,
        start: StartConnection<'_>,
    ) -> Result<StartedConnection, CallError> {
        let message = pb::StartConnectionRequest {
            person: Some(start.person.into()),
            connect: Some(start.connect.into()),
            redirect_uri: start.redirect_uri.to_owned(),
            state: start.state.to_owned(),
            client_metadata_url: start.client_metadata_url.unwrap_or_default().to_owned(),
        };
        let mut client = self.client.clone();
        within(LIMIT, async move {
            let started = client.start_connection(request(message, LIMIT)).await?;
            let started = started.into_inner();
            Ok(StartedConnection {
                authorization_url: started.authorization_url,
                pending: started.pending,
            })
        })
        .await
    }

    /// Exchanges the authorization code for tokens. The tokens are stored, and the grant is recorded.
    pub async fn finish_connection(&self, finish: FinishConnection<'_>) -> Result<(), CallError> {
        let message = pb::FinishConnectionRequest {
            person: Some(finish.person.into()),
            source: finish.connect.source.clone(),
            pending: finish.pending,
            code: finish.code.to_owned(),
            issuer: finish.issuer.map(str::to_owned),
            caller_proof: finish.connect.caller_proof.clone(),
        };
        let mut client = self.client.clone();
        within(LIMIT, async move {
            client.finish_connection(request(message, LIMIT)).await?;
            Ok(())
        })
        .await
    }

    /// Returns all connections, for the operator with the token `operator`.
    pub async fn list_connections(
        &self,
        operator: &BearerToken,
    ) -> Result<Vec<SourceConnection>, CallError> {
        let message = pb::ListConnectionsRequest {
            caller_token: operator.expose().to_owned(),
        };
        let mut client = self.client.clone();
        within(LIMIT, async move {
            let listed = client.list_connections(request(message, LIMIT)).await?;
            let listed = listed.into_inner();
            let connections = listed
                .connections
                .into_iter()
                .map(SourceConnection::try_from);
            Ok(connections.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Removes connections for the operator with the token `operator`. Returns the number of removed connections.
    pub async fn remove_connections(
        &self,
        operator: &BearerToken,
        remove: RemoveConnections<'_>,
    ) -> Result<u64, CallError> {
        let message = pb::RemoveConnectionsRequest {
            subject: remove.subject.to_owned(),
            issuer: remove.issuer.unwrap_or_default().to_owned(),
            source: remove.source.unwrap_or_default().to_owned(),
            caller_token: operator.expose().to_owned(),
        };
        let mut client = self.client.clone();
        within(LIMIT, async move {
            let removed = client.remove_connections(request(message, LIMIT)).await?;
            Ok(removed.into_inner().removed)
        })
        .await
    }
}

fn some(text: String) -> Option<String> {
    Some(text).filter(|text| !text.is_empty())
}

impl From<&Person> for pb::Person {
    fn from(person: &Person) -> Self {
        Self {
            tenant: person.tenant.clone(),
            issuer: person.issuer.clone(),
            subject: person.subject.clone(),
        }
    }
}

impl TryFrom<pb::Connection> for SourceConnection {
    type Error = InvalidMessage;

    fn try_from(connection: pb::Connection) -> Result<Self, Self::Error> {
        let missing = |field| InvalidMessage::field(field, "is missing");
        let person = connection.person.ok_or_else(|| missing("person"))?;
        let (connected_at, changed_at) = (connection.connected_at, connection.changed_at);
        Ok(Self {
            source: connection.source,
            person: Person {
                tenant: person.tenant,
                issuer: person.issuer,
                subject: person.subject,
            },
            connected_at: connected_at
                .ok_or_else(|| missing("connected_at"))?
                .try_into()?,
            changed_at: changed_at
                .ok_or_else(|| missing("changed_at"))?
                .try_into()?,
        })
    }
}
