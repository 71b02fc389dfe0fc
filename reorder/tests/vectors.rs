// SPDX-License-Identifier: Apache-2.0
//! The examples of `vectors.json`, with which the controller's side is tested as well.

use ri2n_reorder::seq::Seq;
use ri2n_reorder::wire::{
    channels, parse, repeat, report, Body, Broadcast, ChannelEntry, Control, Data, Echo, Heartbeat,
    Mac, Message, Mode, Nic, PeerChannel, PeerLink, Report, ReportEntry, NO_LIMIT,
};
use serde_json::Value;

fn vectors() -> Value {
    serde_json::from_str(include_str!("vectors.json")).unwrap()
}

/// The bytes of a text of hex digits, in which spaces do not count.
fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|byte| *byte != b' ').collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn frame_of(example: &Value) -> Vec<u8> {
    example["hex"]
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|line| bytes(line.as_str().unwrap()))
        .collect()
}

/// A field that is a number of the wanted type.
fn number<T: TryFrom<u64>>(fields: &Value, name: &str) -> T {
    let value = fields[name].as_u64().unwrap_or_else(|| panic!("{name} of {fields}"));
    T::try_from(value).unwrap_or_else(|_| panic!("{name} of {fields}"))
}

fn seq(fields: &Value, name: &str) -> Seq {
    Seq(number(fields, name))
}

fn text<'a>(fields: &'a Value, name: &str) -> &'a str {
    fields[name].as_str().unwrap_or_else(|| panic!("{name} of {fields}"))
}

fn mac(fields: &Value, name: &str) -> Mac {
    text(fields, name).parse().unwrap()
}

fn yes(fields: &Value, name: &str) -> bool {
    fields[name].as_bool().unwrap_or_else(|| panic!("{name} of {fields}"))
}

fn list<T>(fields: &Value, name: &str, item: impl Fn(&Value) -> T) -> Vec<T> {
    fields[name].as_array().unwrap().iter().map(item).collect()
}

fn heartbeat(fields: &Value) -> Heartbeat {
    Heartbeat {
        dst: mac(fields, "dst"),
        src: mac(fields, "src"),
        flags: number(fields, "flags"),
        link: fields["link"].as_u64().map(|link| u8::try_from(link).unwrap()),
        session: number(fields, "session"),
        peer_session: number(fields, "peer_session"),
        seq: seq(fields, "seq"),
        time_us: number(fields, "time_us"),
        echo: fields["echo"].as_array().map(|echo| Echo {
            time_us: u32::try_from(echo[0].as_u64().unwrap()).unwrap(),
            age_us: u32::try_from(echo[1].as_u64().unwrap()).unwrap(),
        }),
        next_within_ms: number(fields, "next_within_ms"),
        cnt: number(fields, "cnt"),
        hears: number(fields, "hears"),
        next: seq(fields, "next"),
        link_next: seq(fields, "link_next"),
        expected: seq(fields, "expected"),
        arrive_kb: number(fields, "arrive_kb"),
        path_total_kb: number(fields, "path_total_kb"),
        arrive_total_kb: number(fields, "arrive_total_kb"),
        grant_kbps: number(fields, "grant_kbps"),
        limit_kbps: number(fields, "limit_kbps"),
        demand_kbps: number(fields, "demand_kbps"),
        frames_in: number(fields, "frames_in"),
        link_expected: seq(fields, "link_expected"),
        own: mac(fields, "own"),
        peer: mac(fields, "peer"),
    }
}

fn control(fields: &Value, body: Body) -> Control {
    Control { generation: number(fields, "generation"), mac: mac(fields, "mac"), body }
}

fn this_host(fields: &Value) -> Control {
    let mode = match text(fields, "mode") {
        "paced" => Mode::Paced,
        "round_robin" => Mode::RoundRobin,
        "ri2n_plus" => Mode::Ri2nPlus,
        "ri2n_plus_plus" => Mode::Ri2nPlusPlus,
        other => panic!("mode {other}"),
    };
    let nics = list(fields, "nics", |nic| Nic {
        port: number(nic, "port"),
        up: yes(nic, "up"),
        rate_kbps: number(nic, "rate_kbps"),
        name: text(nic, "name").to_string(),
    });
    control(fields, Body::ThisHost { mode, nics })
}

fn peer(fields: &Value) -> Control {
    let links = list(fields, "links", |link| PeerLink {
        number: number(link, "number"),
        own_port: number(link, "own_port"),
        peer_port: number(link, "peer_port"),
        alive: yes(link, "alive"),
        rate_kbps: number(link, "rate_kbps"),
        limit_kbps: number(link, "limit_kbps"),
        weight_ppm: number(link, "weight_ppm"),
    });
    let beside = fields.get("beside").is_some_and(|beside| beside == true);
    control(fields, Body::Peer { stripe: yes(fields, "stripe"), beside, links })
}

/// The channel of a frame; 0 if the example names none.
fn channel(fields: &Value) -> u8 {
    fields["channel"].as_u64().map_or(0, |number| u8::try_from(number).unwrap())
}

/// A list of links, as a bit each.
fn links_of(fields: &Value, name: &str) -> u64 {
    list(fields, name, |link| 1u64 << link.as_u64().unwrap()).into_iter().sum()
}

