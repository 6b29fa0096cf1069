//! What people let sources do in their name, as the tool-runner's callers see it.

use std::time::Duration;

use bytes::Bytes;
use wardgate_domain::{BearerToken, InvalidMessage, Timestamp};
use wardgate_proto::toolrunner::v1 as pb;

use super::{CallError, ToolRunnerClient, request, within};

/// An authorization server is somebody else's and may take its time.
const LIMIT: Duration = Duration::from_secs(40);

/// The source that a person is asked to connect, to act in their name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectTarget {
    /// Its name.
    pub source: String,
    /// Scopes besides those that are always asked for, with spaces between them.
    pub scope: Option<String>,
}

/// A person, whatever their rights are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// Empty where the deployment has only one.
    pub tenant: String,
    /// Who says so.
    pub issuer: String,
    /// What the issuer calls them.
    pub subject: String,
}

/// What a person is told before they agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionDescription {
    /// Host of the service that is called in their name.
    pub service_host: String,
    /// Host of the server that asks them.
    pub server_host: String,
    /// What they are asked for; none: that is left to the server.
    pub scope: Option<String>,
}

/// A grant to be begun.
#[derive(Debug, Clone)]
pub struct StartConnection<'a> {
    /// Who grants.
    pub person: &'a Person,
    /// To which source.
    pub connect: &'a ConnectTarget,
    /// Where they come back to.
    pub redirect_uri: &'a str,
    /// What comes back with them.
    pub state: &'a str,
    /// A document that describes us as a client.
    pub client_metadata_url: Option<&'a str>,
}

/// Where a person goes.
#[derive(Clone)]
pub struct StartedConnection {
    /// The whole URL.
    pub authorization_url: String,
    /// To be brought back with the code.
    pub pending: Bytes,
}

/// What a person came back with.
#[derive(Clone)]
pub struct FinishConnection<'a> {
    /// Who grants.
    pub person: &'a Person,
    /// Name of the source.
    pub source: &'a str,
    /// That of [`StartedConnection`].
    pub pending: Bytes,
    /// The code.
    pub code: &'a str,
    /// Who sent them back, where that was said.
    pub issuer: Option<&'a str>,
}

/// The connection of a person to a source, which acts in their name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceConnection {
    /// Name of the source.
    pub source: String,
    /// Who.
    pub person: Person,
    /// Since when.
    pub connected_at: Timestamp,
    /// When the tokens were last renewed.
    pub changed_at: Timestamp,
}

/// Whose connections are to be forgotten.
#[derive(Debug, Clone)]
pub struct RemoveConnections<'a> {
    /// What an issuer calls the person.
    pub subject: &'a str,
    /// Which issuer; none: whichever.
    pub issuer: Option<&'a str>,
    /// Name of the source; none: all.
    pub source: Option<&'a str>,
}

impl ToolRunnerClient {
    /// What a person is told before they agree.
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

    /// Where a person goes to grant what a source needs.
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

    /// Makes tokens of what a person came back with; they are stored and that is on record.
    pub async fn finish_connection(&self, finish: FinishConnection<'_>) -> Result<(), CallError> {
        let message = pb::FinishConnectionRequest {
            person: Some(finish.person.into()),
            source: finish.source.to_owned(),
            pending: finish.pending,
            code: finish.code.to_owned(),
            issuer: finish.issuer.map(str::to_owned),
        };
        let mut client = self.client.clone();
        within(LIMIT, async move {
            client.finish_connection(request(message, LIMIT)).await?;
            Ok(())
        })
        .await
    }

    /// Every connection, for the holder of the token `operator`.
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

    /// Forgets tokens for the holder of the token `operator`; how many connections that were.
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

impl From<&ConnectTarget> for pb::Connect {
    fn from(connect: &ConnectTarget) -> Self {
        Self {
            source: connect.source.clone(),
            scope: connect.scope.clone().unwrap_or_default(),
        }
    }
}

impl From<pb::Connect> for ConnectTarget {
    fn from(connect: pb::Connect) -> Self {
        Self {
            source: connect.source,
            scope: some(connect.scope),
        }
    }
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
