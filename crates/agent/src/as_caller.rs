//! The gateway with one caller's token, as a turn sees it.

use futures::FutureExt;
use futures::future::{self, BoxFuture};
use serde_json::{Map, Value};

use crate::gateway::Gateway;
use crate::request::BearerToken;
use crate::seam::{GatewayClient, GatewayFailure, GatewayTool, ToolAnswer};

/// The gateway, asked on behalf of one caller.
pub(crate) struct AsCaller {
    _gateway: Gateway,
    _token: BearerToken,
}

impl AsCaller {
    pub(crate) fn new(gateway: Gateway, token: BearerToken) -> Self {
        Self {
            _gateway: gateway,
            _token: token,
        }
    }
}

impl GatewayClient for AsCaller {
    fn tools<'a>(
        &'a self,
        _toolsets: &'a [String],
    ) -> BoxFuture<'a, Result<Vec<GatewayTool>, GatewayFailure>> {
        future::ready(Err(GatewayFailure::Unreachable)).boxed()
    }

    fn call<'a>(
        &'a self,
        _tool: &'a str,
        _arguments: &'a Map<String, Value>,
        _key: &'a str,
    ) -> BoxFuture<'a, Result<ToolAnswer, GatewayFailure>> {
        future::ready(Err(GatewayFailure::Unreachable)).boxed()
    }

    fn memory<'a>(
        &'a self,
        _method: &'static str,
        _params: Value,
    ) -> BoxFuture<'a, Result<Value, GatewayFailure>> {
        future::ready(Err(GatewayFailure::Unreachable)).boxed()
    }
}
