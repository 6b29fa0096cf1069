//! What the tool-runner itself costs a call: permit, arguments, mapping, row rule and redaction of a result of
//! about 1 KiB, through the service's own door, the rows in SQLite.
//!
//! Prints allocations and time by stage, then the times of whole calls.

#![allow(
    clippy::expect_used,
    clippy::unwrap_used,
    reason = "a benchmark fails by panicking, with the reason"
)]

mod world;

use std::alloc::System;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

use world::{GOVERNED, SMALLEST, World};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

fn main() {
    let world = World::start();
    // `cargo test` runs it too, once through, to see that it still works.
    let calls = if std::env::args().any(|argument| argument == "--bench") {
        5_000
    } else {
        1
    };
    println!(
        "a call of {GOVERNED} gives {} bytes",
        world.call(GOVERNED, &world.permit(GOVERNED)).bytes
    );
    for tool in [SMALLEST, GOVERNED] {
        count(&world, tool, calls);
    }
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_secs(2))
        .measurement_time(Duration::from_secs(8))
        .configure_from_args();
    time(&world, &mut criterion);
    criterion.final_summary();
}

/// Allocations of the whole process, the threads of SQLite among it, and where the time goes.
fn count(world: &World, tool: &'static str, calls: u32) {
    let permit = world.permit(tool);
    world.call(tool, &permit);
    let mut stages: Vec<(String, Duration)> = Vec::new();
    let region = Region::new(ALLOCATOR);
    for _ in 0..calls {
        let ended = world.call(tool, &permit);
        if stages.is_empty() {
            stages = ended.stages;
        } else {
            for ((_, sum), (_, spent)) in stages.iter_mut().zip(&ended.stages) {
                *sum += *spent;
            }
        }
    }
    let change = region.change();
    let each = |sum: usize| sum / calls as usize;
    println!(
        "{tool}: {} allocations, {} reallocations, {} bytes a call",
        each(change.allocations),
        each(change.reallocations),
        each(change.bytes_allocated)
    );
    for (stage, spent) in stages {
        println!("    {stage:<10} {:?}", spent / calls);
    }
}

fn time(world: &World, criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("call");
    for tool in [SMALLEST, GOVERNED] {
        let permit = world.permit(tool);
        group.bench_function(format!("{tool}, permit seen before"), |bencher| {
            bencher.iter(|| black_box(world.call(tool, &permit)));
        });
    }
    group.bench_function(format!("{GOVERNED}, new permit"), |bencher| {
        bencher.iter_batched(
            || world.permit(GOVERNED),
            |permit| black_box(world.call(GOVERNED, &permit)),
            BatchSize::SmallInput,
        );
    });
    group.finish();
}
