//! Tests of the program's jobs with scarce credits and with different kinds of flow control. The
//! tests check credits and stalls, but no times.

use crate::support::objects;
use serde_json::Value;

/// Returns the figure of the flow control `policy`.
fn of<'a>(figures: &'a [Value], policy: &str) -> &'a Value {
    let found = figures.iter().find(|figure| figure["policy"] == policy);
    found.expect("a figure for each flow control")
}

fn number(figure: &Value, name: &str) -> f64 {
    figure.get(name).and_then(Value::as_f64).expect(name)
}

#[test]
fn scarce_credits_go_to_the_peers_that_send() {
    // Each rank sends 20 mediums, which cost 4 credits each, to one peer at a time. If all credits
    // were distributed evenly, each peer would have 16.
    let (figures, _) = objects(
        "credits --json --rounds=1 --patterns=pairs --ranks=8 --bank=80 --messages=20 --warm=400 --steps=10",
        &[],
    );
    let (shared, moving) = (of(&figures, "static"), of(&figures, "dynamic"));
    let share = number(shared, "active");
    assert_eq!(share, number(shared, "idle"));
    assert!(number(moving, "active") > 2.0 * share, "{moving}");
    assert!(number(moving, "idle") < share, "{moving}");
    let late_stalls = |figure: &Value| figure["stalls"][1].as_f64().expect("stalls");
    assert!(late_stalls(moving) < late_stalls(shared) / 2.0, "{moving}");
    assert_eq!(late_stalls(of(&figures, "unlimited")), 0.0);
}

#[test]
fn flow_control_is_compared_with_none() {
    let (figures, _) = objects(
        "flow-control --json --rounds=2 --floods=2 --messages=500",
        &[],
    );
    for policy in ["unlimited", "static", "dynamic"] {
        let figure = of(&figures, policy);
        assert!(number(figure, "rate") > 0.0, "{figure}");
        let quarters = number(figure, "quarter")..=number(figure, "three_quarters");
        assert!(quarters.contains(&number(figure, "ratio")), "{figure}");
    }
    assert_eq!(number(of(&figures, "unlimited"), "ratio"), 1.0);
    assert_eq!(number(of(&figures, "unlimited"), "stalls"), 0.0);
}
