use serde_json::Value;

use super::*;

fn file(path: &str) -> Value {
    json!({ "uri": format!("skill://acme/billing/{path}"), "digest": format!("sha256:{:064}", 1), "size": 7 })
}

fn entry(resources: &Value) -> Value {
    json!({
        "uri": "skill://acme/billing/SKILL.md",
        "frontmatter": { "name": "billing", "description": "Invoices" },
        "resources": resources,
    })
}

fn parse_entry(entry: &Value) -> Result<Skill, &'static str> {
    Skill::parse("notes", &entry.to_string(), |uri| !uri.contains("secret"))
}

#[test]
fn its_files_name_the_source_and_everything_else_stays_as_it_was_written() {
    let digest = format!("sha256:{:064}", 1);
    let entry = format!(
        r#"{{"uri":"skill://acme/billing/SKILL.md","frontmatter":{{"name":"billing","description":"d","version":1.10}},"resources":[{{"uri":"skill://acme/billing/SKILL.md","digest":"{digest}","size":7,"x":1.0}}],"_meta":{{"a":2.50}}}}"#
    );
    let skill = Skill::parse("notes", &entry, |_| true).ok().unwrap();
    assert_eq!(skill.own_uri, "skill://acme/billing/SKILL.md");
    assert_eq!(skill.uri, "skill://notes/acme/billing/SKILL.md");
    let whole: Value = serde_json::from_str(&skill.whole()).unwrap();
    assert_eq!(whole["resources"][0]["uri"], skill.uri);
    assert_eq!(whole["resources"][0]["digest"], digest);
    for kept in [r#""version":1.10"#, r#""x":1.0"#, r#""a":2.50"#] {
        assert!(skill.definition.contains(kept), "{kept}");
    }
    let dynamic = parse_entry(&self::entry(&json!("dynamic"))).ok().unwrap();
    assert!(dynamic.whole().contains(r#""resources":"dynamic""#));
}

#[test]
fn what_breaks_a_rule_of_the_extension_is_kept_out() {
    let with = |more: &[Value]| entry(&[&[file("SKILL.md")], more].concat().into());
    assert!(parse_entry(&with(&[file("a/b.py"), file("..b")])).is_ok());
    let most = (0..511).map(|n| file(&n.to_string())).collect::<Vec<_>>();
    assert!(parse_entry(&with(&most)).is_ok());
    let mut bad = vec![
        (with(&[&most[..], &[file("one too many")]].concat()), "512"),
        (with(&[file("SKILL.md")]), "twice"),
        (with(&[file("secret")]), "offered"),
        (entry(&json!([])), "do not contain"),
        (entry(&json!("static")), "dynamic"),
        (entry(&json!({})), "requires"),
        (json!([]), "requires"),
    ];
    for path in [
        "",
        "../x",
        "a/../../x",
        "a//b",
        "%2E%2e/x",
        "a%2fb",
        "a?b",
        "a#b",
        "./a",
    ] {
        bad.push((with(&[file(path)]), "directory"));
    }
    let elsewhere =
        json!({ "uri": "skill://acme/other", "digest": format!("sha256:{:064}", 1), "size": 1 });
    bad.push((with(&[elsewhere]), "directory"));
    for (member, value, why) in [
        ("digest", json!(format!("sha256:{:A>64}", 1)), "digest"),
        ("digest", json!("sha256:00"), "digest"),
        ("size", json!(16 << 20), "16 MiB"),
        ("size", json!(-1), "requires"),
    ] {
        let mut file = file("a");
        file[member] = value;
        bad.push((with(&[file]), why));
    }
    for (place, value, why) in [
        ("/frontmatter/name", json!("bills"), "end with its name"),
        ("/frontmatter/description", json!(7), "description"),
        ("/uri", json!("skill://acme/billing/README.md"), "SKILL.md"),
        ("/uri", json!("skill://acme/billing/SKILL.md?x"), "SKILL.md"),
        ("/uri", json!("SKILL.md"), "SKILL.md"),
    ] {
        let mut entry = with(&[]);
        *entry.pointer_mut(place).unwrap() = value;
        bad.push((entry, why));
    }
    for (entry, why) in bad {
        let refused = parse_entry(&entry).err().unwrap_or("it was taken");
        assert!(refused.contains(why), "{refused}: {entry}");
    }
}
