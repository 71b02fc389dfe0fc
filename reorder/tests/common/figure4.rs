// SPDX-License-Identifier: Apache-2.0
//! Figure 4 of the paper.

use super::LINK_BPS;

/// Figure 4's topologies: host 0 is A. Links of 100 Mbit/s.
pub fn figure4(name: char) -> Vec<Vec<(usize, u64)>> {
    let both = vec![(0, LINK_BPS), (1, LINK_BPS)];
    let zero = vec![(0, LINK_BPS)];
    let one = vec![(1, LINK_BPS)];
    let clients: Vec<Vec<(usize, u64)>> = match name {
        'b' => vec![both.clone()],
        'c' => vec![both.clone(), both.clone()],
        'd' => vec![zero, both.clone()],
        'e' => vec![both.clone(), both.clone(), both.clone()],
        'f' => vec![zero, both.clone(), both.clone()],
        'g' => vec![zero, both.clone(), one],
        'h' => vec![zero.clone(), both.clone(), zero],
        other => panic!("no topology {other}"),
    };
    [vec![both], clients].concat()
}

/// Max-min fair shares of A's 200 Mbit/s.
pub fn shares(name: char) -> Vec<f64> {
    match name {
        'b' => vec![200.0],
        'c' => vec![100.0, 100.0],
        'd' => vec![100.0, 100.0],
        'e' | 'f' | 'g' => vec![200.0 / 3.0; 3],
        'h' => vec![50.0, 100.0, 50.0],
        other => panic!("no topology {other}"),
    }
    .into_iter()
    .map(|mbit| mbit * 1e6)
    .collect()
}
