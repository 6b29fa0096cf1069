use serde_json::json;

use super::*;

#[test]
fn links_and_resources_in_content_name_their_source_and_nothing_else_changes() {
    let mut content = json!([
        { "type": "text", "text": "file:///a" },
        { "type": "resource_link", "uri": "file:///a", "name": "a" },
        { "type": "resource", "resource": { "uri": "ui://p/m", "text": "x" } },
        { "type": "resource_link", "uri": "no uri" },
        7,
    ]);
    in_content("notes", &mut content);
    assert_eq!(
        content,
        json!([
            { "type": "text", "text": "file:///a" },
            { "type": "resource_link", "uri": "notes+file:///a", "name": "a" },
            { "type": "resource", "resource": { "uri": "ui://notes/p/m", "text": "x" } },
            { "type": "resource_link", "uri": "no uri" },
            7,
        ])
    );
}

#[test]
fn in_the_text_of_blocks_every_other_byte_stays() {
    let blocks = r#"[ {"type":"text","n":1.10,"text":"\ud800"},{"uri":"file:\/\/\/a","type":"resource_link","big":12345678901234567890123},{"type":"resource","resource":{"text":"\u0000","uri":"ui://p/m"}},7]"#;
    let shown = blocks
        .replace(r#""file:\/\/\/a""#, r#""notes+file:///a""#)
        .replace("ui://p/m", "ui://notes/p/m");
    assert_eq!(in_content_text("notes", blocks), shown);
    assert_eq!(in_content_text("notes", "7"), "7");
    let messages = r#"[{"role":"user","n":1.0,"content":{"type":"resource_link","uri":"file:///a"}},{"content":7},{"role":"user"}]"#;
    let shown = messages.replace("file:///a", "notes+file:///a");
    assert_eq!(in_messages_text("notes", messages), shown);
    let contents = r#"[{"uri":"file:///a","text":"\ud800"},{"text":"x"},{"uri":7}]"#;
    let shown = contents.replace("file:///a", "notes+file:///a");
    assert_eq!(in_contents_text("notes", contents), shown);
}
