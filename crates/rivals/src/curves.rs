//! Curves of `docs/benchmarks.md`: how a figure grows with the number of workers, of tasks, or of bytes in a message. Each is a table and a
//! picture (SVG, beside the document). Above: `document`. Below: `race`, which measured the points.
//!
//! Invariants: a curve is drawn from cases of the same run as the tables and has no point of its own; both axes are logarithmic and
//! the same for all peers; a peer that took part in fewer than two of the cases is left out.

use std::fmt::Write as _;

use crate::peers::Peer;
use crate::race::Race;

/// One picture: a metric of a workload, over one parameter.
struct Curve {
    /// Name of the file, without its ending.
    file: &'static str,
    title: &'static str,
    workload: &'static str,
    metric: &'static str,
    unit: &'static str,
    /// The parameter that grows, and what it is.
    over: &'static str,
    over_label: &'static str,
    /// What all points have in common. Other parameters (how often) may differ.
    fixed: &'static [(&'static str, u64)],
}

const fn time(
    file: &'static str,
    title: &'static str,
    workload: &'static str,
    (over, over_label): (&'static str, &'static str),
    fixed: &'static [(&'static str, u64)],
) -> Curve {
    Curve { file, title, workload, metric: "ns", unit: "ns", over, over_label, fixed }
}

const WORKERS: (&str, &str) = ("w", "workers");
const TASKS: (&str, &str) = ("tasks", "tasks in the ring");
const BYTES: (&str, &str) = ("bytes", "bytes in a message");

const CURVES: &[Curve] = &[
    time("pingpong-workers", "a message to another task and back", "pingpong", WORKERS, &[("bytes", 8)]),
    time("yield-workers", "a yield, of 1,000 tasks", "yield", WORKERS, &[("tasks", 1_000), ("depth", 0)]),
    time("mpmc-workers", "a message, 4 senders to 4 receivers", "mpmc", WORKERS, &[("p", 4), ("c", 4), ("bytes", 8)]),
    time("skynet-workers", "a leaf of a tree of a million tasks", "skynet", WORKERS, &[]),
    time("fork_join-workers", "a fork and its join, by join(a, b)", "fork_join", WORKERS, &[("how", 0)]),
    time("ring-tasks", "a hop of a token round a ring of tasks, one worker", "ring", TASKS, &[("w", 1)]),
    Curve {
        file: "idle_mem-tasks",
        title: "memory of a task that sleeps",
        workload: "idle_mem",
        metric: "bytes",
        unit: "bytes",
        over: "n",
        over_label: "tasks",
        fixed: &[("chan", 0)],
    },
    time("pingpong-bytes", "a message to another task and back, two workers", "pingpong", BYTES, &[("w", 2)]),
    time(
        "mpmc-bytes",
        "a message, one sender to one receiver, two workers",
        "mpmc",
        BYTES,
        &[("p", 1), ("c", 1), ("w", 2)],
    ),
];

/// A peer with its points: the parameter and the figure.
type Line = (Peer, Vec<(u64, f64)>);

/// The section of the document, and the pictures it shows: path beside the document, and contents.
pub(crate) fn render(races: &[Race]) -> (String, Vec<(String, String)>) {
    let mut text = String::new();
    let mut pictures = Vec::new();
    for curve in CURVES {
        let lines = lines(races, curve);
        if lines.is_empty() {
            continue;
        }
        let path = format!("curves/{}.svg", curve.file);
        let _ = writeln!(text, "### {}: {}, over {}\n", curve.workload, curve.title, curve.over_label);
        let _ = writeln!(text, "![{} over {}]({path})\n", curve.title, curve.over_label);
        table(curve, &lines, &mut text);
        pictures.push((path, picture(curve, &lines)));
    }
    if !text.is_empty() {
        text.insert_str(
            0,
            "## Curves\n\nThe same figures as in the tables, drawn. Both axes are logarithmic; less is better. More \
             workers than cores share the cores.\n\n",
        );
    }
    (text, pictures)
}

