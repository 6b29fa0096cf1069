//! `GET /v1/models`: lists the assistants in the format of OpenAI's model list.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Path};
use axum::response::{IntoResponse, Response};
use http::header;
use serde_json::{Value, json};

use super::admission::AdmittedRequest;
use super::{Endpoints, Problem};
use crate::Model;

pub(super) async fn list(
    here: Arc<Endpoints>,
    request: AdmittedRequest,
) -> Result<Response, Problem> {
    let models = here.agent.models(&request.caller);
    let data: Vec<Value> = models.iter().map(entry).collect();
    Ok(reply(&json!({ "object": "list", "data": data })))
}

pub(super) async fn get_model(
    here: Arc<Endpoints>,
    mut request: AdmittedRequest,
) -> Result<Response, Problem> {
    let unknown =
        || Problem::unknown_model("No assistant has this name; GET /v1/models lists them.");
    let Path(name) = Path::<String>::from_request_parts(&mut request.parts, &())
        .await
        .map_err(|_| unknown())?;
    let models = here.agent.models(&request.caller);
    let model = models
        .iter()
        .find(|model| model.name == name)
        .ok_or_else(unknown)?;
    Ok(reply(&entry(model)))
}

fn entry(model: &Model) -> Value {
    json!({
        "id": model.name,
        "object": "model",
        // Clients require a creation time, which an assistant does not have.
        "created": 0,
        "owned_by": "wardgate",
        "wardgate": { "description": model.description, "missing": model.missing },
    })
}

fn reply(body: &Value) -> Response {
    (
        [(header::CONTENT_TYPE, "application/json")],
        body.to_string(),
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_assistant_reads_as_a_model() {
        let model = Model {
            name: "clinic".to_owned(),
            description: "Answers staff".to_owned(),
            missing: vec!["LLM_BASE_URL".to_owned()],
        };
        let expected = json!({
            "id": "clinic",
            "object": "model",
            "created": 0,
            "owned_by": "wardgate",
            "wardgate": { "description": "Answers staff", "missing": ["LLM_BASE_URL"] },
        });
        assert_eq!(entry(&model), expected);
    }
}
