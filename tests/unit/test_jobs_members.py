# SPDX-License-Identifier: Apache-2.0
"""Which hosts are together in a job: a host is believed only about itself."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from ri2n_sdn.jobs.declaration import Declaration
from ri2n_sdn.jobs.members import Agreement, agree
from ri2n_sdn.jobs.model import Job, Policy
from tests.unit.job_cases import job


def declared(host: str, of: Job, number: int = 1) -> Declaration:
    return Declaration(host, number, of)


def members(agreement: Agreement) -> dict[str, str]:
    return {name: " ".join(found.hosts) for name, found in agreement.jobs.items()}


def test_hosts_that_name_each_other_are_together() -> None:
    one = job("a", "A B", "exclusive", begin_s=5, end_s=50.0)
    both = agree([declared("B", replace(one, begin_s=4.0, end_s=51.0), 7), declared("A", one)], {})
    assert both.jobs == {"a": replace(one, begin_s=4.0, end_s=51.0)}
    assert both.classes == {"a": {"A": 1, "B": 7}}
    assert both.by_class == {("A", 1): "a", ("B", 7): "a"}
    assert not both.refused and not both.waiting


def test_a_job_waits_for_hosts_that_do_not_declare_it() -> None:
    alone = agree([declared("A", job("a", "A B C D E F G"))], {})
    assert members(alone) == {"a": "A"}
    assert alone.waiting == {
        ("A", "a"): "waits for B, C, D, E and 2 more hosts to declare job a with the same hosts, "
        "user and policy"
    }


def test_no_end_is_later_than_any_end() -> None:
    one = job("a", "A B", end_s=50.0)
    both = agree([declared("A", one), declared("B", replace(one, end_s=None))], {})
    assert both.jobs["a"].end_s is None


def test_a_host_that_is_not_named_or_differs_is_in_a_job_of_its_own() -> None:
    one = job("a", "A B", "exclusive")
    for liar in (
        declared("Z", replace(one, hosts=("A", "B", "Z"))),
        declared("0", replace(one, hosts=("0", "A", "B"))),
    ):
        found = agree([declared("A", one), declared("B", one), liar], {})
        assert members(found) == {"a": "A B", f"a@{liar.host}": liar.host}
        assert found.jobs[f"a@{liar.host}"].id == f"a@{liar.host}"
        assert found.by_class[liar.host, 1] == f"a@{liar.host}"
        assert (liar.host, "a") in found.waiting and ("A", "a") not in found.waiting
    for other in (replace(one, uid=1), replace(one, policy=Policy("isolated"))):
        apart = agree([declared("A", one), declared("B", other)], {})
        assert members(apart) == {"a": "A", "a@B": "B"}


def test_a_host_cannot_take_the_id_of_a_job_that_is_there() -> None:
    one = job("a", "M")
    first = agree([declared("M", one)], {})
    liars = [declared(host, replace(one, hosts=("A", "B"))) for host in ("A", "B")]
    second = agree([declared("M", one), *liars], {}, first)
    assert members(second) == {"a": "M", "a@A": "A B"}
    assert members(agree([declared("M", one), *liars], {}, second)) == {"a": "M", "a@A": "A B"}


def test_a_class_or_an_id_twice_on_a_host_is_refused() -> None:
    one, two = job("a", "A"), job("b", "A")
    found = agree([declared("A", one, 3), declared("A", two, 3), declared("A", one, 4)], {})
    assert members(found) == {"a": "A"}
    assert found.refused == {
        ("A", "b"): "class 3 at A belongs to job a already",
        ("A", "a"): "A declares job a with class 3 already",
    }


def test_orders_decide_over_what_hosts_declare() -> None:
    order = replace(job("o", "A B", "exclusive", "net1"), source="order")
    old = replace(order, policy=Policy("shared"))
    found = agree(
        [
            declared("A", old),
            declared("C", replace(old, hosts=("A", "C"))),
            declared("B", replace(old, uid=1)),
            declared("D", replace(job("o", "D"), source="host")),
            declared("D", replace(job("gone", "D"), source="order"), 2),
        ],
        {"o": order},
    )
    assert found.jobs == {"o": replace(order, hosts=("A",))}
    assert found.waiting["A", "o"].startswith("waits for B to declare job o")
    assert found.refused == {
        ("C", "o"): "order o is not for C",
        ("B", "o"): "order o is for uid 20001 (u_o), not 1",
        ("D", "o"): "job o is an order of the controller; choose another id",
        ("D", "gone"): "the controller has no order gone",
    }


def test_a_job_of_many_hosts_is_agreed_on_with_few_comparisons() -> None:
    """2,048 hosts, half of which disagree: no step is made for each pair of them."""
    hosts = [f"n{number:04}" for number in range(2048)]
    one, other = (job("a", " ".join(some)) for some in (hosts[:1024], hosts[1024:]))
    counted = 0

    class Counted(Declaration):
        """A declaration that counts how often its host is looked at."""

        def __getattribute__(self, name: str) -> object:
            nonlocal counted
            counted += name == "host"
            return super().__getattribute__(name)

    declarations = [Counted(host, 1, one) for host in hosts[:1024]]
    declarations += [Counted(host, 1, other) for host in hosts[1024:]]
    found = agree(declarations, {})
    assert {name: len(each.hosts) for name, each in found.jobs.items()} == {
        "a": 1024,
        "a@n1024": 1024,
    }
    assert counted < 50 * len(hosts)


HOSTS = "ABCD"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(HOSTS),
            st.sampled_from("ab"),
            st.sets(st.sampled_from(HOSTS), min_size=1),
            st.integers(1, 3),
            st.integers(0, 1),
        ),
        max_size=12,
    ),
    st.randoms(use_true_random=False),
)
def test_laws(rows: list[tuple[str, str, set[str], int, int]], random: Random) -> None:
    """Members name each other; a declaration is in one job or refused; no order matters."""
    declarations = [
        declared(host, replace(job(name, " ".join(sorted({host, *hosts}))), uid=uid), number)
        for host, name, hosts, number, uid in rows
    ]
    found = agree(declarations, {})
    by_place = {(each.host, each.number, each.job.id.split("@")[0]): each for each in declarations}
    for name, numbers in found.classes.items():
        plain = name.split("@")[0]
        assert tuple(numbers) == found.jobs[name].hosts and found.jobs[name].id == name
        mine = [
            [
                each
                for each in declarations
                if (each.host, each.number, each.job.id) == (host, number, plain)
            ]
            for host, number in numbers.items()
        ]
        assert all(mine)
        for host in numbers:
            for group in mine:
                assert any(host in each.job.hosts for each in group)
    for host, number, name in by_place:
        assert (host, number) in found.by_class or (host, name) in found.refused
    shuffled = list(declarations)
    random.shuffle(shuffled)
    if len(by_place) == len(declarations):
        assert agree(shuffled, {}) == found
