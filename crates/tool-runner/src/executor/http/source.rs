//! An open HTTP source, for every executor that works on one.

use url::Url;
use wardgate_domain::Ambient;

use crate::catalogue::HttpSettings;
use crate::egress::{CallerToken, Client, EgressError, Request, Response};
use crate::executor::Invocation;

/// A service and the client it is called with.
pub(crate) struct HttpSource {
    url: Url,
    client: Client,
}

impl HttpSource {
    /// Connects to nothing yet.
    pub(crate) fn open(settings: &HttpSettings, ambient: &Ambient) -> Result<Self, EgressError> {
        Ok(Self {
            url: settings.url.clone(),
            client: Client::open(&settings.client, ambient)?,
        })
    }

    /// The service's URL with `path`, percent-encoded already, behind its own.
    pub(super) fn url(&self, path: &str) -> Url {
        let mut url = self.url.clone();
        url.set_path(&format!("{}{path}", self.url.path().trim_end_matches('/')));
        url
    }

    /// Sends a request on behalf of the call's caller.
    pub(super) async fn send(
        &self,
        request: Request,
        call: &Invocation<'_>,
    ) -> Result<Response, EgressError> {
        let caller = call.caller_token.map(|token| CallerToken {
            token,
            expires_at: call.caller.expires_at(),
        });
        self.client.send(request, caller).await
    }
}
