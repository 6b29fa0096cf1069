//! Tests that the record is shown only to people whom the policy allows, and that every access is recorded first.

use http::StatusCode;
use serde_json::{Value, json};
use wardgate_domain::Status;

use super::TestConsole;

fn call(subject: &str, tenant: &str) -> Value {
    json!({
        "event": "outcome", "status": "ok", "time": "2027-01-15T08:00:00.000000Z", "tool": "look_up", "rows": 2,
        "rows_withheld": 3, "call_id": "0192d1a0-0000-7000-8000-000000000001",
        "caller": { "subject": subject, "tenant": tenant, "roles": ["<i>Nurse"] },
    })
}

#[tokio::test]
async fn whom_the_policy_does_not_let_sees_nothing_and_is_led_nowhere_near_it() {
    let stage = TestConsole::new().await;
    stage.audit.holds(call("canary", ""));
    let cookie = stage.sign_in("dr.yenji").await;
    for path in [
        "/console/record",
        "/console/record?since=yesterday",
        "/console/record/0",
        "/console/record/7",
        "/console/record.jsonl",
    ] {
        let reply = stage.get(path, &cookie).await;
        assert_eq!(reply.status, StatusCode::FORBIDDEN, "{path}");
        assert!(!reply.body.contains("canary"), "{path}");
    }
    // Nothing was read, so nothing is recorded.
    assert!(stage.audit.outcomes.entries().is_empty());
    for path in ["/console/tools", "/console/policy", "/console/chat"] {
        let page = stage.get(path, &cookie).await.body;
        assert!(!page.contains("/console/record"), "{path}: {page}");
    }
    let you = stage.get("/console/policy", &cookie).await.body;
    assert!(you.contains("no access"), "{you}");
}

#[tokio::test]
async fn people_see_what_they_did_themselves_where_the_policy_lets_them() {
    let stage = TestConsole::new().await;
    let own = |more: &Value| {
        let mut record = call("dr.yenji", "");
        record["caller"]["issuer"] = json!("https://issuer.example");
        for (name, value) in more.as_object().unwrap() {
            record[name] = value.clone();
        }
        record
    };
    stage.audit.holds(own(&json!({ "tool": "my_first" })));
    stage.audit.holds(call("canary", ""));
    // The same subject at another issuer or of a tenant is another person.
    stage.audit.holds(call("dr.yenji", ""));
    stage.audit.holds(call("dr.yenji", "north"));
    stage
        .audit
        .holds(own(&json!({ "tool": "look", "method": "record/read" })));
    stage.audit.holds(own(&json!({ "tool": "my_second" })));
    stage.lets_read_own("dr.yenji");
    let cookie = stage.sign_in("dr.yenji").await;
    for path in ["/console/record", "/console/record?subject=canary"] {
        let page = stage.get(path, &cookie).await;
        assert_eq!(page.status, StatusCode::OK);
        assert!(page.body.contains("my_second") && page.body.contains("my_first"));
        assert!(
            !page.body.contains("canary") && !page.body.contains("look_up"),
            "{}",
            page.body
        );
        assert!(!page.body.contains("record/read") && !page.body.contains("for=\"subject\""));
        assert!(page.body.contains("<h1>Your calls</h1>"), "{}", page.body);
    }
    for (sequence, status) in [
        (0, 200),
        (1, 404),
        (2, 404),
        (3, 404),
        (4, 404),
        (5, 200),
        (9, 404),
    ] {
        let page = stage
            .get(&format!("/console/record/{sequence}"), &cookie)
            .await;
        assert_eq!(page.status.as_u16(), status, "{sequence}");
    }
    let file = stage.get("/console/record.jsonl", &cookie).await.body;
    assert_eq!(file.lines().count(), 2, "{file}");
    // The accesses are recorded, and none of them as refused.
    let looks = stage.audit.outcomes.entries();
    assert!(looks.iter().all(|look| look.status == Status::Ok));
    let facts = &looks[0].call;
    assert_eq!(
        (facts.subject.as_str(), facts.method.as_str()),
        ("dr.yenji", "record/read")
    );
    assert_eq!(
        (facts.protocol.as_str(), facts.client_ip.as_str()),
        ("console", "192.0.2.7")
    );
}

