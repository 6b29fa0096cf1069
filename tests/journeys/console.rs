//! Tests of the console, for people with different rights.

use reqwest::header::{COOKIE, LOCATION, SET_COOKIE};
use wardgate_testkit::{SeparateProcesses, System, TestApp, WardgateProcess, until};

use super::people::{auditor, billing, doctor, nurse};
use crate::{REPOSITORY, WARDGATE};

/// A minimal browser that keeps one cookie.
pub(super) struct Browser {
    http: reqwest::Client,
    base: String,
    cookie: String,
}

/// The response to a request.
pub(super) struct Page {
    pub(super) status: u16,
    /// The location of the redirect.
    pub(super) to: String,
    pub(super) body: String,
}

impl Browser {
    fn new(base: &str) -> Self {
        let http = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none());
        Self {
            http: http.build().unwrap(),
            base: base.to_owned(),
            cookie: String::new(),
        }
    }

    /// Returns a browser that is signed in with `token`.
    pub(super) async fn sign_in(base: &str, token: &str) -> Self {
        let mut browser = Self::new(base);
        let page = browser.post("/console/sign-in", &[("token", token)]).await;
        assert_eq!(
            (page.status, page.to.as_str()),
            (303, "/console/tools"),
            "{}",
            page.body
        );
        browser
    }

    pub(super) async fn get(&mut self, path: &str) -> Page {
        let request = self.http.get(format!("{}{path}", self.base));
        self.send(request).await
    }

    pub(super) async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Page {
        let form = reqwest::Url::parse_with_params("http://form", fields).unwrap();
        let request = self
            .http
            .post(format!("{}{path}", self.base))
            .header("content-type", "application/x-www-form-urlencoded")
            .header("origin", &self.base)
            .header("sec-fetch-site", "same-origin")
            .body(form.query().unwrap_or_default().to_owned());
        self.send(request).await
    }

    async fn send(&mut self, request: reqwest::RequestBuilder) -> Page {
        let answer = request.header(COOKIE, &self.cookie).send().await.unwrap();
        let header = |name| {
            let value = answer.headers().get(name);
            value.map(|value| value.to_str().unwrap().to_owned())
        };
        if let Some(set) = header(SET_COOKIE) {
            set.split(';').next().unwrap().clone_into(&mut self.cookie);
        }
        Page {
            status: answer.status().as_u16(),
            to: header(LOCATION).unwrap_or_default(),
            body: answer.text().await.unwrap(),
        }
    }

    /// Calls the demo's tool for the records of NUGWI, with the form of the page if there is one, and follows the redirect.
    async fn call(&mut self) -> Page {
        const TOOL: &str = "/console/tools/get_medical_records";
        let form = self.get(TOOL).await;
        let hidden = |name: &str| {
            let before = format!("name=\"{name}\" value=\"");
            let rest = form.body.split_once(&before).map(|(_, rest)| rest);
            let value = rest.and_then(|rest| rest.split('"').next());
            value.unwrap_or_default().to_owned()
        };
        let (key, person) = (hidden("key"), hidden("person"));
        let fields = [
            ("argument.patient_id", "NUGWI"),
            ("argument.limit", "100"),
            ("key", key.as_str()),
            ("person", person.as_str()),
        ];
        let sent = self.post(TOOL, &fields).await;
        if sent.status != 303 {
            return sent;
        }
        let page = sent.to.split('#').next().unwrap().to_owned();
        self.get(&page).await
    }
}

/// Returns the text between `before` and the next `after`.
fn between<'a>(text: &'a str, before: &str, after: &str) -> &'a str {
    let rest = text
        .split_once(before)
        .unwrap_or_else(|| panic!("no {before} in {text}"))
        .1;
    rest.split_once(after).unwrap().0
}