fn peer_channels(fields: &Value) -> Control {
    let common = fields.get("common").map(|_| PeerChannel {
        number: 0,
        tag: 0,
        links: links_of(fields, "common"),
        max_kbps: NO_LIMIT,
        min_kbps: 0,
        min_in_kbps: 0,
    });
    let jobs = list(fields, "channels", |channel| PeerChannel {
        number: number(channel, "number"),
        tag: number(channel, "tag"),
        links: links_of(channel, "links"),
        max_kbps: number(channel, "max_kbps"),
        min_kbps: number(channel, "min_kbps"),
        min_in_kbps: number(channel, "min_in_kbps"),
    });
    let channels = common.into_iter().chain(jobs).collect();
    let (first, last) = (number(fields, "first"), number(fields, "last"));
    control(fields, Body::Channels { first, last, channels })
}

/// What a helper says of its channels.
fn said(fields: &Value) -> Vec<u8> {
    let entries = list(fields, "entries", |entry| ChannelEntry {
        channel: channel(entry),
        flags: number(entry, "flags"),
        tag: number(entry, "tag"),
        links: links_of(entry, "links"),
        next: seq(entry, "next"),
        expected: seq(entry, "expected"),
        demand_kbps: number(entry, "demand_kbps"),
    });
    let mut frame = vec![];
    let (link, session) = (number(fields, "link"), number(fields, "session"));
    let (dst, src) = (mac(fields, "dst"), mac(fields, "src"));
    channels::write(dst, src, link, session, seq(fields, "beat"), &entries, &mut frame);
    frame
}

fn report(fields: &Value) -> Report {
    let flag = |entry: &Value, name, flag| if yes(entry, name) { flag } else { 0 };
    let entries = list(fields, "entries", |entry| ReportEntry {
        peer: mac(entry, "peer"),
        link: number(entry, "link"),
        flags: flag(entry, "heard", report::HEARD)
            | flag(entry, "usable", report::USABLE)
            | flag(entry, "striping", report::STRIPING),
        sent: number(entry, "sent"),
        received: number(entry, "received"),
        lost: number(entry, "lost"),
        repeated: number(entry, "repeated"),
        skew_us: number(entry, "skew_us"),
        rtt_us: number(entry, "rtt_us"),
        rate_kbps: number(entry, "rate_kbps"),
        demand_kbps: number(entry, "demand_kbps"),
    });
    let (time_ms, generation) = (number(fields, "time_ms"), number(fields, "generation"));
    Report { time_ms, mac: mac(fields, "mac"), generation, entries }
}

fn encoded(message: &Message<'_>) -> Vec<u8> {
    let mut frame = vec![];
    message.encode(&mut frame);
    frame
}

/// The bytes on the wire of an example's fields. A request is compared by itself, as its ranges
/// borrow from a frame.
fn written(example: &Value) -> Vec<u8> {
    let Some((kind, fields)) =
        example.as_object().unwrap().iter().find(|(key, _)| !["name", "hex"].contains(&&key[..]))
    else {
        panic!("no fields: {example}")
    };
    match &kind[..] {
        "data" => encoded(&Message::Data(Data {
            dst: mac(fields, "dst"),
            src: mac(fields, "src"),
            flags: number(fields, "flags"),
            channel: channel(fields),
            link: number(fields, "link"),
            session: number(fields, "session"),
            seq: seq(fields, "seq"),
            link_seq: seq(fields, "link_seq"),
            ethertype: number(fields, "ethertype"),
            payload: &bytes(text(fields, "payload")),
        })),
        "heartbeat" => encoded(&Message::Heartbeat(heartbeat(fields))),
        "repeat" => {
            let ranges = list(fields, "ranges", |range| {
                (
                    Seq(range[0].as_u64().unwrap() as u32),
                    u16::try_from(range[1].as_u64().unwrap()).unwrap(),
                )
            });
            let mut frame = vec![];
            let (session, asker) = (number(fields, "session"), number(fields, "asker"));
            repeat::write(
                mac(fields, "dst"),
                mac(fields, "src"),
                channel(fields),
                session,
                asker,
                ranges,
                &mut frame,
            );
            frame
        }
        "this_host" => encoded(&Message::Control(this_host(fields))),
        "peer" => encoded(&Message::Control(peer(fields))),
        "gone" => encoded(&Message::Control(control(fields, Body::Gone))),
        "channels" => encoded(&Message::Control(peer_channels(fields))),
        "said" => said(fields),
        "report" => encoded(&Message::Report(report(fields))),
        "broadcast" => encoded(&Message::Broadcast(Broadcast {
            dst: mac(fields, "dst"),
            src: mac(fields, "src"),
            link: number(fields, "link"),
            session: number(fields, "session"),
            number: number(fields, "number"),
            group: mac(fields, "group"),
            ethertype: number(fields, "ethertype"),
            payload: &bytes(text(fields, "payload")),
        })),
        other => panic!("no such kind of frame: {other}"),
    }
}

#[test]
fn frames_are_written_as_in_the_examples() {
    for example in vectors()["frames"].as_array().unwrap() {
        assert_eq!(written(example), frame_of(example), "{}", example["name"]);
    }
}

#[test]
fn frames_of_the_examples_are_read() {
    for example in vectors()["frames"].as_array().unwrap() {
        let frame = frame_of(example);
        let message = parse(&frame).unwrap_or_else(|why| panic!("{}: {why:?}", example["name"]));
        assert_eq!(encoded(&message), frame, "{}", example["name"]);
    }
}

#[test]
fn malformed_frames_cost_their_counter() {
    for example in vectors()["malformed"].as_array().unwrap() {
        let frame = frame_of(example);
        let counter = parse(&frame).map_err(|why| why.counter());
        assert_eq!(counter, Err(text(example, "counter")), "{}", example["why"]);
    }
}
