//! Tests of complete turns with recorded answers of a real model.

use serde_json::json;

use super::fixture::Fixture;
use crate::provider::testing::read_cassette;
use crate::testing::{FakeGateway, FakeTool, ScriptedModel};

#[tokio::test]
async fn a_real_model_calls_a_tool_and_answers_from_what_it_gave_however_it_writes_calls() {
    for (calls, call, answer, text) in [
        (
            "native",
            "native_call",
            "native_answer",
            "The parcel AB1234 is currently in transit to Hamburg and is expected to arrive on Tuesday.",
        ),
        // The model is offered native functions but writes its call as text.
        ("native", "stock_template", "text_answer", "Hamburg"),
        // The model invents a result after its call.
        ("text", "text_call", "text_answer", "Hamburg"),
    ] {
        let mut answers = Vec::new();
        for cassette in [call, answer] {
            answers.push(read_cassette(cassette).await.into_iter().map(Ok).collect());
        }
        let tool = FakeTool::gives("parcel_status", "In transit to Hamburg.")
            .takes(json!({"type": "object", "properties": {"parcel_id": {"type": "string"}}}));
        let model = ScriptedModel::new(answers);
        let more = format!("    calls: {calls}\n");
        let fixture = Fixture::new(model, FakeGateway::new([tool]), &more).await;
        let events = fixture.says("Where is parcel AB1234?").await;
        assert_eq!(events.text(), text, "{call}");
        let arguments = json!({ "parcel_id": "AB1234" });
        assert_eq!(
            events.only_event("tool_call")["arguments"],
            arguments,
            "{call}"
        );
        assert_eq!(events.only_event("tool_result")["success"], true, "{call}");
        assert_eq!(events.last()["finish_reason"], "stop", "{call}");
    }
}