fn lines(races: &[Race], curve: &Curve) -> Vec<Line> {
    let race = races.iter().find(|race| race.workload.name == curve.workload);
    let heats = race.map_or(&[][..], |race| &race.heats);
    let belongs = |heat: &&crate::race::Heat| {
        let params = &heat.case.params;
        params.find(curve.over).is_some() && curve.fixed.iter().all(|(key, value)| params.find(key) == Some(*value))
    };
    let mut lines: Vec<Line> = Vec::new();
    for peer in Peer::ALL {
        let mut points: Vec<(u64, f64)> = heats
            .iter()
            .filter(belongs)
            .filter_map(|heat| {
                // At its own size: some peers cannot carry that of the case.
                let lane = heat.lanes.iter().find(|lane| lane.peer == peer)?;
                Some((lane.params.find(curve.over)?, lane.median(curve.metric).filter(|figure| *figure > 0.0)?))
            })
            .collect();
        points.sort_by_key(|(over, _)| *over);
        points.dedup_by_key(|(over, _)| *over);
        if points.len() > 1 {
            lines.push((peer, points));
        }
    }
    lines
}

/// All values of the parameter, in order.
fn overs(lines: &[Line]) -> Vec<u64> {
    let mut overs: Vec<u64> = lines.iter().flat_map(|(_, points)| points.iter().map(|(over, _)| *over)).collect();
    overs.sort_unstable();
    overs.dedup();
    overs
}

fn table(curve: &Curve, lines: &[Line], text: &mut String) {
    let overs = overs(lines);
    let heads: Vec<String> = overs.iter().map(|over| format!("{}={over}", curve.over)).collect();
    let _ = writeln!(text, "| {} | {} |\n|---|{}", curve.unit, heads.join(" | "), "---|".repeat(overs.len()));
    for (peer, points) in lines {
        let cell =
            |over: &u64| points.iter().find(|(at, _)| at == over).map_or("-".into(), |(_, figure)| short(*figure));
        let cells: Vec<String> = overs.iter().map(cell).collect();
        let _ = writeln!(text, "| {} | {} |", peer.name(), cells.join(" | "));
    }
    text.push('\n');
}

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 380.0;
/// Room for the labels: left, right (names of the peers), above, below.
const MARGINS: [f64; 4] = [64.0, 96.0, 40.0, 48.0];
/// Two names beside the lines are at least so far apart.
const NAME_HEIGHT: f64 = 14.0;
/// One for each peer, in the order of `Peer::ALL`; fibra's is the first.
const COLOURS: [&str; 9] =
    ["#d1242f", "#0969da", "#8250df", "#1a7f37", "#bf8700", "#57606a", "#0a7ea4", "#bc4c00", "#953800"];

/// Where a value lies between the least and the most, by its logarithm.
fn share(value: f64, least: f64, most: f64) -> f64 {
    if most > least { (value / least).ln() / (most / least).ln() } else { 0.5 }
}

fn picture(curve: &Curve, lines: &[Line]) -> String {
    let [left, right, above, below] = MARGINS;
    let overs = overs(lines);
    let (first, last) = (overs[0] as f64, overs[overs.len() - 1] as f64);
    let figures = || lines.iter().flat_map(|(_, points)| points.iter().map(|(_, figure)| *figure));
    let floor = decade(figures().fold(f64::INFINITY, f64::min));
    let mut ceiling = floor;
    while ceiling < figures().fold(0.0, f64::max) {
        ceiling *= 10.0;
    }
    let x = |over: u64| left + share(over as f64, first, last) * (WIDTH - left - right);
    let y = |figure: f64| HEIGHT - below - share(figure, floor, ceiling) * (HEIGHT - above - below);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n\
         <text x=\"{left}\" y=\"22\" font-size=\"15\">{}, {}</text>\n",
        curve.title, curve.unit
    );
    let mut tick = floor;
    while tick <= ceiling * 1.001 {
        let at = y(tick);
        let _ = writeln!(
            svg,
            "<line x1=\"{left}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#d0d7de\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            WIDTH - right,
            left - 6.0,
            at + 4.0,
            short(tick)
        );
        tick *= 10.0;
    }
    for &over in &overs {
        let (at, foot) = (x(over), HEIGHT - below);
        let _ = writeln!(
            svg,
            "<line x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{above}\" y2=\"{foot}\" stroke=\"#eaeef2\"/>\
             <text x=\"{at:.1}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
            foot + 16.0,
            short(over as f64)
        );
    }
    let middle = left + (WIDTH - left - right) / 2.0;
    let _ = writeln!(
        svg,
        "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{}</text>",
        HEIGHT - 10.0,
        curve.over_label
    );
    let mut names: Vec<(f64, usize)> = Vec::new();
    for (index, (peer, points)) in lines.iter().enumerate() {
        let colour = colour(*peer);
        let width = if *peer == Peer::Fibra { 3 } else { 1 };
        let path: Vec<String> =
            points.iter().map(|(over, figure)| format!("{:.1},{:.1}", x(*over), y(*figure))).collect();
        let _ = writeln!(
            svg,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{width}\"/>",
            path.join(" ")
        );
        for (over, figure) in points {
            let _ =
                writeln!(svg, "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"{colour}\"/>", x(*over), y(*figure));
        }
        names.push((y(points[points.len() - 1].1), index));
    }
    // From above to below, each name where its line ends, or under the name before.
    names.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut free = 0.0;
    for (at, index) in names {
        let at = f64::max(at, free);
        free = at + NAME_HEIGHT;
        let peer = lines[index].0;
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"{:.1}\" fill=\"{}\">{}</text>",
            WIDTH - right + 8.0,
            at + 4.0,
            colour(peer),
            peer.name()
        );
    }
    svg.push_str("</svg>\n");
    svg
}

