//! Comparison of counts with their budgets.

use std::fmt;

use super::table::{Count, Table};

/// The tolerance above and below a budget, in per cent.
const TOLERANCE: f64 = 2.0;
/// The tolerance if the tools differ from those with which the budgets were counted, in per cent.
/// It is larger because other compilers yield other counts.
const OTHER_TOOLS: f64 = 10.0;

/// All counts beside their budgets.
#[derive(Debug)]
pub(super) struct Judged {
    rows: Vec<Row>,
    /// Tools whose versions differ from those of the budgets.
    differences: Vec<String>,
    tolerance: f64,
}

#[derive(Debug)]
struct Row {
    name: String,
    budget: Option<f64>,
    now: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Within,
    Above,
    Below,
    NoBudget,
    NotCounted,
}

impl Row {
    /// Returns the change from the budget, in per cent; `None` if the budget or the count is
    /// missing.
    fn change(&self) -> Option<f64> {
        let (budget, now) = (self.budget?, self.now?);
        match now == budget {
            true => Some(0.0),
            false => Some((now - budget) * 100.0 / budget),
        }
    }

    fn verdict(&self, tolerance: f64) -> Verdict {
        match self.change() {
            None if self.now.is_none() => Verdict::NotCounted,
            None => Verdict::NoBudget,
            Some(change) if change > tolerance => Verdict::Above,
            Some(change) if change < -tolerance => Verdict::Below,
            Some(_) => Verdict::Within,
        }
    }
}

impl Judged {
    pub(super) fn new(budgets: &Table, now: &Table) -> Self {
        let of = |table: &Table, name: &str| {
            let found = table.counts.iter().find(|count| count.name == name);
            found.map(|count| count.instructions)
        };
        let gone = |count: &&Count| of(now, &count.name).is_none();
        let all = now.counts.iter().chain(budgets.counts.iter().filter(gone));
        let differences = now.tools.differences(&budgets.tools);
        Self {
            rows: all
                .map(|Count { name, .. }| Row {
                    name: name.clone(),
                    budget: of(budgets, name),
                    now: of(now, name),
                })
                .collect(),
            tolerance: match differences.is_empty() {
                true => TOLERANCE,
                false => OTHER_TOOLS,
            },
            differences,
        }
    }

    fn count(&self, verdict: Verdict) -> usize {
        let verdicts = self.rows.iter().map(|row| row.verdict(self.tolerance));
        verdicts.filter(|found| *found == verdict).count()
    }

    /// Returns whether every operation has a budget and a count, and no count is above its budget.
    pub(super) fn is_good(&self) -> bool {
        [Verdict::Above, Verdict::NoBudget, Verdict::NotCounted]
            .iter()
            .all(|verdict| self.count(*verdict) == 0)
    }
}

impl fmt::Display for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rows, tolerance, ..
        } = self;
        let number = |number: Option<f64>| number.map_or("-".to_owned(), |it| format!("{it:.2}"));
        writeln!(
            f,
            "{:<36}{:>10}{:>10}{:>9}",
            "operation", "budget", "now", "change"
        )?;
        for row in rows {
            let change = row
                .change()
                .map_or("-".to_owned(), |it| format!("{it:+.1} %"));
            let (budget, now) = (number(row.budget), number(row.now));
            let note = match row.verdict(*tolerance) {
                Verdict::Within => "",
                Verdict::Above => "  above its budget",
                Verdict::Below => "  cheaper: lower the budget",
                Verdict::NoBudget => "  has no budget",
                Verdict::NotCounted => "  was not counted",
            };
            writeln!(f, "{:<36}{budget:>10}{now:>10}{change:>9}{note}", row.name)?;
        }
        for difference in &self.differences {
            writeln!(f, "warning: {difference}")?;
        }
        if !self.differences.is_empty() {
            writeln!(
                f,
                "The budgets were counted with other tools, so the tolerance is {tolerance} %."
            )?;
        }
        let (above, below) = (self.count(Verdict::Above), self.count(Verdict::Below));
        if above > 0 {
            writeln!(
                f,
                "{above} above the budget by more than {tolerance} %. If a change is worth the cost, raise the budget in a separate commit \
                 that states the reason: cargo xtask budgets --write"
            )?;
        }
        if self.count(Verdict::NoBudget) + self.count(Verdict::NotCounted) > 0 {
            writeln!(
                f,
                "Budgets and counts must name the same operations: cargo xtask budgets --write"
            )?;
        }
        if below > 0 {
            writeln!(
                f,
                "{below} below the budget by more than {tolerance} %: lower the budget with cargo xtask budgets --write"
            )?;
        }
        match self.is_good() {
            true => write!(f, "{} operations are within their budgets", rows.len()),
            false => write!(f, "the budgets are exceeded or incomplete"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(rustc: &str, counts: &[(&str, f64)]) -> Table {
        let lines = counts
            .iter()
            .map(|(name, count)| format!("{name}\t{count}\n"));
        let text = format!("rustc\t{rustc}\n\n{}", lines.collect::<String>());
        text.parse().unwrap()
    }

    fn verdict(budget: f64, now: f64, rustc: &str) -> Verdict {
        let judged = Judged::new(
            &table("1.95", &[("put", budget)]),
            &table(rustc, &[("put", now)]),
        );
        judged.rows[0].verdict(judged.tolerance)
    }

    #[test]
    fn two_percent_more_are_within_the_budget() {
        assert_eq!(verdict(100.0, 102.0, "1.95"), Verdict::Within);
        assert_eq!(verdict(100.0, 102.1, "1.95"), Verdict::Above);
        assert_eq!(verdict(100.0, 97.9, "1.95"), Verdict::Below);
        assert_eq!(verdict(0.0, 0.0, "1.95"), Verdict::Within);
        assert_eq!(verdict(0.0, 1.0, "1.95"), Verdict::Above);
    }

    #[test]
    fn one_more_instruction_of_a_put_is_above_the_budget() {
        assert_eq!(verdict(35.0, 36.0, "1.95"), Verdict::Above);
    }

    #[test]
    fn ten_percent_more_are_within_the_budget_of_another_compiler() {
        assert_eq!(verdict(100.0, 110.0, "1.96"), Verdict::Within);
        assert_eq!(verdict(100.0, 111.0, "1.96"), Verdict::Above);
    }

    #[test]
    fn every_operation_has_a_budget_and_is_counted() {
        let budgets = table("1", &[("put", 1.0), ("get", 1.0)]);
        let judged = Judged::new(&budgets, &budgets);
        assert!(judged.is_good(), "{judged}");
        for counts in [
            &[("put", 1.0)][..],
            &[("put", 1.0), ("get", 1.0), ("add", 1.0)],
        ] {
            let judged = Judged::new(&budgets, &table("1", counts));
            assert!(!judged.is_good(), "{judged}");
        }
    }

    #[test]
    fn a_cheaper_operation_is_good_and_said() {
        let (before, after) = (table("1", &[("put", 10.0)]), table("1", &[("put", 5.0)]));
        let judged = Judged::new(&before, &after);
        assert!(judged.is_good());
        assert!(judged.to_string().contains("lower the budget"), "{judged}");
    }
}
