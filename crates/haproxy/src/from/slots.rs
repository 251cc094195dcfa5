//! Members in numbered slots: who is there stays where it is, so that nothing is told to HAProxy of it.

use std::{cmp::Reverse, collections::BTreeMap, net::SocketAddr};

use crate::{
    document::{Slot, SlotMember},
    words::Label,
};

/// Slots are made four at a time.
const AT_A_TIME: usize = 4;

/// `in_order`: which slot is first means something, so members are in theirs.
pub(super) fn slots(members: Vec<SlotMember>, before: &[Slot], in_order: bool) -> Vec<Slot> {
    let count = match before.len() >= members.len() {
        true => before.len(),
        // Room for half as many more, so that the next rollout finds some.
        false => (members.len() + members.len() / 2).max(1).next_multiple_of(AT_A_TIME),
    };
    let mut slots: Vec<Slot> = (1..=count.max(AT_A_TIME)).map(free).collect();
    if in_order {
        for (slot, member) in slots.iter_mut().zip(members) {
            slot.member = Some(member);
        }
        return slots;
    }
    let places: BTreeMap<SocketAddr, usize> = (before.iter().enumerate())
        .filter_map(|(place, slot)| Some((slot.member.as_ref()?.at, place)))
        .collect();
    let (staying, fresh): (Vec<_>, Vec<_>) = members.into_iter().partition(|it| places.contains_key(&it.at));
    for member in staying {
        if let Some(slot) = places.get(&member.at).and_then(|place| slots.get_mut(*place)) {
            slot.member = Some(member);
        }
    }
    // A slot whose member just left may still have connections: it is taken last.
    let was_free = |place: usize| before.get(place).is_none_or(|slot| slot.member.is_none());
    let mut rooms: Vec<usize> =
        slots.iter().enumerate().filter(|(_, slot)| slot.member.is_none()).map(|(place, _)| place).collect();
    rooms.sort_by_key(|place| (Reverse(was_free(*place)), *place));
    for (place, member) in rooms.into_iter().zip(fresh) {
        if let Some(slot) = slots.get_mut(place) {
            slot.member = Some(member);
        }
    }
    slots
}

fn free(number: usize) -> Slot {
    Slot { name: Label::of(&format!("s{number}")), member: None }
}

/// Weights as HAProxy has them, up to 256: larger ones in proportion, and none becomes 0.
pub(super) fn weight(of: u32, largest: u32) -> u16 {
    let scaled = match largest {
        0..=256 => u64::from(of),
        _ => (u64::from(of) * 256 / u64::from(largest)).max(u64::from(of > 0)),
    };
    u16::try_from(scaled).unwrap_or(256)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::SlotState;

    fn members(ports: &[u16]) -> Vec<SlotMember> {
        let member = |port: &u16| SlotMember {
            at: SocketAddr::from(([10, 0, 0, 1], *port)),
            weight: 1,
            state: SlotState::Ready,
            backup: false,
            tls_name: None,
        };
        ports.iter().map(member).collect()
    }

    fn ports(slots: &[Slot]) -> Vec<u16> {
        slots.iter().map(|slot| slot.member.as_ref().map_or(0, |it| it.at.port())).collect()
    }

    #[test]
    fn who_stays_keeps_its_slot_and_one_that_was_just_left_is_taken_last() {
        let first = slots(members(&[1, 2, 3]), &[], false);
        assert_eq!(ports(&first), [1, 2, 3, 0]);
        let second = slots(members(&[2, 3, 4]), &first, false);
        assert_eq!(ports(&second), [0, 2, 3, 4]);
        let third = slots(members(&[2, 3, 4, 5, 6]), &second, false);
        assert_eq!(ports(&third), [5, 2, 3, 4, 6, 0, 0, 0]);
        assert_eq!(ports(&slots(members(&[6]), &third, true)), [6, 0, 0, 0, 0, 0, 0, 0]);
    }

    #[test]
    fn weights_keep_their_proportion() {
        assert_eq!([0, 1, 256].map(|it| weight(it, 256)), [0, 1, 256]);
        assert_eq!([0, 1, 500, 1000].map(|it| weight(it, 1000)), [0, 1, 128, 256]);
        assert_eq!(weight(u32::MAX, u32::MAX), 256);
    }
}
