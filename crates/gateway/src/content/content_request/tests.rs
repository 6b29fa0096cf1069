use super::*;

fn parse_request(method: ContentMethod, params: &str) -> Result<ContentRequest, RpcError> {
    let text = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"x","params":{params}}}"#);
    let Ok(JsonRpcMessage::Request(request)) = JsonRpcMessage::parse(&text) else {
        panic!("{text}")
    };
    ContentRequest::from_request(method, &request, "2025-11-25")
}

#[test]
fn a_completion_is_of_a_prompt_or_a_template() {
    let content_request = parse_request(
        ContentMethod::Complete,
        r#"{"ref":{"type":"ref/prompt","name":"greet"},"argument":{"name":"tone","value":"w"},"context":{"arguments":{"who":"you"}}}"#,
    );
    let content_request = content_request.unwrap();
    assert_eq!(content_request.of.kind(), OfferKind::Prompts);
    let ContentPart::Completion {
        argument,
        value,
        known,
    } = content_request.wanted
    else {
        panic!("no completion")
    };
    assert_eq!((argument.as_str(), value.as_str()), ("tone", "w"));
    assert_eq!(known, r#"{"who":"you"}"#);
    let template =
        r#"{"ref":{"type":"ref/resource","uri":"x://{a}"},"argument":{"name":"a","value":""}}"#;
    let content_request = parse_request(ContentMethod::Complete, template).unwrap();
    assert_eq!(content_request.of.kind(), OfferKind::Resources);
}

#[test]
fn what_does_not_fit_is_refused_by_its_field() {
    let reference = r#""ref":{"type":"ref/prompt","name":"a"}"#;
    let cases = [
        (ContentMethod::GetPrompt, "{}".to_owned(), "`params.name`"),
        (
            ContentMethod::GetPrompt,
            r#"{"name":7}"#.to_owned(),
            "`params.name`",
        ),
        (
            ContentMethod::GetPrompt,
            r#"{"name":"a","arguments":[]}"#.to_owned(),
            "`params.arguments`",
        ),
        (
            ContentMethod::GetPrompt,
            r#"{"name":"a","arguments":{"b":1}}"#.to_owned(),
            "`params.arguments`",
        ),
        (
            ContentMethod::ReadResource,
            r#"{"uri":null}"#.to_owned(),
            "`params.uri`",
        ),
        (ContentMethod::Complete, "{}".to_owned(), "`params.ref`"),
        (
            ContentMethod::Complete,
            r#"{"ref":{"type":"ref/tool","name":"a"},"argument":{}}"#.to_owned(),
            "`params.ref`",
        ),
        (
            ContentMethod::Complete,
            r#"{"ref":{"type":"ref/resource","name":"a"},"argument":{}}"#.to_owned(),
            "`params.ref`",
        ),
        (
            ContentMethod::Complete,
            format!(r#"{{{reference},"argument":{{"name":"a"}}}}"#),
            "`params.argument`",
        ),
        (
            ContentMethod::Complete,
            format!(
                r#"{{{reference},"argument":{{"name":"a","value":""}},"context":{{"arguments":[]}}}}"#
            ),
            "`params.context.arguments`",
        ),
    ];
    for (method, params, expected) in cases {
        let error = parse_request(method, &params).unwrap_err();
        assert!(
            error.message().contains(expected),
            "{params}: {}",
            error.message()
        );
    }
}
