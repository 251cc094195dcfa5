//! Texts and numbers as a person reads them.

use std::fmt;

use seaway_model::Time;

/// Any text, safe between tags and within quotes.
pub(super) fn text(text: &str) -> Text<'_> {
    Text(text)
}

pub(super) struct Text<'a>(&'a str);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write;
        for c in self.0.chars() {
            match c {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                '\n' | '\t' => f.write_char(c)?,
                // Among them those that turn the direction of writing and make a name look like another.
                c if c.is_control() || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') => {
                    f.write_char('\u{fffd}')?;
                }
                c => f.write_char(c)?,
            }
        }
        Ok(())
    }
}

/// `1,234,567`, with a thin space where others have a comma.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len().saturating_mul(2));
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && digits.len().saturating_sub(index).is_multiple_of(3) {
            grouped.push('\u{2009}');
        }
        grouped.push(digit);
    }
    grouped
}

/// `1.2 MB`: three digits at most, in powers of a thousand, as network people count.
pub(super) fn bytes(number: f64) -> String {
    let mut value = number;
    for unit in ["B", "kB", "MB", "GB", "TB"] {
        if value < 999.5 {
            return match unit {
                "B" => format!("{value:.0}\u{a0}B"),
                _ if value < 9.95 => format!("{value:.1}\u{a0}{unit}"),
                _ => format!("{value:.0}\u{a0}{unit}"),
            };
        }
        value /= 1000.0;
    }
    format!("{value:.0}\u{a0}PB")
}

/// `0`, `0.4`, `12`, `1 234`.
pub(super) fn rate(per_second: f64) -> String {
    match per_second {
        r if r < 0.05 => "0".to_owned(),
        r if r < 9.95 => format!("{r:.1}"),
        r => grouped(r.round() as u64),
    }
}

/// `5 s`, `3 min`, `4 h`, `12 d`.
pub(super) fn age(since: Time, now: Time) -> String {
    let seconds = now.0.saturating_sub(since.0) / 1000;
    match seconds {
        0..120 => format!("{seconds}\u{a0}s"),
        120..7200 => format!("{}\u{a0}min", seconds / 60),
        7200..172_800 => format!("{}\u{a0}h", seconds / 3600),
        _ => format!("{}\u{a0}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_becomes_markup() {
        assert_eq!(
            text("<b onload='x' a=\"y\">&\u{202e}\u{7}").to_string(),
            "&lt;b onload=&#39;x&#39; a=&quot;y&quot;&gt;&amp;\u{fffd}\u{fffd}"
        );
    }

    #[test]
    fn numbers_are_short_and_exact_enough() {
        assert_eq!(
            [grouped(0), grouped(999), grouped(1000), grouped(1234567)],
            ["0", "999", "1\u{2009}000", "1\u{2009}234\u{2009}567"]
        );
        assert_eq!(
            [bytes(0.0), bytes(999.0), bytes(1000.0), bytes(12_345.0), bytes(999_600.0), bytes(5e15)],
            ["0\u{a0}B", "999\u{a0}B", "1.0\u{a0}kB", "12\u{a0}kB", "1.0\u{a0}MB", "5\u{a0}PB"]
        );
        assert_eq!([rate(0.0), rate(0.4), rate(12.3), rate(1234.0)], ["0", "0.4", "12", "1\u{2009}234"]);
        assert_eq!(age(Time(5000), Time(4000)), "0\u{a0}s");
    }
}
