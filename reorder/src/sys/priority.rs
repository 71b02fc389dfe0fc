// SPDX-License-Identifier: Apache-2.0
//! Real-time priority, so that programs that compute do not keep a helper from its CPU.

use std::io;

use super::checked;

/// The lowest real-time priority comes before everything that has none.
const PRIORITY: libc::c_int = 1;

/// From now on, this thread comes before all that have no real-time priority. Processes that it
/// starts do not. Needs CAP_SYS_NICE. The kernel leaves a twentieth of the time to others, whatever
/// such a thread does.
pub fn take_real_time() -> io::Result<()> {
    // SAFETY: sched_param is plain old data, and only read during the call.
    let result = unsafe {
        let mut parameters: libc::sched_param = std::mem::zeroed();
        parameters.sched_priority = PRIORITY;
        libc::sched_setscheduler(0, libc::SCHED_RR | libc::SCHED_RESET_ON_FORK, &parameters)
    };
    checked(result).map(|_| ())
}
