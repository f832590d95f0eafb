//! Tests of the handler table against GASNet's rules.

use std::collections::BTreeMap;

use am::handlers::{Accepts, CallError, Entry, RegisterError, Registration, Table};
use am::{Category, Flags, Header, MAX_ARGS, Role};
use proptest::prelude::*;

/// Registers `ids` in `reference`. If this fails, `reference` and `ids` are unchanged.
fn register(reference: &mut BTreeMap<u8, usize>, ids: &mut [u8], first: usize) -> Result<(), ()> {
    let (mut table, mut list) = (reference.clone(), ids.to_vec());
    for (place, &id) in ids.iter().enumerate().filter(|&(_, &id)| id != 0) {
        if id < 128 || table.insert(id, first + place).is_some() {
            return Err(());
        }
    }
    for (place, id) in list.iter_mut().enumerate().filter(|(_, id)| **id == 0) {
        *id = (128..=255)
            .rev()
            .find(|id| !table.contains_key(id))
            .ok_or(())?;
        table.insert(*id, first + place);
    }
    *reference = table;
    ids.copy_from_slice(&list);
    Ok(())
}

proptest! {
    #[test]
    fn handlers_get_the_ids_that_the_rules_give_them(
        calls in prop::collection::vec(
            prop::collection::vec(prop_oneof![4 => Just(0u8), 4 => 128u8..=255, 1 => 1u8..=127], 0..40),
            1..8,
        ),
        // If true, wrong ids are removed, so that many calls succeed.
        clean: bool,
    ) {
        let mut table = Table::new();
        let mut reference = BTreeMap::new();
        let mut handlers = 0;
        for mut ids in calls {
            if clean {
                ids.sort_unstable();
                ids.dedup_by(|a, b| a == b && *a != 0);
                ids.retain(|&id| id == 0 || id >= 128 && !reference.contains_key(&id));
            }
            let mut list: Vec<_> =
                ids.iter().enumerate().map(|(place, &id)| Registration::new(id, handlers + place)).collect();
            let before = list.clone();
            let expected = register(&mut reference, &mut ids, handlers);
            handlers += list.len();
            match table.register(&mut list) {
                Ok(()) => {
                    prop_assert_eq!(expected, Ok(()));
                    prop_assert_eq!(list.iter().map(|registration| registration.id).collect::<Vec<_>>(), ids);
                }
                Err(_) => {
                    prop_assert_eq!(expected, Err(()));
                    prop_assert_eq!(list, before);
                }
            }
            for id in 0..=255 {
                prop_assert_eq!(table.get(id).map(|entry| entry.handler), reference.get(&id).copied());
            }
        }
    }
}

#[test]
fn fixed_ids_go_first_wherever_they_stand() {
    let mut table = Table::new();
    let mut list = [0, 255, 0, 253].map(|id| Registration::new(id, ()));
    table.register(&mut list).unwrap();
    assert_eq!(
        list.map(|registration| registration.id),
        [254, 255, 252, 253]
    );
}

#[test]
fn the_whole_client_range_can_be_assigned_and_no_more() {
    let mut table = Table::new();
    let mut list = vec![Registration::new(0, ()); 129];
    assert_eq!(
        table.register(&mut list),
        Err(RegisterError::Full {
            wanted: 129,
            free: 128
        })
    );
    table.register(&mut list[..128]).unwrap();
    assert_eq!((list[0].id, list[127].id), (255, 128));
    assert_eq!(
        table.register(&mut list[128..]),
        Err(RegisterError::Full { wanted: 1, free: 0 })
    );
}

#[test]
fn the_reserved_range_is_the_librarys() {
    let mut table = Table::new();
    table
        .register_reserved(&[Registration::new(1, 'a'), Registration::new(127, 'b')])
        .unwrap();
    assert_eq!(
        (
            table.get(1).unwrap().handler,
            table.get(127).unwrap().handler
        ),
        ('a', 'b')
    );
    for id in [0, 128, 255] {
        let error =
            table.register_reserved(&[Registration::new(2, 'c'), Registration::new(id, 'd')]);
        assert_eq!(
            error,
            Err(RegisterError::OutOfRange {
                index: 1,
                id,
                first: 1,
                last: 127
            })
        );
    }
    assert!(table.get(2).is_none());
    let duplicate = table.register_reserved(&[Registration::new(127, 'e')]);
    assert_eq!(
        duplicate,
        Err(RegisterError::Duplicate { index: 0, id: 127 })
    );
    let error = table
        .register(&mut [Registration::new(127, 'f')])
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "handler id 127 (entry 0 of the list) is not in 128..=255"
    );
}

#[test]
fn a_handler_is_called_only_as_registered() {
    let accepts = Accepts::MEDIUM | Accepts::LONG | Accepts::REQUEST;
    let entry = Entry {
        handler: (),
        accepts,
        nargs: Some(2),
        name: Some("add"),
    };
    for category in [Category::Short, Category::Medium, Category::Long] {
        for role in [Role::Request, Role::Reply] {
            let flags = Flags::of(category, role);
            let call = |nargs| {
                entry.check(&Header {
                    flags,
                    handler: 200,
                    nargs,
                    credit: 0,
                    chunk: 0,
                    arg0: 0,
                    lid: 0,
                })
            };
            let accepted = category != Category::Short && role == Role::Request;
            assert_eq!(accepts.contains(Accepts::needed(category, role)), accepted);
            assert_eq!(call(2).is_ok(), accepted);
            assert!(call(3).is_err());
        }
    }
    let flags = Flags::SHORT | Flags::REQUEST;
    let header = Header {
        flags,
        handler: 200,
        nargs: 2,
        credit: 0,
        chunk: 0,
        arg0: 0,
        lid: 0,
    };
    assert_eq!(
        entry.check(&header).unwrap_err().to_string(),
        "handler 200 (add) does not take short request messages"
    );
    let args = Entry {
        nargs: Some(1),
        ..Entry::new(())
    }
    .check(&header)
    .unwrap_err();
    assert_eq!(
        args,
        CallError::Args {
            handler: 200,
            name: None,
            found: 2,
            expected: 1
        }
    );
    assert_eq!(
        args.to_string(),
        "handler 200 (unnamed) was called with 2 arguments; it takes 1"
    );
}

#[test]
fn a_handler_cannot_want_more_arguments_than_there_are() {
    let most = MAX_ARGS as u8;
    let entry = |nargs| Entry {
        nargs: Some(nargs),
        ..Entry::new(())
    };
    let mut table = Table::new();
    assert!(
        table
            .register(&mut [Registration {
                id: 128,
                entry: entry(most)
            }])
            .is_ok()
    );
    let error = table.register(&mut [Registration {
        id: 0,
        entry: entry(most + 1),
    }]);
    assert_eq!(
        error,
        Err(RegisterError::TooManyArgs {
            index: 0,
            nargs: most + 1
        })
    );
}