#[tokio::test]
async fn who_may_read_it_sees_it_newest_first_as_text_and_that_is_on_record() {
    let stage = TestConsole::new().await;
    for at in 0..60 {
        stage.audit.holds(call(&format!("person-{at}"), ""));
    }
    stage
        .audit
        .holds(json!({ "event": "refusals", "time": "x", "<b>": { "<i>": ["<script>"] } }));
    stage.lets_read_all("lee");
    let cookie = stage.sign_in("lee").await;
    let page = stage.get("/console/record?status=ok", &cookie).await.body;
    let (newest, older) = (
        page.find("person-59").unwrap(),
        page.find("person-58").unwrap(),
    );
    assert!(newest < older && !page.contains("person-10 "), "{page}");
    assert!(
        page.contains("&lt;i&gt;Nurse") && !page.contains("<i>"),
        "{page}"
    );
    assert!(page.contains("before=11"), "{page}");
    let rest = stage.get("/console/record?before=11", &cookie).await.body;
    assert!(
        rest.contains("person-10 ") && rest.contains("person-0 ") && !rest.contains("person-11 "),
        "{rest}"
    );
    let one = stage.get("/console/record/60", &cookie).await.body;
    assert!(
        one.contains("&lt;b&gt;.&lt;i&gt;") && !one.contains("<script>"),
        "{one}"
    );
    assert!(one.contains("leaf hash"), "{one}");
    let rows: Vec<u64> = stage
        .audit
        .outcomes
        .entries()
        .iter()
        .map(|look| look.rows)
        .collect();
    assert_eq!(rows, [50, 11, 1]);
}

#[tokio::test]
async fn a_caller_of_a_tenant_is_shown_that_tenants_part() {
    let stage = TestConsole::new().await;
    for at in 0..120 {
        stage.audit.holds(call(
            &format!("person-{at}"),
            if at % 2 == 0 { "north" } else { "south" },
        ));
    }
    stage
        .audit
        .holds(json!({ "event": "admin_change", "actor": "canary" }));
    stage.lets_read_all("lee");
    let token = stage.token(
        "lee",
        &json!({ "iss": "https://tenants.example", "tenant": "north" }),
    );
    let reply = stage
        .post("/console/sign-in", "", &format!("token={token}"))
        .await;
    let cookie = reply.cookie();
    let page = stage.get("/console/record", &cookie).await.body;
    assert!(
        page.contains("person-118 ") && page.contains("person-20 "),
        "{page}"
    );
    assert!(
        !page.contains("person-119 ") && !page.contains("canary"),
        "{page}"
    );
    assert!(page.contains("before=19"), "{page}");
    for hidden in ["/console/record/119", "/console/record/120"] {
        assert_eq!(
            stage.get(hidden, &cookie).await.status,
            StatusCode::NOT_FOUND
        );
    }
    let file = stage.get("/console/record.jsonl", &cookie).await.body;
    assert_eq!(file.lines().count(), 60);
    assert!(!file.contains("south"));
}

