// SPDX-License-Identifier: Apache-2.0
//! `ri2n-reorder`: reads the command line, opens the devices, and runs the engine on them.

use std::process::ExitCode;

use ri2n_reorder::engine::{Engine, Mode, Settings};
use ri2n_reorder::offload::coalesce::{self, Coalescer};
use ri2n_reorder::options::{self, NoOptions, Options, Strategy};
use ri2n_reorder::run::devices::{Devices, Facts};
use ri2n_reorder::run::log::{self, say, Format, Level};
use ri2n_reorder::run::status::StatusSocket;
use ri2n_reorder::run::Loop;
use ri2n_reorder::seq::Seq;
use ri2n_reorder::sys::signals::Signals;
use ri2n_reorder::sys::watchdog::{self, Watchdog};
use ri2n_reorder::sys::{self, Unavailable};
use ri2n_reorder::wire::{Mac, ETHERNET, NO_LIMIT};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    if arguments.next().as_deref() == Some(watchdog::GUARD) {
        let json = arguments.next().as_deref() == Some(Format::Json.word());
        log::show(Level::Error, if json { Format::Json } else { Format::Text });
        watchdog::guard(arguments).into_iter().for_each(|done| say!(Level::Error, "{done}"));
        return ExitCode::SUCCESS;
    }
    let options = match Options::parse(std::env::args_os()) {
        Ok(options) => options,
        Err(NoOptions::Asked(text)) => {
            print!("{text}");
            return ExitCode::SUCCESS;
        }
        Err(NoOptions::Wrong(text)) => {
            say!(Level::Error, "{text}");
            return ExitCode::from(2);
        }
    };
    log::show(options.log_level, options.log_format);
    log::take_panics();
    let end = match start(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say!(Level::Error, "{error}");
            ExitCode::FAILURE
        }
    };
    log::tell_all();
    end
}

fn start(options: &Options) -> Result<(), Unavailable> {
    let signals = Signals::take().map_err(|error| Unavailable::because("signals", &error))?;
    let (devices, facts) = Devices::open(options)?;
    let status = options.status.as_deref().map(StatusSocket::bind).transpose()?;
    let mut watchdog = Watchdog::new();
    watchdog.tell_manager();
    if options.watchdog_ms > 0 {
        let started = watchdog.start_guard(options.watchdog_ms, options.log_format.word());
        started.map_err(|error| Unavailable::because("watchdog", &error))?;
    }
    if options.realtime {
        if let Err(error) = sys::priority::take_real_time() {
            say!(Level::Warn, "no real-time priority: {}; going on without", sys::reason(&error));
        }
    }
    let now = sys::now();
    let mut engine = Engine::new(settings(options, &facts)?, now);
    for nic in &facts.nics {
        let rate_kbps = u32::try_from(nic.rate_bps / 1000).unwrap_or(NO_LIMIT - 1);
        engine.set_nic(now, nic.port, &nic.name, Mac(nic.mac), rate_kbps, true);
    }
    // If the kernel takes no UDP super-frames from us, nobody would cut them into datagrams.
    let merge = match options.gro {
        true => {
            coalesce::Settings { udp: devices.plain.takes_udp(), ..coalesce::Settings::default() }
        }
        false => coalesce::Settings::off(),
    };
    let mut main_loop = Loop::new(devices, engine, Coalescer::new(merge), signals, status)?;
    main_loop.watched_by(watchdog);
    say!(Level::Info, "ready, plain side {}", options.plain);
    main_loop.run()
}

fn settings(options: &Options, facts: &Facts) -> Result<Settings, Unavailable> {
    let (autonomous, mode) = match &options.mode {
        options::Mode::Bridge { .. } => (false, Mode::Paced),
        options::Mode::Autonomous { strategy, .. } => (
            true,
            match strategy {
                Strategy::MaxMin => Mode::Paced,
                Strategy::RoundRobin => Mode::RoundRobin,
                Strategy::Ri2nPlus => Mode::Ri2nPlus,
                Strategy::Ri2nPlusPlus => Mode::Ri2nPlusPlus,
            },
        ),
    };
    Ok(Settings {
        own: facts.own_mac.map(Mac),
        autonomous,
        longest: options.mtu_wire + ETHERNET, // an MTU does not count the Ethernet header
        overhead: options.overhead,
        udp_unordered: options.udp_unordered,
        max_memory: options.max_memory,
        keep_ns: options.repair_ms * 1_000_000,
        mode,
        hbspan_ns: options.hbspan_ms * 1_000_000,
        seed: sys::random().map_err(|error| Unavailable::because("random numbers", &error))?,
        first: Seq(0),
    })
}
