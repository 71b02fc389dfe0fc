// SPDX-License-Identifier: Apache-2.0
//! `ri2n-fast`: reads the command line, and does the command.

use std::process::ExitCode;

use clap::Parser;
use ri2n_fast::commands;
use ri2n_fast::options::{Command, Options, Place};
use ri2n_fast::watch::{self, Settings};

fn main() -> ExitCode {
    let options = match Options::try_parse() {
        Ok(options) => options,
        Err(error) if !error.use_stderr() => error.exit(),
        Err(error) => {
            eprintln!("ri2n-fast: {}", one_line(&error.to_string()));
            return ExitCode::from(2);
        }
    };
    let done = match options.command {
        Command::Watch { place, nics, hold, state } => {
            watch::run(Settings { place, nics, hold, state }).map_err(Some)
        }
        Command::Unload { bridge, rundir, nics, hold, state } => {
            let place = bridge.map(|bridge| Place { bridge, rundir });
            commands::unload(place.as_ref(), &nics, &hold, &state).map_err(Some)
        }
        Command::Status { json, state } => commands::status(&state, json).map_err(Some),
        Command::Probe { json } => commands::probe(json),
        Command::Plan { place, save, from } => {
            commands::plan(&place, save.as_deref(), from.as_deref()).map_err(Some)
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(line) => {
            line.into_iter().for_each(|line| eprintln!("ri2n-fast: {line}"));
            ExitCode::FAILURE
        }
    }
}

/// The first paragraph of an error, without the word before it and in one line.
fn one_line(text: &str) -> String {
    let paragraph = text.split("\n\n").next().unwrap_or_default();
    let words: Vec<&str> = paragraph.split_whitespace().collect();
    words.join(" ").trim_start_matches("error: ").to_owned()
}
