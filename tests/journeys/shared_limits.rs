//! A test of three gateways that share the limit of each caller, while their database restarts.
//!
//! ```text
//!  one caller ──▶ gateway ×3 ──▶ a proxy that closes every connection ──▶ PostgreSQL
//! ```

use std::time::{Duration, Instant};

use serde_json::json;
use wardgate_mcp::header::JSON;

use super::postgres::{Database, DatabaseAddress};
use super::three_gateways::Cluster;

/// The limit of calls per minute, which is also the burst size.
const LIMIT: u32 = 100;

/// Maximum difference between the number of calls that pass and the limit.
const TOLERANCE: f64 = 5.0;

/// Time after which each gateway knows the number of gateways again.
const ANNOUNCED: Duration = Duration::from_secs(6);

/// One caller of the gateways.
struct Caller<'a> {
    cluster: &'a Cluster,
    http: reqwest::Client,
    token: String,
}

impl Caller<'_> {
    /// Calls each gateway once, and returns the number of calls that pass.
    async fn call_each(&self) -> u32 {
        let list = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" }).to_string();
        let mut passed = 0;
        for (port, _) in &self.cluster.gateways {
            let call = self
                .http
                .post(format!("http://127.0.0.1:{port}/mcp"))
                .bearer_auth(&self.token)
                .header("content-type", JSON)
                .header("mcp-protocol-version", "2025-11-25");
            let reply = call.body(list.clone()).send().await.unwrap();
            assert!(reply.headers().contains_key("ratelimit"), "{reply:?}");
            match reply.status().as_u16() {
                200 => passed += 1,
                429 => assert!(reply.headers().contains_key("retry-after")),
                _ => panic!("{reply:?}"),
            }
        }
        passed
    }

    /// Repeats this for `time`, and returns the number of calls that pass.
    async fn call_for(&self, time: Duration) -> u32 {
        let (began, mut passed) = (Instant::now(), 0);
        while began.elapsed() < time {
            passed += self.call_each().await;
        }
        passed
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn three_gateways_let_one_limit_through_together_also_while_their_database_restarts() {
    let Some(database) = Database::create().await else {
        return;
    };
    let proxy = DatabaseAddress::for_url(&database.url).await;
    let limit = LIMIT.to_string();
    let settings = [(
        "WARDGATE_GATEWAY__LIMITS__REQUESTS_PER_MINUTE",
        limit.as_str(),
    )];
    let cluster = Cluster::start(&proxy.url, &settings).await;
    let calls = async |subject: &str, restarts: bool| {
        let caller = Caller {
            cluster: &cluster,
            http: reqwest::Client::builder().no_proxy().build().unwrap(),
            token: cluster.token_of(subject),
        };
        let (began, mut passed) = (Instant::now(), 0);
        for _ in 0..10 {
            passed += caller.call_each().await;
        }
        if restarts {
            proxy.lead_to(None);
            passed += caller.call_for(Duration::from_secs(2)).await;
            proxy.lead_to(Some(&database.url));
        }
        passed += caller.call_for(ANNOUNCED).await;
        let flowed_in = began.elapsed().as_secs_f64() * f64::from(LIMIT) / 60.0;
        let (passed, limit) = (f64::from(passed), f64::from(LIMIT));
        eprintln!("{subject}: {passed} passed, {flowed_in:.1} flowed in");
        let expected = limit - TOLERANCE..=limit + TOLERANCE + flowed_in;
        assert!(
            expected.contains(&passed),
            "{subject}: {passed} of {expected:?}"
        );
    };
    calls("dr.yenji", false).await;
    calls("dr.osei", true).await;
    drop(cluster);
    database.remove().await;
}
