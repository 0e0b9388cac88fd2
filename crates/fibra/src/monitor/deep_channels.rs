//! Unbounded channels that hold many values: a receiver that does not keep up, or is forgotten. Reported when a channel has passed
//! [`WATERMARK`], and again when the number has doubled.
//!
//! Found when a snapshot is taken and, once a second, by sysmon while workers are awake; senders do nothing for it. What was said is
//! remembered per channel, by its number, as long as the channel is there.
//!
//! Above: `sysmon.rs`, `inspect::collect`. Below: `objects.rs`.

use std::collections::HashMap;

use super::errands;
use super::objects::ChannelFacts;
use super::per_process::PerProcess;

use crate::prim::sync::Mutex;

/// So many values are worth a word.
const WATERMARK: usize = 100_000;

/// The next number of values that is reported, by channel.
#[derive(Default)]
struct Marks(Mutex<HashMap<u64, usize>>);

static MARKS: PerProcess<Marks> = PerProcess::new(Marks::default);

/// Reports those that have passed their mark.
pub(crate) fn look(channels: &[ChannelFacts]) {
    let is_deep = |channel: &&ChannelFacts| channel.capacity.is_none() && channel.len >= WATERMARK;
    let mut marks = MARKS.get().0.lock();
    if marks.is_empty() && !channels.iter().any(|channel| is_deep(&channel)) {
        return;
    }
    marks.retain(|id, _| channels.iter().any(|channel| channel.id == *id));
    for channel in channels.iter().filter(is_deep) {
        let mark = marks.entry(channel.id).or_insert(WATERMARK);
        if channel.len < *mark {
            continue;
        }
        *mark = channel.len.saturating_mul(2);
        let name = channel.name.as_ref().map_or_else(String::new, |name| format!(" \"{name}\""));
        errands::say_soon(format!(
            "fibra: the unbounded channel{name} (#{}), made at {}, holds {} values: its receivers do not keep up, or \
             have forgotten it. A bounded channel makes senders wait. The next report comes at {} values.",
            channel.id, channel.site, channel.len, *mark,
        ));
    }
}
