//! An open HTTP source, which several executors share.

use serde_json::{Map, Value};
use url::Url;
use wardgate_domain::Ambient;

use crate::executor::Invocation;
use wardgate_catalogue::UnfitValue;
use wardgate_catalogue::plan::PathTemplate;
use wardgate_egress::HttpSettings;
use wardgate_egress::{EgressClient, EgressError, EgressRequest, EgressResponse, OnBehalf};

/// The URL of a service and the HTTP client for it.
pub(crate) struct HttpSource {
    url: Url,
    client: EgressClient,
}

impl HttpSource {
    /// Opens the source without connecting to it.
    pub(crate) fn open(settings: &HttpSettings, ambient: &Ambient) -> Result<Self, EgressError> {
        Ok(Self {
            url: settings.url.clone(),
            client: EgressClient::open(&settings.client, ambient)?,
        })
    }

    /// Returns the service's URL, with `path` appended if there is one.
    pub(in crate::executor) fn url(
        &self,
        path: Option<&PathTemplate>,
        values: &Map<String, Value>,
    ) -> Result<Url, UnfitValue> {
        let mut url = self.url.clone();
        if let Some(path) = path {
            let path = path.fill(values)?;
            url.set_path(&format!("{}{path}", self.url.path().trim_end_matches('/')));
        }
        Ok(url)
    }

    /// Sends a request on behalf of the caller of `call`.
    pub(in crate::executor) async fn send(
        &self,
        request: EgressRequest,
        call: &Invocation<'_>,
    ) -> Result<EgressResponse, EgressError> {
        let caller = Some(OnBehalf::from_caller(call.caller, call.caller_token));
        self.client.send(request, caller).await
    }
}
