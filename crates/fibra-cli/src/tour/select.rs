//! One loop that waits for everything at once: a post office that takes in parcels, hands them on, hears that the van has left, looks
//! at the clock, and closes when its customer has gone home.

use std::time::Duration;

use fibra::channel::{bounded, rendezvous};
use fibra::time::Instant;

use super::page::{Page, time};
use super::{Options, Outcome};
use crate::host;

/// Parcels that come in, numbered from 1.
const PARCELS: usize = 20_000;
/// How many lie on the counter at most: a full one switches the receiving arm off.
const COUNTER: usize = 4;
/// The van is late by so much.
const DELAY: Duration = Duration::from_millis(5);
/// The clerk yawns when nothing has happened for so long.
const BORED: Duration = Duration::from_millis(1);

pub(crate) fn run(page: &Page, _options: &Options) -> Outcome {
    let (unload, van) = bounded::<usize>(COUNTER);
    let (hand_over, counter_side) = rendezvous::<usize>();

    let early = fibra::select! {
        recv(van) -> parcel => format!("{parcel:?}"),
        default => "the van is not there yet: `default` goes on at once".to_owned(),
    };
    page.row("default", format_args!("{early}"));

    let driver = fibra::spawn(move || {
        fibra::sleep(DELAY);
        for parcel in 1..=PARCELS {
            // If the office is gone, so is the tour: it says why.
            if unload.send(parcel).is_err() {
                return;
            }
        }
        unload.close_with("the van is empty");
    });
    let customer = fibra::spawn(move || counter_side.iter().take(PARCELS).sum::<usize>());

    let mut counter = Vec::with_capacity(COUNTER);
    let (mut received, mut sent, mut yawns) = (0, 0, 0);
    let mut left = None;
    let begin = Instant::now();
    let sum = loop {
        let parcel = counter.last().copied().unwrap_or_default();
        fibra::select! {
            recv(van) -> parcel, if received < PARCELS && counter.len() < COUNTER => {
                counter.push(parcel.map_err(|_| "the van left with parcels in it".to_owned())?);
                received += 1;
            }
            send(hand_over, parcel) -> taken, if !counter.is_empty() => {
                taken.map_err(|_| "the customer left early".to_owned())?;
                counter.pop();
                sent += 1;
            }
            closed(van) -> why, if left.is_none() => left = Some((why, received)),
            join(customer) -> sum, if left.is_some() => break sum.map_err(|error| error.to_string())?,
            after(BORED) => yawns += 1,
        }
    };
    let took = begin.elapsed();
    driver.join().map_err(|error| error.to_string())?;
    let (why, before) = left.ok_or("the post office did not hear the van leave")?;
    if (received, sent, sum) != (PARCELS, PARCELS, PARCELS * (PARCELS + 1) / 2) {
        return Err(format!("{received} parcels came in, {sent} went out, and they add up to {sum}"));
    }
    let count = |number: usize| host::count(number as u64);
    page.row("after", format_args!("nothing to do for {}, {yawns} times", time(BORED)));
    page.row("recv", format_args!("{} parcels, while fewer than {COUNTER} lay on the counter", count(received)));
    page.row("send", format_args!("{} of them handed on, from stack to stack", count(sent)));
    page.row("closed", format_args!("\"{why}\", heard after {} parcels", count(before)));
    page.row("join", format_args!("the customer went home; no parcel was lost, none came twice"));
    let selects = received + sent + yawns + 2;
    let each = time(took.saturating_sub(DELAY) / selects as u32);
    page.row("in all", format_args!("{} selects over five arms, {each} each", count(selects)));
    Ok(())
}
