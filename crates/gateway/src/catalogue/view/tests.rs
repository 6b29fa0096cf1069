use super::links::{in_content, in_definition, in_result};

#[test]
fn links_in_content_are_the_sources_own_again_and_every_other_byte_stays() {
    let content = concat!(
        r#"[ {"type":"text","text":"notes+file:///a","n":1.10},"#,
        r#"{"type":"resource_link","uri":"notes+file:\/\/\/a","name":"a"},"#,
        r#"{"type":"resource","resource":{"uri":"ui://notes/p/m", "text":"x"}},"#,
        r#"{"type":"resource_link","uri":"others+file:///a"},"#,
        r#"{"type":"resource_link","uri":"notes+a b:c"},{"type":"resource_link","uri":7},7 ]"#,
    );
    let own = concat!(
        r#"[ {"type":"text","text":"notes+file:///a","n":1.10},"#,
        r#"{"type":"resource_link","uri":"file:///a","name":"a"},"#,
        r#"{"type":"resource","resource":{"uri":"ui://p/m", "text":"x"}},"#,
        r#"{"type":"resource_link","uri":"others+file:///a"},"#,
        r#"{"type":"resource_link","uri":"notes+a b:c"},{"type":"resource_link","uri":7},7 ]"#,
    );
    assert_eq!(in_content("notes", content), own);
    for text in ["", "{}", "7", "[]"] {
        assert_eq!(in_content("notes", text), text);
    }
}

#[test]
fn prompts_resources_and_pages_of_tools_name_the_sources_own_resources() {
    let prompt = r#"{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"n+x:y"}}},{"role":"user","content":7}]}"#;
    assert_eq!(in_result("n", prompt), prompt.replace("n+x:y", "x:y"));
    let resource = r#"{"contents":[{"uri":"n+x:y","text":"n+x:y","z":1e2},{}]}"#;
    let own = r#"{"contents":[{"uri":"x:y","text":"n+x:y","z":1e2},{}]}"#;
    assert_eq!(in_result("n", resource), own);
    let tool = r#"{"name":"a","_meta":{"ui":{"resourceUri":"ui://n/p","x":1.10},"ui/resourceUri":"ui://n/p"}}"#;
    assert_eq!(in_definition("n", tool), tool.replace("ui://n/p", "ui://p"));
    for text in [r#"{"name":"a"}"#, r#"{"_meta":{"ui":7}}"#, "[]"] {
        assert_eq!(in_definition("n", text), text);
    }
}
