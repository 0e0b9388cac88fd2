//! The `Date` of answers: formatted once a second on each worker, and copied from there. Above: `encode`. Below: the clock.

use std::cell::Cell;
use std::time::{SystemTime, UNIX_EPOCH};

/// `Sun, 06 Nov 1994 08:49:37 GMT` has so many bytes.
const LENGTH: usize = 29;

/// Seconds of a day.
const DAY: u64 = 86_400;

thread_local! {
    /// The second, and its text. The fiber does not suspend while it is read or replaced.
    static LAST: Cell<(u64, [u8; LENGTH])> = const { Cell::new((u64::MAX, [0; LENGTH])) };
}

/// Appends the date of now.
pub(crate) fn append(out: &mut Vec<u8>) {
    // If the clock is before 1970, it is wrong, and so is the date.
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (second, text) = LAST.get();
    if second == now {
        out.extend_from_slice(&text);
    } else {
        let text = written(now);
        LAST.set((now, text));
        out.extend_from_slice(&text);
    }
}

/// Seconds since 1970, as HTTP writes them.
fn written(seconds: u64) -> [u8; LENGTH] {
    const DAYS: [&[u8; 3]; 7] = [b"Thu", b"Fri", b"Sat", b"Sun", b"Mon", b"Tue", b"Wed"];
    const MONTHS: [&[u8; 3]; 12] =
        [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
    let (mut days, time) = (seconds / DAY, seconds % DAY);
    let weekday = DAYS[(days % 7) as usize];
    let mut year = 1970;
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    // Fifty iterations, once a second.
    while days >= 365 + u64::from(is_leap(year)) {
        days -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 0;
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    let mut text = *b"Thu, 00 Jan 0000 00:00:00 GMT";
    let mut put = |at: usize, digits: usize, mut number: u64| {
        for place in (at..at + digits).rev() {
            text[place] = b'0' + (number % 10) as u8;
            number /= 10;
        }
    };
    put(5, 2, days + 1);
    put(12, 4, year);
    put(17, 2, time / 3600);
    put(20, 2, time / 60 % 60);
    put(23, 2, time % 60);
    text[..3].copy_from_slice(weekday);
    text[8..11].copy_from_slice(MONTHS[month]);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(seconds: u64) -> String {
        String::from_utf8(written(seconds).to_vec()).unwrap()
    }

    #[test]
    fn dates_are_right() {
        assert_eq!(text(0), "Thu, 01 Jan 1970 00:00:00 GMT");
        // The example of RFC 9110, 5.6.7.
        assert_eq!(text(784_111_777), "Sun, 06 Nov 1994 08:49:37 GMT");
        assert_eq!(text(951_782_400), "Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(text(951_868_799), "Tue, 29 Feb 2000 23:59:59 GMT");
        assert_eq!(text(951_868_800), "Wed, 01 Mar 2000 00:00:00 GMT");
        assert_eq!(text(4_107_542_400), "Mon, 01 Mar 2100 00:00:00 GMT");
        assert_eq!(text(1_735_689_599), "Tue, 31 Dec 2024 23:59:59 GMT");
    }

    #[test]
    fn the_second_time_it_is_copied() {
        let (mut one, mut other) = (Vec::new(), Vec::new());
        append(&mut one);
        append(&mut other);
        assert_eq!((one.len(), other.len()), (LENGTH, LENGTH));
        assert!(one.ends_with(b" GMT") && one.starts_with(&LAST.get().1[..3]));
    }
}
