//! The properties of states: some must hold in every state, others in at least one.

use credits::CreditByte;
use stateright::Property;

use crate::state::Broken;
use crate::{Content, Flow, Model, State};

/// Returns the properties that must hold in every state.
pub(crate) fn always<F: Flow>() -> Vec<Property<Model<F>>> {
    vec![
        Property::always(LOANS, loans),
        Property::always(IN_FLIGHT, in_flight),
        Property::always(BANK, bank),
        Property::always(SPACE, space),
        Property::always(BOUNDS, bounds),
        Property::always(ASKED, asked),
        Property::always(REFUSED, |_, state: &State<F>| {
            state.broken != Some(Broken::Refused)
        }),
        Property::always(DEMAND, demand),
        Property::always(ENDS, |_, state: &State<F>| {
            state.broken != Some(Broken::Endless)
        }),
        Property::always(SENT, sent),
    ]
}

/// A loan equals the borrower's send credits plus grants and returns in transit.
pub const LOANS: &str = "loan = send + grants in transit + returns in transit";
/// The number of credits in flight equals the number that requests and replies in transit carry,
/// and is at most the number lent.
pub const IN_FLIGHT: &str = "credits in flight travel in requests and replies";
/// Credits are either lent or banked.
pub const BANK: &str = "bank + loans = total";
/// Requests without a reply fit into the request buffers.
pub const SPACE: &str = "requests fit the space for them";
/// No loan is below the minimum or above the maximum.
pub const BOUNDS: &str = "minimum <= send <= loan <= maximum";
/// At most one system message is in transit between a lender and a borrower.
pub const ASKED: &str = "one revoke or return is in transit where one is awaited";
/// No rank refuses a message from a correct rank.
pub const REFUSED: &str = "no rank refuses a message of another";
/// Credits move only if a request has stalled. This is goal 1 of the scheme.
pub const DEMAND: &str = "nothing moves without a stall";
/// All runs are finite.
pub const ENDS: &str = "every step leads closer to the end";
/// A run ends only when all requests have been sent.
pub const SENT: &str = "all requests were sent where no step is left";

fn pairs<F: Flow>(model: &Model<F>) -> impl Iterator<Item = (u32, u32)> + use<F> {
    let n = model.world.ranks;
    (0..n).flat_map(move |x| (0..n).map(move |y| (x, y)))
}

/// Sums the credits that messages from `from` to `to` carry.
fn carried<F>(state: &State<F>, from: u32, to: u32, credits: impl Fn(Content) -> u32) -> u32 {
    let messages = state
        .under_way
        .iter()
        .filter(|message| message.from == from && message.to == to);
    messages.map(|message| credits(message.content)).sum()
}

fn granted<F: Flow>(model: &Model<F>, content: Content) -> u32 {
    match content {
        Content::Reply(bits) => model
            .world
            .tuning
            .credits(CreditByte::from_bits(bits).extra())
            .into(),
        _ => 0,
    }
}

fn given_back(content: Content) -> u32 {
    match content {
        Content::Return { credits, .. } => credits.into(),
        _ => 0,
    }
}

fn requested(content: Content) -> u32 {
    match content {
        Content::Request(bits) => CreditByte::from_bits(bits).credits().into(),
        _ => 0,
    }
}

fn replied(content: Content) -> u32 {
    match content {
        Content::Reply(bits) => CreditByte::from_bits(bits).credits().into(),
        _ => 0,
    }
}

fn loans<F: Flow>(model: &Model<F>, state: &State<F>) -> bool {
    pairs(model).all(|(x, y)| {
        let loan = u32::from(state.ranks[y as usize].state(x).loan);
        let send = u32::from(state.ranks[x as usize].state(y).send);
        let grants = carried(state, y, x, |content| granted(model, content));
        loan == send + grants + carried(state, x, y, given_back)
    })
}

fn in_flight<F: Flow>(model: &Model<F>, state: &State<F>) -> bool {
    pairs(model).all(|(x, y)| {
        let peer = state.ranks[x as usize].state(y);
        let under_way = carried(state, x, y, requested) + carried(state, y, x, replied);
        u32::from(peer.in_use) == under_way && peer.in_use <= peer.max && peer.max <= peer.send
    })
}

