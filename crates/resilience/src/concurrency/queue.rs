//! The queue of waiting calls, which is ordered by tenant, then by caller, then by age.
//!
//! ```text
//!   next:     the tenant with the fewest calls in progress ─▶ its caller with the fewest ─▶ that caller's oldest call,
//!             or the newest during overload
//!   no room:  the tenant with the most waiting calls ─▶ its caller with the most ─▶ that caller's oldest call is
//!   evicted
//! ```
//!
//! During overload the newest call is next, because the callers of old ones are about to give up. So the few calls that
//! are admitted are admitted quickly, instead of all of them late.

use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The owner of a call: a caller of a tenant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CallOwner {
    pub(crate) tenant: Arc<str>,
    pub(crate) caller: Arc<str>,
}

/// The number of a waiting call. Later calls have higher numbers.
pub(crate) type Number = u64;

/// All owners with a call in progress or waiting. `W` is the waker of a waiting call.
#[derive(Debug)]
pub(crate) struct Queue<W> {
    tenants: BTreeMap<Arc<str>, Tenant<W>>,
    next: Number,
    waiting: usize,
    under_way: usize,
}

#[derive(Debug)]
struct Tenant<W> {
    callers: BTreeMap<Arc<str>, CallerQueue<W>>,
    waiting: usize,
    under_way: usize,
}

#[derive(Debug)]
struct CallerQueue<W> {
    waiting: VecDeque<(Number, W)>,
    under_way: usize,
}

/// The order of waiting calls whose owners have the same number of calls in progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    OldestFirst,
    NewestFirst,
}

impl<W> Default for Queue<W> {
    fn default() -> Self {
        Self {
            tenants: BTreeMap::new(),
            next: 0,
            waiting: 0,
            under_way: 0,
        }
    }
}

impl<W> CallerQueue<W> {
    /// Returns the number of the call that has waited longest.
    fn oldest(&self) -> Option<Number> {
        self.waiting.front().map(|(number, _)| *number)
    }

    /// Returns the urgency of the caller's next call. Smaller is more urgent.
    fn urgency(&self, order: Order) -> Option<i128> {
        Some(match order {
            Order::OldestFirst => i128::from(self.oldest()?),
            Order::NewestFirst => -i128::from(self.waiting.back()?.0),
        })
    }
}

impl<W> Queue<W> {
    pub(crate) fn waiting_count(&self) -> usize {
        self.waiting
    }

    pub(crate) fn under_way(&self) -> usize {
        self.under_way
    }

    /// Returns whether the owner's tenant has no call in progress, or, if there is no other tenant, whether its caller
    /// has none.
    pub(crate) fn is_idle(&self, owner: &CallOwner) -> bool {
        let Some(tenant) = self.tenants.get(&owner.tenant) else {
            return true;
        };
        let is_alone = self.tenants.len() == 1;
        let caller = tenant.callers.get(&owner.caller);
        tenant.under_way == 0 || (is_alone && caller.is_none_or(|caller| caller.under_way == 0))
    }

    /// Returns whether there are other owners, and the owner's tenant or caller has more calls in progress than an
    /// equal share.
    pub(crate) fn is_over_share(&self, owner: &CallOwner) -> bool {
        let over = |own: usize, all: usize, sharers: usize| sharers > 1 && own * sharers > all;
        let Some(tenant) = self.tenants.get(&owner.tenant) else {
            return false;
        };
        let caller = tenant.callers.get(&owner.caller);
        let callers = tenant.callers.len();
        over(tenant.under_way, self.under_way, self.tenants.len())
            || caller.is_some_and(|caller| over(caller.under_way, tenant.under_way, callers))
    }

    /// Records that a call begins.
    pub(crate) fn begin(&mut self, owner: &CallOwner) {
        self.under_way += 1;
        let tenant = self.tenant(owner);
        tenant.under_way += 1;
        caller(tenant, owner).under_way += 1;
    }

    /// Records that a call ends.
    pub(crate) fn end(&mut self, owner: &CallOwner) {
        let Some(tenant) = self.tenants.get_mut(&owner.tenant) else {
            return;
        };
        let Some(caller) = tenant.callers.get_mut(&owner.caller) else {
            return;
        };
        self.under_way -= 1;
        tenant.under_way -= 1;
        caller.under_way -= 1;
        self.forget(owner);
    }

