//! Background tasks of the service, which follow its files, its switches and the MCP servers.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::select_all;
use tokio::sync::watch;
use tokio::time::{Instant, MissedTickBehavior};

use super::Runner;
use crate::switchboard::Switches;
use wardgate_catalogue::Files;

/// Publishes a new version whenever a server has shown what it declares or that it supports tasks. Runs as long as the
/// service.
pub(super) async fn servers(runner: Weak<Runner>) {
    loop {
        let Some(strong) = runner.upgrade() else {
            return;
        };
        let mut catalogue = strong.version.subscribe();
        let servers = strong.upstreams();
        let mut servers: Vec<_> = servers
            .iter()
            .map(|server| server.observed_server())
            .collect();
        strong.publish_version();
        drop(strong);
        // `select_all` panics on an empty list, and without servers there is nothing to wait for.
        let shown = async {
            if servers.is_empty() {
                std::future::pending::<()>().await;
            }
            select_all(servers.iter_mut().map(|shown| Box::pin(shown.changed()))).await
        };
        tokio::select! {
            _ = catalogue.changed() => {}
            _ = shown => {}
        }
    }
}

/// Publishes the version and the readiness whenever the switches change or become known. Runs as long as the service.
pub(super) async fn switches(
    runner: Weak<Runner>,
    mut switches: watch::Receiver<Option<Arc<Switches>>>,
) {
    while switches.changed().await.is_ok() {
        match runner.upgrade() {
            Some(runner) => {
                runner.publish_version();
                runner.publish_readiness();
            }
            None => return,
        }
    }
}

/// Checks the files at every interval, and imports what upstreams offer whenever that changes. Runs as long as the
/// service.
pub(super) async fn files(
    runner: Weak<Runner>,
    mut seen: Files,
    mut upstreams: Vec<watch::Receiver<u64>>,
) {
    let Some(interval) = runner.upgrade().map(|runner| runner.config.reload_interval) else {
        return;
    };
    let interval = interval.max(Duration::from_millis(10));
    let mut in_force = seen.clone();
    let mut ticks = tokio::time::interval_at(Instant::now() + interval, interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let of_upstreams = tokio::select! {
            _ = ticks.tick() => false,
            (changed, ..) = select_all(upstreams.iter_mut().map(|list| Box::pin(list.changed()))) => match changed {
                Ok(()) => true,
                Err(_closed) => return,
            },
        };
        let Some(runner) = runner.upgrade() else {
            return;
        };
        if of_upstreams {
            runner.reimport(&in_force);
        } else if runner.reload(&mut seen).await {
            in_force.clone_from(&seen);
        }
    }
}
