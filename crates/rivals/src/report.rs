//! Turns samples into tables: medians, the ratio of fibra to the best rival, the goal and whether it is met. Above: `main`, `document`.
//! Below: `race`.
//!
//! Invariant: a ratio is only ever formed from two medians of the same case of the same run; what was not measured is `-`,
//! and a quick run judges no ratio.

use std::fmt::Write as _;

use crate::peers::{Peer, go};
use crate::plan::{Goal, Metric, Size};
use crate::race::{Heat, Lane, Race};

/// How the tables look.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Style {
    Text,
    Markdown,
}

/// One metric of one case, judged.
struct Row<'a> {
    heat: &'a Heat,
    metric: &'a Metric,
    /// The case that this one is measured by, if the goal names one.
    other: Option<&'a Heat>,
    /// Of fibra to the best rival, to one rival, or to itself in another case: as the goal says.
    ratio: Option<f64>,
    /// The same with fibra's 75th percentile over the rounds in place of its median.
    upper: Option<f64>,
    met: Option<bool>,
    noise: Option<f64>,
}

fn rows(race: &Race, size: Size) -> impl Iterator<Item = Row<'_>> {
    let heats = &race.heats;
    heats.iter().flat_map(move |heat| heat.case.metrics.iter().map(move |metric| judge(heats, heat, metric, size)))
}

/// Workload, case and ratio of every row that compares fibra with a rival.
pub(crate) fn ratios(races: &[Race], size: Size) -> Vec<(&'static str, String, f64)> {
    let all = races.iter().flat_map(|race| rows(race, size).map(move |row| (race.workload.name, row)));
    let compared = all.filter(|(_, row)| !matches!(row.metric.goal, Goal::Own { .. }));
    compared
        .filter_map(|(name, row)| {
            Some((name, format!("{}, {}", row.heat.case.params.text(), row.metric.label), row.ratio?))
        })
        .collect()
}

fn judge<'a>(heats: &'a [Heat], heat: &'a Heat, metric: &'a Metric, size: Size) -> Row<'a> {
    let ours = figure(heat, Peer::Fibra, metric.key);
    let other = match metric.goal {
        Goal::Own { key, value, .. } => yardstick(heats, heat, key, value),
        _ => None,
    };
    let rivals = heat.lanes.iter().filter(|lane| lane.peer != Peer::Fibra && lane.is_rival);
    let best = match metric.goal {
        Goal::Own { .. } => other.and_then(|other| figure(other, Peer::Fibra, metric.key)),
        Goal::To { rival, .. } => figure(heat, rival, metric.key),
        _ => rivals.filter_map(|lane| lane.median(metric.key)).min_by(f64::total_cmp),
    };
    let ratio = quotient(ours, best);
    let upper = lane_of(heat, Peer::Fibra).and_then(|lane| quotient(lane.upper(metric.key), best));
    let met = match metric.goal {
        Goal::Shown => None,
        Goal::Ratio(most) | Goal::Own { most, .. } | Goal::To { most, .. } => {
            ratio.filter(|_| size == Size::Full).map(|ratio| ratio <= most)
        }
        Goal::AtMost(most) => ours.map(|ours| ours <= most),
    };
    let samples = heat.lanes.iter().flat_map(|lane| &lane.samples);
    let noise = samples.filter_map(|sample| sample.get("noise")).max_by(f64::total_cmp);
    Row { heat, metric, other, ratio, upper, met, noise }
}

/// What a peer reached in a case.
fn figure(heat: &Heat, peer: Peer, key: &str) -> Option<f64> {
    lane_of(heat, peer)?.median(key)
}

fn lane_of(heat: &Heat, peer: Peer) -> Option<&Lane> {
    heat.lanes.iter().find(|lane| lane.peer == peer)
}

/// The case that differs from this one in one parameter only.
fn yardstick<'a>(heats: &'a [Heat], heat: &Heat, key: &str, value: u64) -> Option<&'a Heat> {
    let mut params = heat.case.params.clone();
    params.set(key, value);
    heats.iter().find(|other| other.case.params == params)
}

fn quotient(figure: Option<f64>, base: Option<f64>) -> Option<f64> {
    figure.zip(base).filter(|(_, base)| *base > 0.0).map(|(figure, base)| figure / base)
}

