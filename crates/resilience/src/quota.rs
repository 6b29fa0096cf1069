//! Quotas: limits on how much of a deployment a caller, a team or a tenant may use, counted over all replicas.
//!
//! A quota has a rate, a selection of requests, a cost for each request, and keys by which requests are counted
//! together.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::time::Duration;

use metrics::counter;
use serde::{Deserialize, Serialize};
use wardgate_domain::{AttributeValue, Caller, Digest};
use wardgate_telemetry::names;

use super::limit_report::{LimitReport, REQUESTS_PER_MINUTE, is_name};
use super::limit_state::{BucketOwner, LimitOverview};
use super::rate::Rate;
use super::shared_rate::SharedRateLimiter;

/// The methods that count by default.
const METHODS: [&str; 3] = ["tools/call", "prompts/get", "resources/read"];

/// A configured quota.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quota {
    /// The name of the quota in refusals, headers and metrics.
    pub name: String,
    /// Cost units per second, minute, hour or day, such as `1000/d`. This number may be used at once, and flows back
    /// evenly.
    pub rate: Rate,
    /// The keys by which requests share the rate. If empty, all requests share it.
    #[serde(default)]
    pub per: Vec<QuotaKey>,
    /// The methods that count, with `*` for any suffix. The default is `tools/call`, `prompts/get` and
    /// `resources/read`.
    #[serde(default = "default_methods")]
    pub methods: Vec<String>,
    /// The tools that count, with `*` for any suffix; for prompts and resources the name of their source. The default
    /// is all.
    #[serde(default = "any_name")]
    pub tools: Vec<String>,
    /// The roles of which a caller must have one for its requests to count. The default is all callers.
    #[serde(default)]
    pub roles: Vec<String>,
    /// The cost of a request by tool name, with `*` for any suffix. The longest matching name applies. The default is
    /// 1.
    #[serde(default)]
    pub costs: BTreeMap<String, NonZeroU32>,
}

fn default_methods() -> Vec<String> {
    METHODS.map(str::to_owned).to_vec()
}

fn any_name() -> Vec<String> {
    vec!["*".to_owned()]
}

/// A key by which requests are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QuotaKey {
    /// One person: tenant, issuer and subject.
    Caller,
    /// One tenant.
    Tenant,
    /// One tool.
    Tool,
    /// Callers with the same value of this claim, for example a team. Callers without the claim are counted together.
    Claim(String),
}

/// The properties of a request that quotas use.
#[derive(Debug, Clone, Copy)]
pub struct QuotaUse<'a> {
    /// The caller of the request.
    pub caller: &'a Caller,
    /// The MCP method.
    pub method: &'a str,
    /// The tool, or the source of a prompt or resource; empty if there is none.
    pub tool: &'a str,
}

/// A quota is used up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaReached {
    /// The name of the quota.
    pub quota: String,
    /// The time after which a request of this cost may be made again.
    pub retry_after: Duration,
}

impl Quota {
    /// Checks a list of quotas. Returns what is wrong as an error.
    pub fn validate(quotas: &[Self]) -> Result<(), String> {
        let mut names = std::collections::BTreeSet::from([REQUESTS_PER_MINUTE]);
        for quota in quotas {
            if !is_name(&quota.name) || !names.insert(&quota.name) {
                return Err(format!(
                    "`{}` is not a unique name; each quota requires one, of visible ASCII without quotes and backslashes",
                    quota.name
                ));
            }
            if let Some((tool, cost)) = quota
                .costs
                .iter()
                .find(|(_, cost)| cost.get() > quota.rate.calls())
            {
                return Err(format!(
                    "`{}`: a request of `{tool}` costs {cost}, more than the rate allows at once",
                    quota.name
                ));
            }
        }
        Ok(())
    }

    pub(crate) fn counts(&self, request: QuotaUse<'_>) -> bool {
        let any = |patterns: &[String], name: &str| {
            patterns.iter().any(|pattern| matches_name(pattern, name))
        };
        let roles = request.caller.roles();
        any(&self.methods, request.method)
            && any(&self.tools, request.tool)
            && (self.roles.is_empty() || self.roles.iter().any(|role| roles.contains(role)))
    }

    fn cost(&self, tool: &str) -> NonZeroU32 {
        let costs = self.costs.iter();
        let named = costs.filter(|(pattern, _)| matches_name(pattern, tool));
        let longest = named.max_by_key(|(pattern, _)| pattern.len());
        longest.map_or(NonZeroU32::MIN, |(_, cost)| *cost)
    }

