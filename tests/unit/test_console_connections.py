"""Which connections of a console go where there is no room."""

from __future__ import annotations

from dataclasses import dataclass

from crossdock.api.connections import Connections


@dataclass(eq=False)
class Client:
    address: str = "192.0.2.1"
    is_answered: bool = False
    is_closed: bool = False

    def hang_up(self) -> None:
        self.is_closed = True


def test_the_connection_that_was_silent_for_longest_makes_room() -> None:
    connections = Connections(4)
    clients = [Client(f"192.0.2.{number}", is_answered=number == 0) for number in range(6)]

    taken = [connections.take(client) for client in clients]

    assert taken == [True] * 6
    assert [client.is_closed for client in clients] == [False, True, True, False, False, False]


def test_nobody_whose_request_is_answered_makes_room() -> None:
    connections = Connections(2)
    clients = [Client(f"192.0.2.{number}", is_answered=True) for number in range(2)]

    taken = [connections.take(client) for client in [*clients, Client("192.0.2.9")]]

    assert taken == [True, True, False]


def test_one_client_of_the_network_has_half_of_the_connections() -> None:
    connections = Connections(4)
    clients = [Client(f"2001:db8::{number}", is_answered=True) for number in range(3)]

    assert [connections.take(client) for client in clients] == [True, True, False]
    assert connections.take(Client("2001:db8:1::1"))


def test_addresses_that_many_share_have_all_of_them() -> None:
    for address in ("127.0.0.1", "198.51.100.7"):
        connections = Connections(4, ["198.51.100.7"])

        assert all(connections.take(Client(address, is_answered=True)) for _ in range(4))


def test_a_connection_that_is_closed_leaves_its_room() -> None:
    connections, first = Connections(1), Client(is_answered=True)

    connections.take(first)
    connections.let_go(first)

    assert connections.take(Client("192.0.2.9"))