/// The tables of all races.
pub(crate) fn render(races: &[Race], style: Style, size: Size) -> String {
    let mut text = String::new();
    for race in races {
        let (heading, bullet) = match style {
            Style::Text => ("", ""),
            Style::Markdown => ("## ", "* "),
        };
        let _ = writeln!(text, "\n{heading}{}: {}\n", race.workload.name, race.workload.operation);
        let table = table(race, size);
        match style {
            Style::Text => align(&table, &mut text),
            Style::Markdown => pipe(&table, &mut text),
        }
        for (index, note) in notes(race).into_iter().enumerate() {
            let gap = if index == 0 { "\n" } else { "" };
            let _ = writeln!(text, "{gap}{bullet}{note}");
        }
    }
    let _ = writeln!(
        text,
        "\nMedians over the rounds; less is better; ratio is fibra to the best rival here, \
         75 % the same with the 75th percentile of fibra's rounds; noise is the most \
         CPU, in cores, that others used during a measurement."
    );
    if let Some(why) = go::absence() {
        let _ = writeln!(text, "Go took no part: {why}.");
    }
    if size == Size::Quick {
        let _ = writeln!(text, "This was a quick run: it shows that everything works and says nothing of speed.");
    }
    text
}

fn table(race: &Race, size: Size) -> Vec<Vec<String>> {
    let takes_part = |peer: &Peer| race.workload.sides.iter().any(|(side, _)| side == peer);
    let peers: Vec<Peer> = Peer::ALL.into_iter().filter(takes_part).collect();
    let mut head = vec!["case".to_owned(), "figure".to_owned()];
    head.extend(peers.iter().map(|peer| peer.name().to_owned()));
    // Of one or two rounds there is no other figure than the median.
    let has_spread = race.heats.iter().flat_map(|heat| &heat.lanes).any(|lane| lane.samples.len() > 2);
    let judged = ["ratio", "75 %", "goal", "met", "noise"].into_iter().filter(|name| has_spread || *name != "75 %");
    head.extend(judged.map(str::to_owned));
    let mut table = vec![head];
    for row in rows(race, size) {
        let mut cells = vec![row.heat.case.params.text(), row.metric.label.to_owned()];
        cells.extend(peers.iter().map(|&peer| cell(&row, peer)));
        let ratio = |ratio: Option<f64>| ratio.map_or("-".into(), |ratio| format!("{ratio:.2}"));
        cells.push(ratio(row.ratio));
        cells.extend(has_spread.then(|| ratio(row.upper)));
        cells.push(match row.metric.goal {
            Goal::Shown => "-".into(),
            Goal::Ratio(most) => format!("{most:.2} x"),
            Goal::AtMost(most) => format!("<= {}", number(most)),
            Goal::Own { most, key, value } => format!("{most:.2} x {key}={value}"),
            Goal::To { most, rival } => format!("{most:.2} x {}", rival.name()),
        });
        cells.push(row.met.map_or("-", |met| if met { "yes" } else { "NO" }).to_owned());
        cells.push(row.noise.map_or("-".into(), |noise| format!("{noise:.2}")));
        table.push(cells);
    }
    table
}

/// A peer's figure; wall time has its CPU time beside it. Where the goal is about the peer itself, its own ratio.
fn cell(row: &Row<'_>, peer: Peer) -> String {
    let Some(lane) = lane_of(row.heat, peer) else { return "-".into() };
    if let Goal::Own { .. } = row.metric.goal {
        let base = row.other.and_then(|other| figure(other, peer, row.metric.key));
        return quotient(lane.median(row.metric.key), base).map_or("-".into(), |ratio| format!("{ratio:.2}"));
    }
    match (lane.median(row.metric.key), lane.median("cpu")) {
        (None, _) if !lane.failures.is_empty() => "FAILED".into(),
        (None, _) => "-".into(),
        (Some(wall), Some(cpu)) if row.metric.key == "ns" => format!("{} ({})", number(wall), number(cpu)),
        (Some(value), _) => number(value),
    }
}