#[tokio::test]
async fn people_see_in_the_console_what_they_may_and_the_auditor_sees_that() {
    let app = TestApp::start(WARDGATE);
    let base = app.client().base().to_owned();
    let mut stranger = Browser::new(&base);
    assert_eq!(
        stranger.get("/console/record").await.to,
        "/console/sign-in?next=%2Fconsole%2Frecord"
    );

    let mut doctor = Browser::sign_in(&base, &doctor(&app)).await;
    let tools = doctor.get("/console/tools?q=records").await;
    assert!(tools.body.contains("get_medical_records"), "{}", tools.body);
    let clear = doctor.call().await;
    assert!(clear.body.contains("<td>NUGWI</td>"), "{}", clear.body);
    let call = between(&clear.body, "call_id=", "\"").to_owned();
    // The page shows the person's own calls and nothing of others.
    let own = doctor.get("/console/record").await;
    assert_eq!(own.status, 200);
    assert!(
        own.body.contains("Your calls") && own.body.contains("get_medical_records"),
        "{}",
        own.body
    );

    let mut nurse = Browser::sign_in(&base, &nurse(&app)).await;
    let masked = nurse.call().await;
    assert!(
        masked.body.contains("<td>•••WI</td>") && !masked.body.contains("<td>NUGWI"),
        "{}",
        masked.body
    );
    let own = nurse.get(&format!("/console/record?call_id={call}")).await;
    assert!(!own.body.contains("get_medical_records"), "{}", own.body);
    let theirs = doctor.get("/console/record?subject=nurse.joy").await;
    assert!(!theirs.body.contains("nurse.joy"), "{}", theirs.body);

    let mut billing = Browser::sign_in(&base, &billing(&app)).await;
    let hidden = billing.get("/console/tools/get_medical_records").await;
    let unknown = billing.get("/console/tools/no_such_tool").await;
    assert_eq!((hidden.status, &hidden.body), (404, &unknown.body));
    assert_eq!(billing.call().await.body, unknown.body);

    let mut auditor = Browser::sign_in(&base, &auditor(&app)).await;
    let one = auditor
        .get(&format!("/console/record?call_id={call}"))
        .await;
    assert!(
        one.body.contains("dr.yenji") && one.body.contains("get_medical_records"),
        "{}",
        one.body
    );
    // Searches of the record are on record, and are not refused.
    for (status, is_there) in [("ok", true), ("denied", false)] {
        let looks = auditor
            .get(&format!("/console/record?subject=dr.yenji&status={status}"))
            .await;
        assert_eq!(
            looks.body.contains("record/read"),
            is_there,
            "{}",
            looks.body
        );
    }
    // The auditor's own searches are on record too, and the download contains them completely.
    let file = auditor
        .get("/console/record.jsonl?subject=auditor.lee")
        .await
        .body;
    let lines: Vec<serde_json::Value> = file
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 3, "{file}");
    assert!(
        lines
            .iter()
            .all(|line| line["record"]["method"] == "record/read"),
        "{file}"
    );

    // One page shows who was shown data of a patient, and which columns.
    let seen = auditor.get("/console/record?about=NUGWI").await;
    assert!(seen.body.contains("Released"), "{}", seen.body);
    for (who, column) in [("dr.yenji", "patient_id,"), ("nurse.joy", "patient_id (")] {
        let row = between(&seen.body, who, "</tr>");
        assert!(row.contains(column), "{who}: {row}");
    }
    for other in ["about=DOSRO", "about=NUGWI&tenant=north"] {
        let nobody = auditor.get(&format!("/console/record?{other}")).await;
        assert!(nobody.body.contains("No record matches"), "{}", nobody.body);
    }
}

#[tokio::test]
async fn a_console_of_its_own_reaches_gateway_and_record_over_their_links() {
    let separate = SeparateProcesses::start(WARDGATE, REPOSITORY.as_ref()).await;
    let config = separate.config();
    let environment = [
        ("WARDGATE_CONSOLE__LISTEN", "127.0.0.1:0"),
        ("WARDGATE_CONSOLE__LINKS__AGENT", "http://127.0.0.1:9"),
    ];
    let config = config.to_str().unwrap().to_owned();
    let process = WardgateProcess::start(
        WARDGATE.as_ref(),
        &["console", "--config", &config],
        &environment,
    );
    let ready = process.ready_line();
    let base = between(ready, "ready ", "/console").to_owned();

    until("the console is ready", async || {
        let answer = reqwest::get(format!("{base}/ready")).await.ok()?;
        answer.status().is_success().then_some(())
    })
    .await;
    let mut nurse = Browser::sign_in(&base, &nurse(&separate)).await;
    let masked = nurse.call().await;
    assert!(masked.body.contains("<td>•••WI</td>"), "{}", masked.body);
    let own = nurse.get("/console/record").await;
    assert!(own.body.contains("get_medical_records"), "{}", own.body);
    let mut auditor = Browser::sign_in(&base, &auditor(&separate)).await;
    let record = auditor.get("/console/record").await;
    assert!(record.body.contains("nurse.joy"), "{}", record.body);
    // The page says that the agent is not running.
    let chat = auditor.get("/console/chat").await;
    assert!(
        chat.body.contains("The agent does not answer"),
        "{}",
        chat.body
    );
}