fn colour(peer: Peer) -> &'static str {
    let index = Peer::ALL.into_iter().position(|other| other == peer).unwrap_or(0);
    COLOURS[index % COLOURS.len()]
}

/// The power of ten at or below a figure.
fn decade(figure: f64) -> f64 {
    10f64.powf(figure.log10().floor())
}

/// 5.3, 377, 28.9k, 1M.
fn short(value: f64) -> String {
    let (scaled, suffix) = match value {
        v if v >= 1e6 => (v / 1e6, "M"),
        v if v >= 1e4 => (v / 1e3, "k"),
        v => (v, ""),
    };
    let text = if scaled < 100.0 { format!("{scaled:.1}") } else { format!("{scaled:.0}") };
    format!("{}{suffix}", text.strip_suffix(".0").unwrap_or(&text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Sample;
    use crate::plan::Size;
    use crate::race::{Heat, Lane};
    use crate::workloads::ALL;

    /// Every curve has at least three points for fibra among the cases of a full run: a renamed parameter would leave it empty.
    #[test]
    fn every_curve_has_its_points() {
        for curve in CURVES {
            let workload = ALL.iter().find(|workload| workload.name == curve.workload).expect("a workload");
            let heats = (workload.cases)(Size::Full).into_iter().map(|case| {
                let lanes = case.entrants.iter().map(|entrant| Lane {
                    peer: entrant.peer,
                    params: entrant.params.clone(),
                    is_rival: true,
                    samples: vec![Sample::parse(&format!("{} 12.5\n", curve.metric))],
                    failures: Vec::new(),
                });
                Heat { lanes: lanes.collect(), case }
            });
            let races = [Race { workload, heats: heats.collect() }];
            let lines = lines(&races, curve);
            let ours = lines.iter().find(|(peer, _)| *peer == Peer::Fibra).expect("fibra takes part");
            assert!(ours.1.len() >= 3, "{}: {:?}", curve.file, ours.1);
            let (text, pictures) = render(&races);
            assert!(text.contains(curve.title) && pictures.iter().any(|(path, _)| path.contains(curve.file)));
        }
    }

    #[test]
    fn a_picture_has_a_line_and_a_name_for_each_peer() {
        let lines = [(Peer::Fibra, vec![(1, 5.0), (8, 20.0)]), (Peer::Tokio, vec![(1, 50.0), (8, 900.0)])];
        let svg = picture(&CURVES[0], &lines);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert_eq!(svg.matches("<circle").count(), 4);
        assert!(svg.contains(">fibra</text>") && svg.contains(">tokio</text>") && svg.ends_with("</svg>\n"));
        // The least lies lowest: decades from 1 to 1,000.
        assert!(svg.contains(">1</text>") && svg.contains(">1000</text>"), "{svg}");
    }

    #[test]
    fn numbers_are_short() {
        assert_eq!([5.34, 377.0, 9_999.0, 28_936.0, 1e6].map(short), ["5.3", "377", "9999", "28.9k", "1M"]);
    }
}