/// Three significant digits or all before the point, with separators: 18.2, 377, 28,936.
fn number(value: f64) -> String {
    if value.is_nan() {
        return "-".into();
    }
    if value.abs() < 100.0 && value != 0.0 {
        return format!("{value:.1}");
    }
    let digits = format!("{:.0}", value.abs());
    let mut text = String::from(if value < 0.0 { "-" } else { "" });
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The peers that ran with other sizes, and the peers that failed and why.
fn notes(race: &Race) -> Vec<String> {
    let lanes = || race.heats.iter().flat_map(|heat| heat.lanes.iter().map(move |lane| (heat, lane)));
    // The cases in which a peer ran with the same other sizes.
    let mut smaller: Vec<(Peer, String, Vec<String>)> = Vec::new();
    let mut failures = Vec::new();
    for (heat, lane) in lanes() {
        let changed = lane.params.changed_from(&heat.case.params);
        if !changed.is_empty() {
            let (changed, case) = (changed.text(), heat.case.params.text());
            match smaller.iter_mut().find(|(peer, other, _)| *peer == lane.peer && *other == changed) {
                Some((_, _, cases)) => cases.push(case),
                None => smaller.push((lane.peer, changed, vec![case])),
            }
        }
        if let Some(why) = lane.failures.first() {
            let times = lane.failures.len();
            failures.push(format!("{} FAILED {times} times at {}: {why}", lane.peer.name(), lane.params.text()));
        }
    }
    let told = smaller.into_iter().map(|(peer, changed, cases)| {
        let all = lanes().filter(|(_, lane)| lane.peer == peer).count();
        let cases = if cases.len() == all { "every case".to_owned() } else { cases.join("; ") };
        format!("{} runs with {changed}: {cases}", peer.name())
    });
    told.chain(failures).collect()
}

fn align(table: &[Vec<String>], text: &mut String) {
    let columns = table[0].len();
    let widths: Vec<usize> =
        (0..columns).map(|column| table.iter().map(|row| row[column].chars().count()).max().unwrap_or(0)).collect();
    for row in table {
        for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
            let _ = match column {
                0 | 1 => write!(text, "{cell:<width$}  "),
                _ => write!(text, "{cell:>width$}  "),
            };
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
}

fn pipe(table: &[Vec<String>], text: &mut String) {
    for (index, row) in table.iter().enumerate() {
        let _ = writeln!(text, "| {} |", row.join(" | "));
        if index == 0 {
            let _ = writeln!(text, "|{}", "---|".repeat(row.len()));
        }
    }
}

/// Everything, for programs: each sample of each peer, and each judged row.
pub(crate) fn json(races: &[Race], size: Size) -> String {
    let mut items = Vec::new();
    for race in races {
        for heat in &race.heats {
            for lane in &heat.lanes {
                let samples: Vec<String> = lane.samples.iter().map(|sample| object(sample.iter())).collect();
                let failures: Vec<String> = lane.failures.iter().map(|why| quote(why)).collect();
                items.push(format!(
                    "{{\"workload\":{},\"case\":{},\"peer\":{},\"params\":{},\"samples\":[{}],\"failures\":[{}]}}",
                    quote(race.workload.name),
                    quote(&heat.case.params.text()),
                    quote(lane.peer.name()),
                    quote(&lane.params.text()),
                    samples.join(","),
                    failures.join(","),
                ));
            }
        }
    }
    let mut judged = Vec::new();
    for race in races {
        for row in rows(race, size) {
            let (kind, most) = match row.metric.goal {
                Goal::Shown => ("shown", None),
                Goal::Ratio(most) => ("ratio", Some(most)),
                Goal::AtMost(most) => ("at_most", Some(most)),
                Goal::Own { most, .. } => ("own", Some(most)),
                Goal::To { most, .. } => ("to", Some(most)),
            };
            judged.push(format!(
                "{{\"workload\":{},\"case\":{},\"figure\":{},\"ratio\":{},\"upper\":{},\"goal\":{},\"limit\":{},\
                 \"met\":{},\"noise\":{}}}",
                quote(race.workload.name),
                quote(&row.heat.case.params.text()),
                quote(row.metric.key),
                value(row.ratio),
                value(row.upper),
                quote(kind),
                value(most),
                row.met.map_or("null".into(), |met| met.to_string()),
                value(row.noise),
            ));
        }
    }
    format!("{{\"lanes\":[\n{}\n],\"rows\":[\n{}\n]}}\n", items.join(",\n"), judged.join(",\n"))
}

fn object<'a>(figures: impl Iterator<Item = (&'a str, f64)>) -> String {
    let fields: Vec<String> = figures.map(|(key, figure)| format!("{}:{}", quote(key), value(Some(figure)))).collect();
    format!("{{{}}}", fields.join(","))
}

/// JSON has no NaN.
fn value(figure: Option<f64>) -> String {
    figure.filter(|figure| figure.is_finite()).map_or("null".into(), |figure| figure.to_string())
}

fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for character in text.chars() {
        match character {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(character);
            }
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04x}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Sample;
    use crate::plan::Case;

    fn lane(peer: Peer, is_rival: bool, figures: &[f64]) -> Lane {
        let samples = figures.iter().map(|&figure| Sample::parse(&format!("ns {figure}\n"))).collect();
        Lane { peer, params: Case::new(&[], &[]).params, is_rival, samples, failures: Vec::new() }
    }

    fn heat(goal: Goal, lanes: Vec<Lane>) -> Heat {
        Heat { case: Case::new(&[("n", 1), ("w", 1)], &[]).time(goal), lanes }
    }

    #[test]
    fn ratio_is_of_medians_to_the_best_rival() {
        let lanes = vec![
            lane(Peer::Fibra, true, &[9.0, 20.0, 1.0]),
            lane(Peer::Tokio, true, &[30.0]),
            lane(Peer::May, true, &[90.0]),
            lane(Peer::Threads, false, &[1.0]),
        ];
        let heat = heat(Goal::Ratio(0.3), lanes);
        let row = judge(&[], &heat, &heat.case.metrics[0], Size::Full);
        assert_eq!(row.ratio, Some(0.3));
        assert_eq!(row.upper, Some(20.0 / 30.0));
        assert_eq!(row.met, Some(true));
    }

    #[test]
    fn goal_is_missed_when_above_and_unjudged_without_figures() {
        let slow = heat(Goal::Ratio(0.3), vec![lane(Peer::Fibra, true, &[10.0]), lane(Peer::Tokio, true, &[30.0])]);
        assert_eq!(judge(&[], &slow, &slow.case.metrics[0], Size::Full).met, Some(false));
        assert_eq!(judge(&[], &slow, &slow.case.metrics[0], Size::Quick).met, None);
        let large = heat(Goal::AtMost(9.0), vec![lane(Peer::Fibra, true, &[10.0])]);
        assert_eq!(judge(&[], &large, &large.case.metrics[0], Size::Full).met, Some(false));
        let absent = heat(Goal::AtMost(9.0), vec![lane(Peer::Tokio, true, &[30.0])]);
        assert_eq!(judge(&[], &absent, &absent.case.metrics[0], Size::Full).met, None);
    }

    #[test]
    fn own_goal_is_judged_by_the_case_it_names() {
        let goal = Goal::Own { most: 1.5, key: "w", value: 1 };
        let at = |w, ours| {
            let case = Case::new(&[("n", 1), ("w", w)], &[]).time(goal);
            Heat { case, lanes: vec![lane(Peer::Fibra, true, &[ours]), lane(Peer::Tokio, true, &[1.0])] }
        };
        let heats = [at(1, 20.0), at(2, 30.0), at(8, 31.0)];
        let judged = |known: &[Heat], heat: usize| {
            let row = judge(known, &heats[heat], &heats[heat].case.metrics[0], Size::Full);
            (row.ratio, row.met)
        };
        assert_eq!(judged(&heats, 1), (Some(1.5), Some(true)));
        assert_eq!(judged(&heats, 2), (Some(1.55), Some(false)));
        assert_eq!(judged(&heats[1..], 2), (None, None), "the case it names was not measured");
    }

    #[test]
    fn goal_to_one_rival_leaves_the_others_out() {
        let lanes =
            vec![lane(Peer::Fibra, true, &[9.0]), lane(Peer::Tokio, true, &[1.0]), lane(Peer::Go, true, &[30.0])];
        let present = heat(Goal::To { most: 0.3, rival: Peer::Go }, lanes);
        let row = judge(&[], &present, &present.case.metrics[0], Size::Full);
        assert_eq!((row.ratio, row.met), (Some(0.3), Some(true)));
        let absent = heat(Goal::To { most: 0.3, rival: Peer::Go }, vec![lane(Peer::Fibra, true, &[9.0])]);
        assert_eq!(judge(&[], &absent, &absent.case.metrics[0], Size::Full).met, None, "there was no Go");
    }

    #[test]
    fn noisy_rounds_are_left_out_if_enough_quiet_ones_remain() {
        let mut lane = lane(Peer::Tokio, true, &[1.0, 2.0, 3.0, 90.0, 91.0]);
        for (sample, noise) in lane.samples.iter_mut().zip([0.0, 0.1, 0.2, 1.0, 1.0]) {
            sample.set("noise", noise);
        }
        assert_eq!(lane.median("ns"), Some(2.0));
        lane.samples[0].set("noise", 1.0);
        assert_eq!(lane.median("ns"), Some(3.0));
    }

    #[test]
    fn other_sizes_are_told_once() {
        let heat = |w, n| {
            let mut threads = lane(Peer::Threads, true, &[1.0]);
            threads.params = Case::new(&[("n", n), ("w", w)], &[]).params;
            Heat { case: Case::new(&[("n", 9), ("w", w)], &[]), lanes: vec![threads] }
        };
        let race = |heats| Race { workload: &crate::workloads::ALL[0], heats };
        assert_eq!(notes(&race(vec![heat(1, 2), heat(2, 2)])), ["threads runs with n=2: every case"]);
        assert_eq!(notes(&race(vec![heat(1, 9), heat(2, 2)])), ["threads runs with n=2: n=9 w=2"]);
    }

    #[test]
    fn numbers_read_well() {
        let read = [0.0, 0.25, 18.24, 377.0, 28_936.4, 1_000_000.0].map(number);
        assert_eq!(read, ["0", "0.2", "18.2", "377", "28,936", "1,000,000"]);
    }

    #[test]
    fn json_strings_are_closed() {
        assert_eq!(quote("a\"b\\c\n"), r#""a\"b\\c\u000a""#);
    }
}