    /// Returns the owner of the request's bucket, for operators.
    pub(crate) fn owner(&self, request: QuotaUse<'_>) -> BucketOwner {
        let mut owner = BucketOwner {
            limit: self.name.clone(),
            ..BucketOwner::default()
        };
        for key in &self.per {
            match key {
                QuotaKey::Caller => owner.set_person(request.caller),
                QuotaKey::Tenant => owner.tenant = Some(request.caller.tenant().to_owned()),
                QuotaKey::Tool => owner.tool = Some(request.tool.to_owned()),
                QuotaKey::Claim(claim) => {
                    let value = request.caller.attributes().get(claim);
                    owner.claims.insert(claim.clone(), claim_text(value));
                }
            }
        }
        owner
    }

    /// Returns the description of the limit, for operators.
    pub fn overview(&self) -> LimitOverview {
        let per = self.per.iter().map(|key| match key {
            QuotaKey::Caller => "caller".to_owned(),
            QuotaKey::Tenant => "tenant".to_owned(),
            QuotaKey::Tool => "tool".to_owned(),
            QuotaKey::Claim(claim) => format!("claim {claim}"),
        });
        LimitOverview {
            name: self.name.clone(),
            rate: self.rate,
            per: per.collect(),
        }
    }

    /// Returns the bucket of a request. It does not depend on the rate, so that a change of the rate does not fill
    /// buckets.
    pub(crate) fn bucket(&self, request: QuotaUse<'_>) -> Digest {
        let mut parts = vec!["quota".to_owned(), self.name.clone()];
        for key in &self.per {
            parts.extend(match key {
                QuotaKey::Caller => vec![
                    "caller".to_owned(),
                    request.caller.tenant().to_owned(),
                    request.caller.issuer().to_owned(),
                    request.caller.subject().to_owned(),
                ],
                QuotaKey::Tenant => vec!["tenant".to_owned(), request.caller.tenant().to_owned()],
                QuotaKey::Tool => vec!["tool".to_owned(), request.tool.to_owned()],
                QuotaKey::Claim(claim) => {
                    let value = request.caller.attributes().get(claim);
                    vec!["claim".to_owned(), claim.clone(), claim_text(value)]
                }
            });
        }
        let parts: Vec<_> = parts.iter().map(String::as_str).collect();
        Digest::of_texts(&parts)
    }
}

/// Takes the cost of a request from every quota that counts it, or from none if one of them is used up. Adds what is
/// left to `report`, or on a refusal what is left of the quota that refused.
pub async fn charge(
    quotas: &[Quota],
    limiter: &SharedRateLimiter,
    request: QuotaUse<'_>,
    report: Option<&LimitReport>,
) -> Result<(), QuotaReached> {
    let mut taken = Vec::new();
    for quota in quotas.iter().filter(|quota| quota.counts(request)) {
        let (bucket, cost) = (quota.bucket(request), quota.cost(request.tool));
        match limiter.take_and_report(bucket, quota.rate, cost).await {
            (Ok(()), status) => taken.push((quota, bucket, cost, status)),
            (Err(retry_after), status) => {
                for (quota, bucket, cost, _) in taken {
                    limiter.give_back(bucket, quota.rate, cost).await;
                }
                if let Some(report) = report {
                    report.add(&quota.name, quota.rate, status);
                }
                counter!(names::QUOTA_REFUSALS, "quota" => quota.name.clone()).increment(1);
                return Err(QuotaReached {
                    quota: quota.name.clone(),
                    retry_after,
                });
            }
        }
    }
    if let Some(report) = report {
        for (quota, .., status) in taken {
            report.add(&quota.name, quota.rate, status);
        }
    }
    Ok(())
}

fn matches_name(pattern: &str, name: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => pattern == name,
    }
}

fn claim_text(value: Option<&AttributeValue>) -> String {
    match value {
        None => String::new(),
        Some(AttributeValue::Text(text)) => text.clone(),
        Some(AttributeValue::Integer(number)) => number.to_string(),
        Some(AttributeValue::Boolean(truth)) => truth.to_string(),
        Some(AttributeValue::List(items)) => items.join(","),
    }
}

#[cfg(test)]
mod tests;
