//! Curves over time. There is a line for each rank if the job has few ranks; otherwise quantiles
//! over the ranks are drawn.

use credits::statistics::RankRow;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, VPos};

use super::colour::RANKS;
use super::{Area, DrawResult, FRAME, GREY, INK, Unit, heading, short, style, text};
use crate::Job;

/// The number of times at which curves are computed, not counting time 0.
const SAMPLES: usize = 60;
/// The number of columns and the number of rows of charts.
const CHARTS: (usize, usize) = (3, 2);

/// The charts of a job.
#[derive(Debug)]
pub(super) struct Curves<'a> {
    job: &'a Job,
    unit: &'a Unit,
    /// The times at which curves are computed.
    times: Vec<f64>,
}

/// One chart.
struct Chart {
    title: String,
    /// The unit of the vertical axis.
    axis: String,
    /// The values of each rank at each time.
    values: Vec<Vec<f64>>,
}

impl<'a> Curves<'a> {
    pub(super) fn new(job: &'a Job, unit: &'a Unit) -> Self {
        let times = (0..=SAMPLES).map(|sample| job.end * sample as f64 / SAMPLES as f64);
        Curves {
            job,
            unit,
            times: times.collect(),
        }
    }

    fn few(&self) -> bool {
        self.job.tracks.len() <= RANKS.len()
    }

    /// Draws a heading that explains lines and areas.
    pub(super) fn legend(&self, area: &Area<'_>, (x, y): (i32, i32)) -> DrawResult {
        heading(area, (x, y), "Over time")?;
        let mut x = x + 130;
        let mut label = |words: &str, draw: &dyn Fn(i32) -> DrawResult| {
            draw(x)?;
            text(
                area,
                (x + 32, y),
                words,
                14,
                INK,
                (HPos::Left, VPos::Center),
            )?;
            x += 60 + 7 * words.chars().count() as i32;
            Ok::<_, Box<dyn std::error::Error>>(())
        };
        let line = |colour: RGBColor| {
            move |x: i32| {
                area.draw(&PathElement::new(
                    [(x, y), (x + 26, y)],
                    colour.stroke_width(2),
                ))?;
                Ok(())
            }
        };
        let block = |opacity: f64| {
            move |x: i32| {
                let colour = RANKS[0].mix(opacity).filled();
                area.draw(&Rectangle::new([(x, y - 7), (x + 26, y + 7)], colour))?;
                Ok(())
            }
        };
        if self.few() {
            for (track, colour) in self.job.tracks.iter().zip(RANKS) {
                label(&format!("rank {}", track.rank), &line(colour))?;
            }
            return Ok(());
        }
        label("median of the ranks", &line(RANKS[0]))?;
        label("10th to 90th percentile", &block(0.4))?;
        label("all ranks", &block(0.15))
    }

    /// Draws all charts.
    pub(super) fn draw(&self, area: &Area<'_>) -> DrawResult {
        let levels = |title: &str, values| Chart {
            title: title.to_owned(),
            axis: "credits".to_owned(),
            values,
        };
        let counts = |title: &str, column: fn(&RankRow) -> u64| {
            let each = self.job.tracks.iter().map(|track| track.last(column));
            let sum = short(each.fold(0, u64::saturating_add) as f64);
            Chart {
                title: format!("{title} ({sum} in all)"),
                axis: format!("per {}", self.unit.name),
                values: self.rate(|row| column(row) as f64),
            }
        };
        let banked = self.level(|row| f64::from(row.banked));
        let charts = [
            levels("Credits in the bank", banked),
            counts("Requests received", |row| row.received),
            counts("Requests that stalled", |row| row.stalls),
            levels("Largest loan to one rank", self.largest()),
            counts("Credits given back", |row| row.revoked),
            counts("System messages sent", |row| row.system_sent),
        ];
        for (area, chart) in area.split_evenly((CHARTS.1, CHARTS.0)).iter().zip(&charts) {
            self.chart(area, chart)?;
        }
        Ok(())
    }

    fn level(&self, column: impl Fn(&RankRow) -> f64) -> Vec<Vec<f64>> {
        let tracks = self.job.tracks.iter();
        tracks
            .map(|track| {
                let times = self.times.iter();
                times
                    .map(|at| track.value(self.job.clock, *at, &column))
                    .collect()
            })
            .collect()
    }

