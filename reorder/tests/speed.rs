// SPDX-License-Identifier: Apache-2.0
//! How fast the pure parts are. Run with `cargo test --release --test all speed:: -- --ignored
//! --nocapture`.

use std::hint::black_box;
use std::time::Instant;

use ri2n_reorder::maxmin::{max_min, Sender, SenderLink};
use ri2n_reorder::sched::{Paced, Queue, QueueSettings, Weighted};

/// Median seconds of `runs` calls.
fn median(runs: usize, mut call: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..runs)
        .map(|_| {
            let begin = Instant::now();
            call();
            begin.elapsed().as_secs_f64()
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times[runs / 2]
}

#[test]
#[ignore = "a measurement, for release builds"]
fn max_min_of_32_senders_takes_under_100_us() {
    let sender = |n: usize| Sender {
        demand_bps: if n % 3 == 0 { 1e7 * (n + 1) as f64 } else { f64::INFINITY },
        own_bps: vec![1e9; 4],
        links: (0..4)
            .filter(|nic| n % 5 != *nic)
            .map(|nic| SenderLink { nic, own: nic, limit_bps: 1e9 })
            .collect(),
    };
    let senders: Vec<Sender> = (0..32).map(sender).collect();
    let seconds = median(1_001, || {
        black_box(max_min(black_box(&[1e9; 4]), black_box(&senders)));
    });
    println!("max_min, 32 senders, 4 NICs: {:.1} us", seconds * 1e6);
    assert!(seconds < 100e-6);
}

#[test]
#[ignore = "a measurement, for release builds"]
fn a_frame_through_queue_and_scheduler() {
    const FRAMES: u64 = 200_000;
    let rate = 10_000_000_000;
    let mut paced = Paced::new(1_538);
    let mut queue = Queue::new(QueueSettings::default());
    let mut now = 0;
    (0..4).for_each(|link| paced.set(now, link, rate));
    let mut frame = vec![0; 1_500];
    let seconds = median(11, || {
        for _ in 0..FRAMES {
            now += 310;
            let Ok(()) = queue.push(now, std::mem::take(&mut frame)) else { panic!("full") };
            if let Some(link) = paced.pick(now, 1_500, 0b1111, |_| true) {
                paced.spent(black_box(link), 1_500);
            }
            frame = queue.pop(now, drop).unwrap_or_default();
        }
    });
    println!(
        "queue and paced choice of 4 links: {:.1} million frames/s",
        FRAMES as f64 / seconds / 1e6
    );
    let mut weighted = Weighted::new(1_514);
    (0..4).for_each(|link| weighted.set(link, u32::from(link) + 1));
    let seconds = median(11, || {
        for _ in 0..FRAMES {
            black_box(weighted.pick(black_box(1_500), 0b1111));
        }
    });
    println!("weighted choice of 4 links: {:.1} million frames/s", FRAMES as f64 / seconds / 1e6);
}