    /// Adds a waiting call, which is woken by `waker`.
    pub(crate) fn push(&mut self, owner: &CallOwner, waker: W) -> Number {
        let number = self.next;
        self.next += 1;
        self.waiting += 1;
        let tenant = self.tenant(owner);
        tenant.waiting += 1;
        caller(tenant, owner).waiting.push_back((number, waker));
        number
    }

    /// Removes a waiting call. Returns `None` if it is no longer in the queue.
    pub(crate) fn remove(&mut self, owner: &CallOwner, number: Number) -> Option<W> {
        let tenant = self.tenants.get_mut(&owner.tenant)?;
        let caller = tenant.callers.get_mut(&owner.caller)?;
        let at = caller.waiting.binary_search_by_key(&number, |(at, _)| *at);
        let (_, waker) = caller.waiting.remove(at.ok()?)?;
        tenant.waiting -= 1;
        self.waiting -= 1;
        self.forget(owner);
        Some(waker)
    }

    /// Removes the next call.
    pub(crate) fn pop(&mut self, order: Order) -> Option<(CallOwner, W)> {
        let mut best: Option<(usize, usize, i128, CallOwner, Number)> = None;
        for (tenant_name, tenant) in self.tenants.iter().filter(|(_, tenant)| tenant.waiting > 0) {
            for (caller_name, caller) in &tenant.callers {
                let Some(urgency) = caller.urgency(order) else {
                    continue;
                };
                let rank = (tenant.under_way, caller.under_way, urgency);
                if best
                    .as_ref()
                    .is_none_or(|best| rank < (best.0, best.1, best.2))
                {
                    let number = match order {
                        Order::OldestFirst => caller.oldest()?,
                        Order::NewestFirst => caller.waiting.back()?.0,
                    };
                    let owner = CallOwner {
                        tenant: Arc::clone(tenant_name),
                        caller: Arc::clone(caller_name),
                    };
                    best = Some((rank.0, rank.1, rank.2, owner, number));
                }
            }
        }
        let (.., owner, number) = best?;
        let waker = self.remove(&owner, number)?;
        Some((owner, waker))
    }

    /// Returns the call that has waited longest.
    pub(crate) fn oldest(&self) -> Option<&W> {
        if self.waiting == 0 {
            return None;
        }
        let callers = self
            .tenants
            .values()
            .flat_map(|tenant| tenant.callers.values());
        let fronts = callers.filter_map(|caller| caller.waiting.front());
        let oldest = fronts.min_by_key(|(number, _)| *number);
        oldest.map(|(_, waker)| waker)
    }

    /// Removes the call that has to make room: the oldest call of the owner with the most waiting calls.
    pub(crate) fn evict(&mut self) -> Option<(CallOwner, W)> {
        let tenants = self.tenants.iter();
        let most = |(_, tenant): &(&Arc<str>, &Tenant<W>)| {
            let oldest = tenant
                .callers
                .values()
                .filter_map(CallerQueue::oldest)
                .min();
            (tenant.waiting, Reverse(oldest))
        };
        let (tenant_name, tenant) = tenants.max_by_key(most)?;
        let callers = tenant.callers.iter();
        let most = |(_, caller): &(&Arc<str>, &CallerQueue<W>)| {
            (caller.waiting.len(), Reverse(caller.oldest()))
        };
        let (caller_name, caller) = callers.max_by_key(most)?;
        let number = caller.oldest()?;
        let owner = CallOwner {
            tenant: Arc::clone(tenant_name),
            caller: Arc::clone(caller_name),
        };
        let waker = self.remove(&owner, number)?;
        Some((owner, waker))
    }

    fn tenant(&mut self, owner: &CallOwner) -> &mut Tenant<W> {
        let name = Arc::clone(&owner.tenant);
        self.tenants.entry(name).or_insert_with(|| Tenant {
            callers: BTreeMap::new(),
            waiting: 0,
            under_way: 0,
        })
    }

    /// Removes an owner without calls.
    fn forget(&mut self, owner: &CallOwner) {
        let Some(tenant) = self.tenants.get_mut(&owner.tenant) else {
            return;
        };
        let is_gone = |caller: &CallerQueue<W>| caller.under_way == 0 && caller.waiting.is_empty();
        if tenant.callers.get(&owner.caller).is_some_and(is_gone) {
            tenant.callers.remove(&owner.caller);
        }
        if tenant.callers.is_empty() {
            self.tenants.remove(&owner.tenant);
        }
    }
}