    /// Returns the rate of a counter per unit of time. At each sampled time, it is the mean over
    /// the interval that ends there.
    fn rate(&self, column: impl Fn(&RankRow) -> f64) -> Vec<Vec<f64>> {
        let step = self.times[1] / self.unit.length;
        let mut values = self.level(column);
        for values in &mut values {
            for at in (1..values.len()).rev() {
                values[at] = ((values[at] - values[at - 1]) / step).max(0.0);
            }
            // No interval ends at the first time, so the first interval's rate is used there.
            values[0] = values[1];
        }
        values
    }

    fn largest(&self) -> Vec<Vec<f64>> {
        let start = self.job.header.loan;
        let tracks = self.job.tracks.iter();
        tracks
            .map(|track| {
                let mut values = vec![0.0; self.times.len()];
                track.loans_at(self.job.clock, &self.times, |number, loans| {
                    let most = loans.values().copied().max().unwrap_or(start);
                    // `loans` lacks the loans that have never changed. If there are any, they have
                    // the initial value.
                    let all = loans.len() >= self.job.header.ranks as usize;
                    let most = if all { most } else { most.max(start) };
                    values[number] = most.into();
                });
                values
            })
            .collect()
    }

    fn chart(&self, area: &Area<'_>, chart: &Chart) -> DrawResult {
        let times = || self.times.iter().map(|time| time / self.unit.length);
        let most = chart.values.iter().flatten().copied().fold(0.0, f64::max);
        let end = self.job.end / self.unit.length;
        let mut context = ChartBuilder::on(area)
            .margin(10)
            .caption(&chart.title, style(16, INK))
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..end, 0.0..if most > 0.0 { most * 1.08 } else { 1.0 })?;
        context
            .configure_mesh()
            .disable_x_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(FRAME.mix(0.5))
            .axis_style(FRAME)
            .x_labels(6)
            .y_labels(5)
            .x_label_formatter(&|time| short(*time))
            .y_label_formatter(&|value| short(*value))
            .label_style(style(12, GREY))
            .axis_desc_style(style(13, INK))
            .x_desc(&self.unit.axis)
            .y_desc(&chart.axis)
            .draw()?;
        if self.few() {
            for (values, colour) in chart.values.iter().zip(RANKS) {
                let points = times().zip(values.iter().copied());
                context.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
            }
            return Ok(());
        }
        let quantile = quantiles(&chart.values);
        for ((low, high), opacity) in [((0.0, 1.0), 0.15), ((0.1, 0.9), 0.4)] {
            let upper = times().zip(quantile(high));
            let lower: Vec<_> = times().zip(quantile(low)).collect();
            let outline = upper.chain(lower.into_iter().rev()).collect::<Vec<_>>();
            context.draw_series([Polygon::new(outline, RANKS[0].mix(opacity))])?;
        }
        let middle = times().zip(quantile(0.5));
        context.draw_series(LineSeries::new(middle, RANKS[0].stroke_width(2)))?;
        Ok(())
    }
}

/// Returns a function from a fraction to a curve. At each time, the curve has the smallest value
/// that at least this fraction of the ranks does not exceed.
fn quantiles(values: &[Vec<f64>]) -> impl Fn(f64) -> Vec<f64> {
    let times = values.first().map_or(0, Vec::len);
    let sorted: Vec<Vec<f64>> = (0..times)
        .map(|time| {
            let mut at: Vec<_> = values.iter().map(|values| values[time]).collect();
            at.sort_unstable_by(f64::total_cmp);
            at
        })
        .collect();
    move |part| {
        let pick = |values: &Vec<f64>| values[((values.len() - 1) as f64 * part).round() as usize];
        sorted.iter().map(pick).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_over_ranks_at_each_time() {
        let values: Vec<Vec<f64>> = (0..11).map(|rank| vec![f64::from(rank), 5.0]).collect();
        let quantile = quantiles(&values);
        assert_eq!(quantile(0.0), [0.0, 5.0]);
        assert_eq!(quantile(0.5), [5.0, 5.0]);
        assert_eq!(quantile(0.9), [9.0, 5.0]);
        assert_eq!(quantile(1.0), [10.0, 5.0]);
    }
}
