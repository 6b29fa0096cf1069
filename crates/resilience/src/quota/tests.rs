use wardgate_domain::Ambient;
use wardgate_testkit::caller;

use super::*;

fn quota(rate: &str, per: Vec<QuotaKey>) -> Quota {
    Quota {
        name: "exports".to_owned(),
        rate: rate.parse().unwrap(),
        per,
        methods: default_methods(),
        tools: vec!["export_*".to_owned()],
        roles: Vec::new(),
        costs: BTreeMap::new(),
    }
}

fn limiter() -> SharedRateLimiter {
    SharedRateLimiter::new(None, &Ambient::system())
}

fn call<'a>(caller: &'a Caller, tool: &'a str) -> QuotaUse<'a> {
    QuotaUse {
        caller,
        method: "tools/call",
        tool,
    }
}

#[tokio::test(start_paused = true)]
async fn three_exports_a_day_are_three_for_each_person_and_other_tools_are_free() {
    let (quotas, limiter) = ([quota("3/d", vec![QuotaKey::Caller])], limiter());
    let (ada, jim) = (caller("ada", &[]), caller("jim", &[]));
    for _ in 0..3 {
        let charged = charge(&quotas, &limiter, call(&ada, "export_records"), None).await;
        assert_eq!(charged, Ok(()));
    }
    let refused = charge(&quotas, &limiter, call(&ada, "export_bills"), None).await;
    let eight_hours = Duration::from_hours(8);
    assert_eq!(
        refused,
        Err(QuotaReached {
            quota: "exports".to_owned(),
            retry_after: eight_hours,
        })
    );
    for free in [call(&ada, "get_records"), call(&jim, "export_records")] {
        assert_eq!(charge(&quotas, &limiter, free, None).await, Ok(()));
    }
    tokio::time::advance(eight_hours).await;
    let charged = charge(&quotas, &limiter, call(&ada, "export_bills"), None).await;
    assert_eq!(charged, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_team_shares_its_quota_and_a_tool_costs_what_its_longest_name_says() {
    let mut quota = quota("10/d", vec![QuotaKey::Tenant]);
    let cost = |units| NonZeroU32::new(units).unwrap();
    quota.costs = [("export_*", cost(2)), ("export_all", cost(6))]
        .map(|(tool, cost)| (tool.to_owned(), cost))
        .into();
    let (quotas, limiter) = ([quota], limiter());
    let (ada, jim) = (caller("ada", &[]), caller("jim", &[]));
    for (caller, tool, fits) in [
        (&ada, "export_all", true),
        (&jim, "export_all", false),
        (&jim, "export_one", true),
        (&ada, "export_one", true),
        (&ada, "export_one", false),
    ] {
        let charged = charge(&quotas, &limiter, call(caller, tool), None).await;
        assert_eq!(charged.is_ok(), fits, "{tool}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_one_quota_refuses_costs_nothing_in_another() {
    let mut narrow = quota("1/d", vec![QuotaKey::Tool]);
    narrow.name = "narrow".to_owned();
    let (quotas, limiter) = ([quota("5/d", vec![QuotaKey::Caller]), narrow], limiter());
    let ada = caller("ada", &[]);
    let mut through = 0;
    for tool in ["export_a", "export_a", "export_a", "export_b", "export_c"] {
        let charged = charge(&quotas, &limiter, call(&ada, tool), None).await;
        through += usize::from(charged.is_ok());
    }
    assert_eq!(through, 3);
    for tool in ["export_d", "export_e"] {
        assert_eq!(
            charge(&quotas, &limiter, call(&ada, tool), None).await,
            Ok(())
        );
    }
    let refused = charge(&quotas, &limiter, call(&ada, "export_f"), None).await;
    assert_eq!(refused.unwrap_err().quota, "exports");
}

#[tokio::test(start_paused = true)]
async fn a_quota_for_a_role_counts_no_one_else() {
    let mut quota = quota("1/d", Vec::new());
    quota.roles = vec!["Intern".to_owned()];
    let (quotas, limiter) = ([quota], limiter());
    let (intern, doctor) = (caller("ivy", &["Intern"]), caller("dora", &["Doctor"]));
    for _ in 0..5 {
        assert_eq!(
            charge(&quotas, &limiter, call(&doctor, "export_a"), None).await,
            Ok(())
        );
    }
    assert_eq!(
        charge(&quotas, &limiter, call(&intern, "export_a"), None).await,
        Ok(())
    );
    assert!(
        charge(&quotas, &limiter, call(&intern, "export_a"), None)
            .await
            .is_err()
    );
}

#[test]
fn a_quota_without_a_name_of_its_own_or_with_a_cost_it_can_never_pay_is_refused() {
    let good = quota("3/d", Vec::new());
    assert_eq!(Quota::validate(std::slice::from_ref(&good)), Ok(()));
    assert!(Quota::validate(&[good.clone(), good.clone()]).is_err());
    // The headers contain the names without escaping, beside the rate limit of each caller.
    for name in [
        "",
        "a b",
        "caf\u{e9}",
        "a\"b",
        "a\\b",
        "requests_per_minute",
    ] {
        let named = Quota {
            name: name.to_owned(),
            ..good.clone()
        };
        assert!(Quota::validate(&[named]).is_err(), "{name}");
    }
    let mut dear = good;
    dear.costs
        .insert("export_all".to_owned(), NonZeroU32::new(4).unwrap());
    let error = Quota::validate(&[dear]).unwrap_err();
    assert!(error.contains("`export_all` costs 4"), "{error}");
}

#[test]
fn a_quota_reads_as_people_write_it() {
    let quota: Quota = serde_json::from_value(serde_json::json!({
        "name": "team-day", "rate": "1000/d", "per": ["tenant", {"claim": "team"}], "costs": {"big_*": 10},
    }))
    .unwrap();
    assert_eq!(
        quota.per,
        [QuotaKey::Tenant, QuotaKey::Claim("team".to_owned())]
    );
    assert_eq!(quota.methods, METHODS);
    assert_eq!(quota.tools, ["*"]);
}