fn caller<'a, W>(tenant: &'a mut Tenant<W>, owner: &CallOwner) -> &'a mut CallerQueue<W> {
    let name = Arc::clone(&owner.caller);
    tenant.callers.entry(name).or_insert_with(|| CallerQueue {
        waiting: VecDeque::new(),
        under_way: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(tenant: &str, caller: &str) -> CallOwner {
        CallOwner {
            tenant: tenant.into(),
            caller: caller.into(),
        }
    }

    fn next(queue: &mut Queue<&'static str>, order: Order) -> &'static str {
        queue.pop(order).unwrap().1
    }

    #[test]
    fn the_tenant_with_the_fewest_calls_under_way_is_next_then_its_caller_with_the_fewest() {
        let mut queue = Queue::default();
        let (busy, quiet) = (owner("busy", "a"), owner("quiet", "a"));
        let other = owner("busy", "b");
        queue.begin(&busy);
        queue.begin(&busy);
        queue.begin(&quiet);
        queue.push(&busy, "busy a");
        queue.push(&other, "busy b");
        queue.push(&quiet, "quiet");
        assert_eq!(next(&mut queue, Order::OldestFirst), "quiet");
        assert_eq!(next(&mut queue, Order::OldestFirst), "busy b");
        assert_eq!(next(&mut queue, Order::OldestFirst), "busy a");
        assert!(queue.pop(Order::OldestFirst).is_none());
    }

    #[test]
    fn among_equals_age_decides() {
        let mut queue = Queue::default();
        for (caller, waker) in [("a", "1"), ("b", "2"), ("a", "3")] {
            queue.push(&owner("t", caller), waker);
        }
        assert_eq!(next(&mut queue, Order::NewestFirst), "3");
        assert_eq!(next(&mut queue, Order::OldestFirst), "1");
        assert_eq!(next(&mut queue, Order::OldestFirst), "2");
    }

    #[test]
    fn whoever_waits_with_most_makes_room_with_its_oldest() {
        let mut queue = Queue::default();
        queue.push(&owner("quiet", "a"), "quiet");
        for (caller, waker) in [("a", "1"), ("b", "2"), ("b", "3")] {
            queue.push(&owner("busy", caller), waker);
        }
        assert_eq!(queue.evict().unwrap().1, "2");
        assert_eq!(queue.evict().unwrap().1, "1");
        assert_eq!(queue.waiting_count(), 2);
    }

    #[test]
    fn among_tenants_that_wait_with_as_many_the_oldest_call_makes_room_whatever_their_names() {
        let mut queue = Queue::default();
        for (tenant, waker) in [("b", "1"), ("a", "2"), ("c", "3")] {
            queue.push(&owner(tenant, "x"), waker);
        }
        let order: Vec<_> = std::iter::from_fn(|| queue.evict()).collect();
        let order: Vec<_> = order.into_iter().map(|(_, waker)| waker).collect();
        assert_eq!(order, ["1", "2", "3"]);
    }

    #[test]
    fn an_even_share_is_counted_over_tenants_then_over_the_callers_of_one() {
        let mut queue = Queue::<()>::default();
        let (a, b) = (owner("t", "a"), owner("t", "b"));
        assert!(queue.is_idle(&a) && !queue.is_over_share(&a));
        queue.begin(&a);
        queue.begin(&a);
        assert!(!queue.is_over_share(&a), "nobody shares with it");
        queue.begin(&b);
        assert!(queue.is_over_share(&a) && !queue.is_over_share(&b));
        let other = owner("u", "c");
        queue.begin(&other);
        assert!(queue.is_over_share(&b), "its tenant has three of four");
        assert!(!queue.is_over_share(&other));
    }

    #[test]
    fn nobody_is_remembered_who_has_nothing_there() {
        let mut queue = Queue::default();
        let one = owner("t", "a");
        queue.begin(&one);
        let number = queue.push(&one, "waits");
        queue.end(&one);
        assert_eq!(queue.remove(&one, number), Some("waits"));
        assert_eq!(queue.remove(&one, number), None);
        assert!(queue.tenants.is_empty());
        assert_eq!((queue.under_way(), queue.waiting_count()), (0, 0));
    }
}
