//! A picture of one rank, which shows its traffic with peers by round, and the peers with lanes.

use std::collections::BTreeMap;
use std::error::Error;

use plotters::prelude::*;

use crate::run::Moment;

/// The width in pixels.
const WIDTH: u32 = 1400;
/// The height of the frame in pixels.
const FRAME: u32 = 110;
/// The height per peer in pixels.
const ROW: u32 = 16;
/// The maximum number of peers shown. Peers that had lanes come first, followed by those with the
/// most traffic.
const MOST_PEERS: usize = 40;
/// The number of samples in a round that is drawn in full black.
const DARK: f64 = 6.0;

const LANE: RGBColor = RGBColor(0xD9, 0x5F, 0x02);

/// Draws [watched](crate::watch) rounds as SVG. Each row is a peer and each column a round. The
/// grey cell shows the peer's traffic in the round, and a coloured line below it shows that the
/// peer has a lane.
///
/// # Errors
/// Returns the error of the drawing library.
pub fn svg(title: &str, moments: &[Moment]) -> Result<String, Box<dyn Error>> {
    let mut svg = String::new();
    draw(&mut svg, title, moments)?;
    Ok(svg)
}

/// Returns the peers in the order of their first lane, then by traffic.
fn peers(moments: &[Moment]) -> Vec<u32> {
    let mut peers: Vec<u32> = Vec::new();
    let mut traffic: BTreeMap<u32, u32> = BTreeMap::new();
    for moment in moments {
        for &peer in &moment.lanes {
            if !peers.contains(&peer) {
                peers.push(peer);
            }
        }
        for (&peer, samples) in &moment.traffic {
            *traffic.entry(peer).or_default() += samples;
        }
    }
    let mut others: Vec<_> = traffic
        .into_iter()
        .filter(|(peer, _)| !peers.contains(peer))
        .collect();
    others.sort_by_key(|&(peer, samples)| (std::cmp::Reverse(samples), peer));
    peers.extend(others.into_iter().map(|(peer, _)| peer));
    peers.truncate(MOST_PEERS);
    peers
}

fn draw(svg: &mut String, title: &str, moments: &[Moment]) -> Result<(), Box<dyn Error>> {
    let peers = peers(moments);
    let size = (WIDTH, FRAME + ROW * peers.len() as u32);
    let area = SVGBackend::with_string(svg, size).into_drawing_area();
    area.fill(&WHITE)?;
    let rows = peers.len() as f64;
    let mut chart = ChartBuilder::on(&area)
        .caption(title, ("sans-serif", 18))
        .margin(12)
        .x_label_area_size(40)
        .y_label_area_size(90)
        .build_cartesian_2d(0.0..moments.len() as f64, rows..0.0)?;
    let name = |row: &f64| match peers.get(*row as usize) {
        Some(peer) if row.fract() < 0.01 => format!("rank {peer}"),
        _ => String::new(),
    };
    chart
        .configure_mesh()
        .disable_mesh()
        .x_desc("rounds")
        .x_label_formatter(&|round| format!("{round:.0}"))
        .y_labels(peers.len() + 1)
        .y_label_formatter(&name)
        .draw()?;
    for (round, moment) in moments.iter().enumerate() {
        let left = round as f64;
        for (row, peer) in peers.iter().enumerate() {
            let top = row as f64;
            let samples = moment.traffic.get(peer).copied().unwrap_or(0);
            if samples > 0 {
                let dark = (f64::from(samples) / DARK).min(1.0);
                let cell = Rectangle::new(
                    [(left, top + 0.1), (left + 1.0, top + 0.7)],
                    BLACK.mix(dark).filled(),
                );
                chart.draw_series([cell])?;
            }
            if moment.lanes.contains(peer) {
                let line = Rectangle::new(
                    [(left, top + 0.72), (left + 1.0, top + 0.95)],
                    LANE.filled(),
                );
                chart.draw_series([line])?;
            }
        }
    }
    area.present()?;
    Ok(())
}