fn bank<F: Flow>(model: &Model<F>, state: &State<F>) -> bool {
    let all = 0..model.world.ranks;
    state.ranks.iter().all(|rank| {
        let loans: u32 = all
            .clone()
            .map(|peer| u32::from(rank.state(peer).loan))
            .sum();
        rank.banked() + loans == model.world.total()
    })
}

fn space<F: Flow>(model: &Model<F>, state: &State<F>) -> bool {
    let all = 0..model.world.ranks;
    all.clone().all(|y| {
        all.clone()
            .map(|x| carried(state, x, y, requested))
            .sum::<u32>()
            <= model.world.total()
    })
}

fn bounds<F: Flow>(model: &Model<F>, state: &State<F>) -> bool {
    let tuning = &model.world.tuning;
    pairs(model).all(|(x, y)| {
        let loan = state.ranks[y as usize].state(x).loan;
        let send = state.ranks[x as usize].state(y).send;
        tuning.minimum <= send && send <= loan && loan <= tuning.max_per_peer
    })
}

fn asked<F: Flow>(model: &Model<F>, state: &State<F>) -> bool {
    pairs(model).all(|(x, y)| {
        let revokes = carried(state, x, y, |content| {
            matches!(content, Content::Revoke { .. }).into()
        });
        let returns = carried(state, y, x, |content| {
            matches!(content, Content::Return { .. }).into()
        });
        revokes + returns == u32::from(state.ranks[x as usize].state(y).asked)
    })
}

fn demand<F: Flow>(model: &Model<F>, state: &State<F>) -> bool {
    let stalls = pairs(model).any(|(x, y)| state.ranks[x as usize].stalls(y) > 0);
    let moved = || {
        let lent = |(x, y): (u32, u32)| state.ranks[x as usize].state(y).loan != model.world.loan;
        let system = |content| matches!(content, Content::Revoke { .. } | Content::Return { .. });
        pairs(model).any(lent)
            || state
                .under_way
                .iter()
                .any(|message| system(message.content))
    };
    !matches!(state.broken, Some(Broken::NoDemand | Broken::NoStall)) && (stalls || !moved())
}

fn sent<F: Flow>(model: &Model<F>, state: &State<F>) -> bool {
    state.steps(&model.world).next().is_some() || state.is_done(&model.world)
}

pub(crate) fn stall<F: Flow>(model: &Model<F>, state: &State<F>) -> bool {
    pairs(model).any(|(x, y)| state.ranks[x as usize].stalls(y) > 0)
}

pub(crate) fn grant<F: Flow>(model: &Model<F>, state: &State<F>) -> bool {
    state
        .under_way
        .iter()
        .any(|message| granted(model, message.content) > 0)
}

pub(crate) fn returned<F: Flow>(_: &Model<F>, state: &State<F>) -> bool {
    state
        .under_way
        .iter()
        .any(|message| given_back(message.content) > 0)
}

pub(crate) fn nothing<F: Flow>(_: &Model<F>, state: &State<F>) -> bool {
    state
        .under_way
        .iter()
        .any(|message| matches!(message.content, Content::Return { credits: 0, .. }))
}

pub(crate) fn epoch<F: Flow>(_: &Model<F>, state: &State<F>) -> bool {
    state.ranks.iter().any(|rank| rank.epochs() > 0)
}

pub(crate) fn crossing<F: Flow>(model: &Model<F>, state: &State<F>) -> bool {
    let revoke = |content| matches!(content, Content::Revoke { .. }).into();
    pairs(model).any(|(x, y)| {
        carried(state, x, y, |content| granted(model, content)) > 0
            && carried(state, x, y, revoke) > 0
    })
}

pub(crate) fn goes_on<F: Flow>(model: &Model<F>, state: &State<F>) -> bool {
    pairs(model).any(|(x, y)| {
        let loan = u64::from(state.ranks[y as usize].state(x).loan);
        let stalls = state.ranks[x as usize].stalls(y);
        loan > u64::from(model.world.loan) << stalls
    })
}
