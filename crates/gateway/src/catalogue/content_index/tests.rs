use super::*;

fn index() -> ContentIndex {
    let entry = |name: &str, definition: &str| ContentEntry {
        source: "guides".to_owned(),
        name: name.to_owned(),
        own_name: name.to_owned(),
        definition_json: definition.to_owned(),
    };
    ContentIndex::new(Content {
        resources: vec![
            entry("guide://room/plan", r#"{"name":"plan","x":1.10}"#),
            entry("guide://door", r#"{"title":"Door","name":"door"}"#),
            entry("guide://broken", "[]"),
        ],
        templates: vec![
            entry("guide://room/{room}", "{}"),
            ContentEntry {
                source: "notes".to_owned(),
                ..entry("notes+file:///{name}", "{}")
            },
        ],
        sources: [("guides", false), ("notes", true)]
            .map(|(name, is_upstream)| ContentSource {
                name: name.to_owned(),
                kinds: vec![OfferKind::Resources],
                toolsets: Vec::new(),
                is_upstream,
                is_missing: false,
                skills: None,
            })
            .to_vec(),
        ..Content::default()
    })
}

#[test]
fn a_uri_is_found_listed_or_by_a_template() {
    let index = index();
    for uri in ["guide://door", "guide://room/plan", "guide://room/7"] {
        assert_eq!(index.resource(uri).unwrap().own_name, uri);
    }
    for uri in [
        "guide://broken",
        "guide://room/",
        "guide://room/a/b",
        "",
        "guide://room/{room}",
    ] {
        assert_eq!(index.resource(uri), None, "{uri}");
    }
    assert!(index.template("guide://room/{room}").is_some());
    let of_server = ContentLocation {
        source: "notes".to_owned(),
        own_name: "file:///a b?c".to_owned(),
    };
    assert_eq!(index.resource("notes+file:///a b?c"), Some(of_server));
    assert_eq!(index.resource("guides+file:///a"), None, "it is no server");
}

#[test]
fn a_definition_keeps_its_members_as_they_are_written() {
    let index = index();
    let (modern, oldest) = (Version::V2026_07_28, Version::V2025_03_26);
    let all = View::Everything;
    let [transport, plan] = &index.resources[..] else {
        panic!("not two")
    };
    let text = r#"{"uri":"guide://room/plan","name":"plan","x":1.10}"#;
    assert_eq!(plan.definition(&all, modern), text);
    assert_eq!(
        transport.definition(&all, oldest),
        r#"{"uri":"guide://door","name":"door"}"#
    );
    assert!(
        transport
            .definition(&all, modern)
            .contains(r#""title":"Door""#)
    );
}
