// SPDX-License-Identifier: Apache-2.0
//! How things are, for people and scripts.

use std::time::Instant;

use serde_json::{json, Value};

use super::Watch;
use crate::plan::Left;
use crate::programs::Count;
use crate::report::{Filter, Force, Order};
use crate::show;

impl Watch {
    /// Flat, on one line, and with whole numbers only, so that shell scripts can read it.
    pub(super) fn status(&self) -> Value {
        let state = self.state();
        let plan = &self.planned.plan;
        let left = |why: Left| plan.left.values().filter(|it| **it == why).count();
        let counts = self.carrier.counts().unwrap_or_default();
        let sum = |counts: &mut dyn Iterator<Item = &Count>| {
            let (mut packets, mut bytes) = (0u64, 0u64);
            for count in counts {
                packets += count.packets;
                bytes += count.bytes;
            }
            json!({"packets": packets, "bytes": bytes})
        };
        let attached = state.programs == Force::InForce;
        let devices = self.carrier.devices().into_iter().flat_map(|devices| {
            let names = devices.nics.iter().map(|nic| &nic.name).chain([&devices.local]);
            names.map(|name| json!({"name": name, "attached": attached}))
        });
        let beside = plan.striped.keys().filter(|peer| self.striping.contains(*peer)).count();
        let states = plan.states().into_iter().map(|(peer, why)| {
            let state = match why {
                None => "carried",
                Some(Left::Striped) if self.striping.contains(&peer) => "striped_tcp",
                Some(why) => show::left(why),
            };
            (show::mac(&peer), Value::from(state))
        });
        json!({
            "pid": std::process::id(),
            "bridge": self.settings.place.bridge,
            "programs": match state.programs {
                Force::Off => "off",
                Force::InForce => "in_force",
                Force::Refused => "refused",
                Force::NoDevice => "no_device",
            },
            "refused": self.carrier.refused.as_ref().map(|why| {
                json!({"code": why.code, "text": why.text})
            }),
            "devices": devices.collect::<Vec<_>>(),
            "filter": match state.filter {
                Filter::NotNeeded => "not_needed",
                Filter::InForce => "in_force",
                Filter::Missing => "missing",
            },
            "order": match state.order {
                Order::None => "none",
                Order::Ready => "ready",
            },
            // What is missing for that, first things first.
            "order_lacks": match (state.order, self.helper.ready, self.carrier.holds) {
                (Order::Ready, ..) => None,
                (_, false, _) => Some("helper"),
                (_, true, false) => Some("device"),
                (_, true, true) => Some("programs"),
            },
            "hold": self.settings.hold,
            "gso_max_size": self.carrier.bound,
            "filtered_sockets": self.carrier.filtered,
            "plan_age_ms": self.right_at.map(|at| {
                Instant::now().saturating_duration_since(at).as_millis() as u64
            }),
            "peers": {
                "carried": plan.peers.len(),
                "striped": left(Left::Striped) - beside,
                "striped_tcp": beside,
                "undecided": left(Left::Undecided),
                "unsupported": left(Left::Unsupported),
                "too_many": left(Left::TooMany),
            },
            "left_out": self.carrier.left_out(),
            "states": states.collect::<serde_json::Map<_, _>>(),
            "dropped": counts.dropped,
            "tcp": counts.events,
            "sent": sum(&mut counts.sent.values()),
            "arrived": sum(&mut counts.arrived.values()),
        })
    }
}
