//! Placement, against a naive scan.

use std::collections::{BTreeMap, BTreeSet};

use bursar_budget::placement::{Gang, Host, Hosts, Seat};
use bursar_budget::{Place, Selector};
use bursar_units::ObjectName;
use proptest::prelude::*;

use crate::world::{label, selector};

fn host(number: usize, domain: u8, free: &BTreeSet<u32>) -> Host {
    Host {
        name: ObjectName::new(&format!("n{number}")).unwrap(),
        place: Place {
            region: label("us"),
            cluster: label("west"),
            domain: label(&format!("d{domain}")),
        },
        flavor: label("h100"),
        free: free.clone(),
    }
}

/// The rule, written as loops over all nodes.
fn naive(hosts: &[Host], gang: &Gang) -> Option<(Vec<Place>, Vec<Seat>, Vec<Seat>)> {
    let mut hosts = hosts.to_vec();
    hosts.retain(|host| gang.location.matches(&host.place));
    hosts.sort_by(|one, other| one.name.cmp(&other.name));
    let pod = usize::try_from(gang.pod_gpus).unwrap();
    let mut places: Vec<Option<Place>> = vec![None; gang.groups.len()];
    let mut seats: Vec<Vec<(ObjectName, Vec<u32>)>> = vec![Vec::new(); gang.groups.len()];
    let mut left: BTreeSet<usize> = (0..gang.groups.len()).collect();
    while !left.is_empty() {
        let mut group = *left.first().unwrap();
        for other in &left {
            if gang.groups[group] < gang.groups[*other] {
                group = *other;
            }
        }
        left.remove(&group);
        let mut best: Option<(usize, String, Place)> = None;
        let domains: BTreeSet<Place> = hosts.iter().map(|host| host.place.clone()).collect();
        for domain in domains {
            let inside = hosts.iter().filter(|host| host.place == domain);
            let pods: usize = inside.clone().map(|host| host.free.len() / pod).sum();
            let free: usize = inside.map(|host| host.free.len()).sum();
            let key = (free, domain.to_string(), domain.clone());
            if gang.groups[group] <= pods as u64 && best.as_ref().is_none_or(|b| key < *b) {
                best = Some(key);
            }
        }
        let (.., place) = best?;
        for _ in 0..gang.groups[group] {
            seats[group].push(seat(&mut hosts, &place, pod)?);
        }
        places[group] = Some(place);
    }
    let places: Vec<Place> = places.into_iter().map(Option::unwrap).collect();
    let mut number = 0..;
    let mut numbered = |group: usize, (node, ordinals)| Seat {
        group: group as u64,
        pod: number.next().unwrap(),
        node,
        ordinals,
    };
    let mut pods = Vec::new();
    for (group, seats) in seats.into_iter().enumerate() {
        pods.extend(seats.into_iter().map(|seat| numbered(group, seat)));
    }
    let mut spares = Vec::new();
    for (group, place) in places.iter().enumerate() {
        for _ in 0..gang.spares_per_group {
            spares.extend(seat(&mut hosts, place, pod).map(|seat| numbered(group, seat)));
        }
    }
    Some((places, pods, spares))
}

fn seat(hosts: &mut [Host], place: &Place, pod: usize) -> Option<(ObjectName, Vec<u32>)> {
    let fits = |host: &&mut Host| host.place == *place && pod <= host.free.len();
    let tightest = hosts
        .iter_mut()
        .filter(fits)
        .min_by_key(|host| host.free.len())?;
    let ordinals: Vec<u32> = tightest.free.iter().copied().take(pod).collect();
    tightest.free.retain(|ordinal| !ordinals.contains(ordinal));
    Some((tightest.name.clone(), ordinals))
}

proptest! {
    #[test]
    fn seats_are_those_of_a_naive_scan(
        nodes in prop::collection::vec((0_u8..4, prop::collection::btree_set(0_u32..8, 0..9)), 0..14),
        pod_gpus in 1_u64..5,
        groups in prop::collection::vec(1_u64..5, 1..4),
        spares_per_group in 0_u64..3,
        restricted in any::<bool>(),
    ) {
        let location = if restricted { selector("us/west/d1") } else { Selector::default() };
        let gang = Gang { flavor: label("h100"), location, pod_gpus, groups, spares_per_group };
        let list: Vec<Host> = nodes.iter().enumerate().map(|(n, (d, free))| host(n, *d, free)).collect();
        let mut hosts = Hosts::default();
        for host in &list {
            hosts.set(host.clone());
        }
        let seating = hosts.place(&gang);
        let expected = naive(&list, &gang);
        prop_assert_eq!(seating.clone().map(|s| (s.groups, s.pods, s.spares)), expected);
        // GPUs that are taken and given back leave the same index.
        if let Some(seating) = seating {
            let before: Vec<Host> = hosts.iter().cloned().collect();
            let free: BTreeMap<Place, u64> = hosts.free(&gang.flavor).map(|(p, n)| (p.clone(), n)).collect();
            for seat in &seating.pods {
                hosts.take(&seat.node, &seat.ordinals);
            }
            let again = hosts.place(&gang);
            let taken: Vec<Host> = hosts.iter().cloned().collect();
            prop_assert_eq!(again.map(|s| (s.groups, s.pods, s.spares)), naive(&taken, &gang));
            for seat in &seating.pods {
                hosts.give(&seat.node, &seat.ordinals);
            }
            prop_assert_eq!(hosts.iter().cloned().collect::<Vec<_>>(), before);
            prop_assert_eq!(hosts.free(&gang.flavor).map(|(p, n)| (p.clone(), n)).collect::<BTreeMap<_, _>>(), free);
        }
    }
}
