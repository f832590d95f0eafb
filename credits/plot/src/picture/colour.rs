//! Colours of loans and of curves.

use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::{Area, DrawResult, FRAME, GREY, short, text};

/// Colours that people with any kind of colour vision can tell apart (Okabe and Ito's, without
/// black and yellow).
pub(super) const RANKS: [RGBColor; 8] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(90, 60, 150),
    RGBColor(120, 120, 120),
];

/// The colour of cells without data.
pub(super) const NOTHING: RGBColor = RGBColor(222, 222, 222);

/// The colours from the initial loan to ever smaller loans (the blue half of `ColorBrewer`'s
/// `RdBu`). `MORE` contains those for larger loans.
const LESS: [RGBColor; 4] = [
    RGBColor(255, 255, 255),
    RGBColor(209, 229, 240),
    RGBColor(67, 147, 195),
    RGBColor(5, 48, 97),
];
/// The colours from the initial loan to ever larger loans (the red half of `ColorBrewer`'s `RdBu`).
const MORE: [RGBColor; 4] = [
    RGBColor(255, 255, 255),
    RGBColor(253, 219, 199),
    RGBColor(214, 96, 77),
    RGBColor(103, 0, 31),
];

/// A mapping of loans to colours. The initial loan is white, and the more a loan differs from it,
/// the darker is the colour. A loan twice as large is as dark as a loan half as large.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    least: u16,
    start: u16,
    most: u16,
    /// The absolute logarithm of the ratio that has the darkest colour.
    darkest: f64,
}

/// The position of the lightest colour other than white, as a fraction of the way to the darkest.
/// It is not 0, so even a small change is visible.
const LIGHTEST: f64 = 0.12;

impl Scale {
    /// Creates the scale for a range of loans that contains the loan at the start.
    pub(super) fn new((least, most): (u16, u16), start: u16) -> Self {
        let darkest = ratio(least, start).abs().max(ratio(most, start));
        Scale {
            least,
            start,
            most,
            darkest,
        }
    }

    pub(super) fn colour(&self, loan: u16) -> RGBColor {
        self.shade(ratio(loan, self.start))
    }

    /// Returns the colour of a loan by the logarithm of its ratio to the loan at the start.
    fn shade(&self, ratio: f64) -> RGBColor {
        let part = LIGHTEST + (1.0 - LIGHTEST) * (ratio / self.darkest).abs();
        match ratio {
            ratio if ratio < 0.0 => mixed(&LESS, part),
            ratio if ratio > 0.0 => mixed(&MORE, part),
            _ => WHITE,
        }
    }

    /// Draws the scale with its three numbers. The labels at its ends extend beyond the rectangle.
    pub(super) fn draw(
        &self,
        area: &Area<'_>,
        (x, y): (i32, i32),
        (width, height): (i32, i32),
    ) -> DrawResult {
        let title = (x + width / 2, y - 14);
        text(
            area,
            title,
            "loan, in credits",
            13,
            GREY,
            (HPos::Center, VPos::Center),
        )?;
        let (from, to) = (ratio(self.least, self.start), ratio(self.most, self.start));
        let width_of = |part: f64| (part * f64::from(width)).round() as i32;
        for part in 0..PARTS {
            let (left, right) = (width * part / PARTS, width * (part + 1) / PARTS);
            let middle = (f64::from(part) + 0.5) / f64::from(PARTS);
            let colour = self.shade(from + (to - from) * middle);
            let corners = [(x + left, y), (x + right, y + height)];
            area.draw(&Rectangle::new(corners, colour.filled()))?;
        }
        let frame = [(x, y), (x + width, y + height)];
        area.draw(&Rectangle::new(frame, FRAME))?;
        let middle = y + height / 2;
        let end = |x, loan: u16, h| {
            let words = short(loan.into());
            text(area, (x, middle), &words, 13, GREY, (h, VPos::Center))
        };
        if self.least < self.start {
            end(x - 8, self.least, HPos::Right)?;
        }
        if self.most > self.start {
            end(x + width + 8, self.most, HPos::Left)?;
        }
        let start = match to > from {
            true => x + width_of(-from / (to - from)),
            false => x + width / 2,
        };
        let tick = [(start, y + height), (start, y + height + 4)];
        area.draw(&PathElement::new(tick, GREY))?;
        let words = format!("{} at the start", self.start);
        let below = (start, y + height + 13);
        text(area, below, &words, 13, GREY, (HPos::Center, VPos::Center))
    }
}

/// The number of segments in the drawn scale.
const PARTS: i32 = 75;

/// Returns the logarithm of the ratio of `loan` to `start`. A loan of 0 counts as 1.
fn ratio(loan: u16, start: u16) -> f64 {
    (f64::from(loan.max(1)) / f64::from(start.max(1))).ln()
}

/// Returns the colour at the fraction `part` of the way through the list, interpolated.
fn mixed(colours: &[RGBColor; 4], part: f64) -> RGBColor {
    let at = part.clamp(0.0, 1.0) * 3.0;
    let index = (at as usize).min(2);
    let (from, to, part) = (colours[index], colours[index + 1], at - index as f64);
    let mix = |from: u8, to: u8| {
        (f64::from(from) + (f64::from(to) - f64::from(from)) * part).round() as u8
    };
    RGBColor(mix(from.0, to.0), mix(from.1, to.1), mix(from.2, to.2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loans_have_colours_by_their_side_of_the_start() {
        let scale = Scale::new((4, 64), 8);
        assert_eq!((scale.colour(8), scale.colour(64)), (WHITE, MORE[3]));
        let (less, more) = (scale.colour(6), scale.colour(9));
        assert!(less.2 > less.0 && more.0 > more.2, "{less:?} {more:?}");
        // A ratio of 2 is equally dark on the two sides. It is a third of the way to the largest
        // ratio, 8.
        let part = LIGHTEST + (1.0 - LIGHTEST) / 3.0;
        assert_eq!(scale.colour(4), mixed(&LESS, part));
        assert_eq!(scale.colour(16), mixed(&MORE, part));
        // Loans beyond the range have colours as well.
        assert_eq!((scale.colour(0), scale.colour(400)), (LESS[3], MORE[3]));
        let flat = Scale::new((8, 8), 8);
        assert_eq!(flat.colour(8), WHITE);
        let _ = (flat.colour(7), flat.colour(9));
    }
}