#[tokio::test]
async fn damage_to_the_store_is_shown_to_every_reader_and_named_to_those_who_may_read_all() {
    const NAMED: &str = "record 7: cannot be read";
    const INCOMPLETE: &str = "Some of them may be missing here";
    let stage = TestConsole::new().await;
    stage.audit.holds(call("anna", "north"));
    stage.lets_read_all("lee");
    let of_tenant = json!({ "iss": "https://tenants.example", "tenant": "north" });
    let token = stage.token("lee", &of_tenant);
    let reply = stage
        .post("/console/sign-in", "", &format!("token={token}"))
        .await;
    let (of_all, of_tenant) = (stage.sign_in("lee").await, reply.cookie());
    for cookie in [&of_all, &of_tenant] {
        let page = stage.get("/console/record", cookie).await.body;
        assert!(page.contains("anna"), "{page}");
        assert!(
            !page.contains(NAMED) && !page.contains(INCOMPLETE),
            "{page}"
        );
    }
    stage.audit.reports_damage(7, "cannot be read");
    for (cookie, expected, hidden) in [
        (&of_all, NAMED, INCOMPLETE),
        (&of_tenant, INCOMPLETE, NAMED),
    ] {
        let page = stage.get("/console/record", cookie).await.body;
        assert!(page.contains("anna") && page.contains(expected), "{page}");
        assert!(!page.contains(hidden), "{page}");
    }
    let file = stage.get("/console/record.jsonl", &of_all).await.body;
    let damage = r#"{"sequence":7,"damage":"cannot be read"}"#;
    assert_eq!(
        (file.lines().next(), file.lines().count()),
        (Some(damage), 2)
    );
    let file = stage.get("/console/record.jsonl", &of_tenant).await.body;
    assert_eq!(file.lines().count(), 2, "{file}");
    assert!(file.lines().next().unwrap().contains(INCOMPLETE), "{file}");
}

#[tokio::test]
async fn a_download_has_each_record_as_it_is_stored() {
    let stage = TestConsole::new().await;
    stage.audit.holds(call("anna", ""));
    stage.lets_read_all("lee");
    let cookie = stage.sign_in("lee").await;
    let reply = stage.get("/console/record.jsonl", &cookie).await;
    assert_eq!(
        reply.header("content-disposition"),
        "attachment; filename=\"record.jsonl\""
    );
    assert!(
        reply
            .body
            .contains(&format!("\"record\":{}}}", call("anna", ""))),
        "{}",
        reply.body
    );
}

#[tokio::test]
async fn what_cannot_be_put_on_record_is_not_shown() {
    let stage = TestConsole::new().await;
    stage.audit.holds(call("canary", ""));
    stage.lets_read_all("lee");
    stage.audit.fails();
    let cookie = stage.sign_in("lee").await;
    let reply = stage.get("/console/record", &cookie).await;
    assert_eq!(reply.status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(!reply.body.contains("canary"), "{}", reply.body);
}

#[tokio::test]
async fn a_filter_that_cannot_be_keeps_the_form_and_says_what_to_mend() {
    let stage = TestConsole::new().await;
    stage.audit.holds(call("canary", ""));
    stage.lets_read_all("lee");
    let cookie = stage.sign_in("lee").await;
    for (filter, says) in [
        ("since=yesterday", "in UTC"),
        ("until=now", "in UTC"),
        ("status=fine", "from the list"),
        ("call_id=x", "a UUID"),
        ("before=x", "number of a record"),
    ] {
        let reply = stage
            .get(
                &format!("/console/record?tool=kept&subject=too&{filter}"),
                &cookie,
            )
            .await;
        assert_eq!(reply.status, StatusCode::BAD_REQUEST);
        assert!(reply.body.contains(says), "{filter}: {}", reply.body);
        let (name, given) = filter.split_once('=').unwrap();
        for kept in ["value=\"kept\"", "value=\"too\"", "Sign out", ">Record<"] {
            assert!(reply.body.contains(kept), "{filter} {kept}: {}", reply.body);
        }
        if !matches!(name, "status" | "before") {
            let kept = format!("name=\"{name}\" value=\"{given}\"");
            assert!(reply.body.contains(&kept), "{kept}: {}", reply.body);
        }
        assert!(!reply.body.contains("canary"), "{filter}");
    }
    let both = stage
        .get("/console/record?since=yesterday&call_id=x", &cookie)
        .await;
    assert!(both.body.contains("in UTC") && both.body.contains("a UUID"));
    assert!(stage.audit.outcomes.entries().is_empty());
    for good in [
        "since=2027-01-15T08:00",
        "until=2027-01-15T08:00:00Z",
        "subject=&tool=",
    ] {
        let reply = stage.get(&format!("/console/record?{good}"), &cookie).await;
        assert_eq!(reply.status, StatusCode::OK, "{good}");
    }
}
