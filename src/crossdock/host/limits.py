"""Every number of a host instance that may be tuned: one frozen value, passed in."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HostLimits:
    """The defaults are meant for production; `dataclasses.replace` changes some of them."""

    # Claiming
    claim_size: int = 500  # references in one claim
    in_hand: int = 2_000  # references that are claimed and not settled; the next three come on top
    urgent_in_hand: int = 200  # for messages that running instances wait for
    apart_in_hand: int = 2_000  # for slow, limited and batched services together; each may hold its least in any case
    ordered_in_hand: int = 2_000  # for ordered services together
    pause_seconds: float = 0.02  # between two claims where the first found little: deliveries need the processor

    # Upkeep
    upkeep_seconds: float = 1.0  # between two reports of the state, and between two looks for what is due
    reconnect_seconds: float = 0.5  # between two attempts while PostgreSQL is away
    say_again_seconds: float = 60.0  # between two reports of the same refusal of the MessageBox
    claims_check_seconds: float = 10.0  # between two searches for claims that no living instance holds
    requeue_rounds: int = 20  # of one upkeep; what is still due then waits for the next upkeep
    newcomer_upkeeps: int = 3  # a new instance gets its share of limits after so many upkeeps

    # Workers
    workers: int = 8  # threads that deliver; those that wait for a slow service do not count
    quick_workers: int = 8  # of these, while all services are quick: more would only compete for the processor
    most_workers: int = 1_024  # threads in all
    workers_for_quick: int = 64  # of these, kept from slow services

    # Slices
    slice_seconds: float = 0.005  # the work in one slice
    slice_size: int = 500  # references in one slice
    longest_slice_seconds: float = 0.05  # after so long the rest of a slice goes back to its backlog
    first_pace: float = 0.0005  # seconds for one delivery, as long as nothing is known about the service

    # Backlogs
    deliveries_at_once: int = 8  # of a service that does not say how many it takes
    unlimited_at_once: int = 256  # of all slow services that do not say, before each of them gets fewer
    most_held: int = 3_000  # references in one backlog
    least_held: int = 2  # references in one backlog, for each delivery at once
    least_held_batched: int = 64  # the same where the service takes batches
    refill_fraction: float = 0.25  # a backlog is refilled when so much of its room is free
    slower_weight: float = 0.25  # of the last slice in the learned pace, if it was slower
    quicker_weight: float = 0.5  # if it was quicker

    # What is slow
    busy_pace: float = 0.0005  # slower than this per delivery: all workers are of use
    waiting_pace: float = 0.01  # slower than this: its workers mostly wait, and others can work meanwhile
    slow_pace: float = 0.05  # slower than this: the service has room of its own in memory
    slow_seconds: float = 0.1  # a slice that takes longer than this hangs, and does not keep its rest
    stalled_seconds: float = 0.5  # a backlog where nothing has ended for so long holds only its least

    # Ordered services
    ordered_seconds: float = 0.5  # the work in one claim of an ordered service
    ordered_first: int = 10  # references in its first claim
    ordered_least: int = 4  # references in a claim where there is no room
    ordered_most: int = 100  # references in a claim
    ordered_waiting: int = 8  # ordered services that are claimed and wait for a worker

    # Quarantine
    deaths_before_alone: int = 2  # the first of an instance that had it in hand, the second while it was delivered
    deaths_alone: int = 2  # of processes that delivered nothing else from quarantine; then the message is suspended
    quarantine_seconds: float = 5.0  # a delivery that takes longer hardly ends the process: the others wait no longer

    # Settling and publishing
    settled_together: int = 2_000  # references whose outcomes are recorded together: each time waits for the disk
    published_together: int = 200  # publications in one transaction
    published_bytes: int = 16 * 1024 * 1024  # in one transaction
    published_messages: int = 20_000  # in one transaction, if it is not all of one body
    unpublished_bytes: int = 128 * 1024 * 1024  # held for the transactions to come, before partners have to wait


DEFAULT_LIMITS = HostLimits()
