"""Every error of Crossdock in one tree, each with its code. A code keeps its meaning; `suspended.code` stores it.

CrossdockError                  failed                  the root
├── ApplicationError            application-wrong       the declared application is wrong (exit code 2)
│   ├── FilterError             filter-wrong            a filter cannot be read or does not fit its properties
│   └── PropertyError           property-wrong          a property is declared wrongly, or twice with different types
├── UsageError                  usage-wrong             the command names what does not exist (exit code 2)
│   ├── NotAllowedError         not-allowed             the database user lacks the right to do this
│   └── OutdatedPlanError       plan-outdated           what a plan was made of has changed since
├── UnavailableError            not-available           Java, Spark or PostgreSQL cannot be used here
│   └── HomeInUseError          home-in-use             another process works in this home
├── NoAnswerError               no-answer               nobody can answer a request
├── GivenUpError                answer-given-up         the partner that was to answer a request has failed for good
├── TransientError              not-now                 it may work later: retry
│   ├── OutageError             messagebox-away         PostgreSQL is away, or refuses to write
│   └── StepLostError           step-lost               another host instance has what the step settles
└── TerminalError               delivery-failed         it will not work by itself: suspend
    ├── DocumentError           document-invalid        bytes that are not a message
    │   └── TooManyMessagesError too-many-messages      one body has more messages than a location takes
    ├── PromotionError          value-of-wrong-type     a value does not fit its property
    ├── ContextError            context-too-large       more properties, or more bytes of them, than are kept
    ├── PipelineError           pipeline-failed         a pipeline raised what it should not
    ├── SlowPipelineError       pipeline-too-slow       a pipeline took too long
    ├── StorageError            not-storable            PostgreSQL cannot hold the message
    ├── DeathsError             too-many-deaths         processes ended while they worked on the message
    ├── UnroutedError           no-subscriber           no subscription matches
    │   ├── UnreachableError    port-not-enlisted       the send port that the message names is not enlisted
    │   └── SecondAnswerError   more-than-one-answer    more than one partner would answer the request
    ├── LabelError              label-missing           the host lacks a label of the message
    ├── PartnerError            partner-refused         the partner refused the message
    ├── AttemptsError           attempts-used-up        every attempt failed
    ├── UnexpectedError         unexpected-error        an adapter or a component raised what it should not
    ├── PortStoppedError        port-stopped            the send port is stopped
    ├── PortGoneError           port-gone               the send port is no longer deployed
    ├── UndeployedError         application-undeployed  the application was undeployed, and what waited for it is kept
    ├── MessageGoneError        message-gone            the stored message is missing
    ├── UnreadableError         message-unreadable      the stored context of the message cannot be read
    ├── AnswerError             answer-not-published    what came of a delivery cannot be published
    ├── UnawaitedError          nobody-waits            nobody waits for the response any more
    ├── InstanceEndedError      instance-ended          the running instance ended without taking the message
    └── OrchestrationError      orchestration-failed    the code of an orchestration cannot go on; its authors may catch
        ├── DeliveryFailed      request-failed          the port gave up on a request
        ├── Timeout             time-over               the time of a request or a scope is over
        ├── AtomicError         atomic-failed           an atomic function raised what cannot be raised again
        ├── MisuseError         orchestration-misused   the code asks for what cannot be done
        ├── HistoryError        history-unreadable      a record of what the instance has done cannot be read
        └── Mismatch            history-mismatch        the code does something else than its history says

Some of these are never raised. They say why a message is suspended. `docs/reference/errors.md` says what to do.

Signal                          between our own parts; nobody else sees one, so none has a code
├── ClientGoneError             nobody is there to take the answer to a web request
├── RefusedError                a web request ends here, with this status
├── ProblemError                a request at the console ends here, with this status and code
├── UnusableRowError            a row cannot be received; the others can
├── UnansweredError             a receive adapter has not answered yet; the others are called
├── EpochMovedError             subscriptions or receive locations changed while a batch was published
├── UndoneError                 the code of an orchestration failed after atomic work, which is undone
├── InterruptedDemoError        somebody pressed Ctrl-C in the demo, or its run has ended
└── ForeignError                foreign code raised what is not an Exception
Interruption                    ends foreign code from within; not an Exception, so that the code does not catch it
├── OutOfTimeError              the time of the foreign code is over
├── CancelledError              somebody cancelled the instance of the orchestration
├── ScopeOverError              the time of a scope of the orchestration is over
└── DroppedError                the instance leaves the memory, or a branch has lost: nothing it does counts any more

A message names the artefact, what happened and what to do next, in one sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

_REASON_LIMIT = 4_000


class CrossdockError(Exception):
    """The root of the tree."""

    code: ClassVar[str] = "failed"
    exit_code: ClassVar[int] = 1


class ApplicationError(CrossdockError):
    """The declared application is refused before anything starts."""

    code = "application-wrong"
    exit_code = 2


class FilterError(ApplicationError):
    """A filter is refused. `text` and `position` point at the place, where the filter was written as text.

    `constant` is the number of the constant that is wrong, if it is not the property or the operator.
    """

    code = "filter-wrong"

    def __init__(
        self, reason: str, *, text: str | None = None, position: int | None = None, constant: int | None = None
    ) -> None:
        self.reason = reason
        self.text = text
        self.position = position
        self.constant = constant
        super().__init__(reason)

    def pointed(self) -> str:
        """The filter with a caret under the place that is wrong; empty if there is no place to show."""
        if self.text is None or self.position is None:
            return ""
        before = self.text[: self.position]
        line_start = before.rfind("\n") + 1
        line = self.text[line_start:].split("\n", 1)[0]
        return f"{line}\n{' ' * (self.position - line_start)}^"


class PropertyError(ApplicationError):
    """A property declaration is refused."""

    code = "property-wrong"


class UsageError(CrossdockError):
    """The command cannot mean anything as it was given."""

    code = "usage-wrong"
    exit_code = 2


class NotAllowedError(UsageError):
    """The database user lacks the right to do this. The text names the right, and how it is given."""

    code = "not-allowed"


class OutdatedPlanError(UsageError):
    """The MessageBox, or the application, is not what the plan was made of."""

    code = "plan-outdated"


class UnavailableError(CrossdockError):
    """Something Crossdock stands on is missing or does not work."""

    code = "not-available"


class HomeInUseError(UnavailableError):
    """Another process runs in the same home."""

    code = "home-in-use"


class NoAnswerError(CrossdockError):
    """Nobody can answer the request."""

    code = "no-answer"


class GivenUpError(CrossdockError):
    """The partner that was to answer the request has failed for good."""

    code = "answer-given-up"


class TransientError(CrossdockError):
    """It may work later: retry."""

    code = "not-now"


class OutageError(TransientError):
    """PostgreSQL cannot be reached, or refuses to write. `kind` is what is wrong without the details, which vary."""

    code = "messagebox-away"

    def __init__(self, kind: str, details: str) -> None:
        self.kind = kind
        super().__init__(f"{kind}: {details}")


class StepLostError(TransientError):
    """A reference that the step settles is no longer claimed by its host instance: somebody else has it, or had it."""

    code = "step-lost"


class TerminalError(CrossdockError):
    """It will not work by itself: suspend."""

    code = "delivery-failed"


# On the way in


class DocumentError(TerminalError):
    """These bytes are not a message."""

    code = "document-invalid"


class TooManyMessagesError(DocumentError):
    """One body has more messages than its location takes at once."""

    code = "too-many-messages"


class PromotionError(TerminalError):
    """A value does not fit the property it is promoted to."""

    code = "value-of-wrong-type"


class ContextError(TerminalError):
    """A context is larger than the MessageBox keeps."""

    code = "context-too-large"


class PipelineError(TerminalError):
    """A pipeline raised what it should not."""

    code = "pipeline-failed"


class SlowPipelineError(TerminalError):
    """A pipeline took longer than it may."""

    code = "pipeline-too-slow"


class StorageError(TerminalError):
    """PostgreSQL cannot hold the message."""

    code = "not-storable"


class DeathsError(TerminalError):
    """Processes ended while they worked on the message, so it is not tried again."""

    code = "too-many-deaths"


# Routing


class UnroutedError(TerminalError):
    """No subscription matches. Raised for a publication that is published whole or not at all."""

    code = "no-subscriber"


class UnreachableError(UnroutedError):
    """The send port, or the group, that the message names is not enlisted."""

    code = "port-not-enlisted"


class SecondAnswerError(UnroutedError):
    """More than one partner would answer the request."""

    code = "more-than-one-answer"


class LabelError(TerminalError):
    """The host lacks a label of the message."""

    code = "label-missing"


# On the way out


class PartnerError(TerminalError):
    """The partner refused the message."""

    code = "partner-refused"


class AttemptsError(TerminalError):
    """Every attempt failed, and the send port has no more."""

    code = "attempts-used-up"


class UnexpectedError(TerminalError):
    """An adapter or a component raised what it should not."""

    code = "unexpected-error"


class PortStoppedError(TerminalError):
    """The send port is stopped."""

    code = "port-stopped"


class PortGoneError(TerminalError):
    """The send port is no longer deployed."""

    code = "port-gone"


class UndeployedError(TerminalError):
    """The application was undeployed, and what waited for it is kept. Never raised."""

    code = "application-undeployed"


class MessageGoneError(TerminalError):
    """The message of a reference, or a part of it, is not stored."""

    code = "message-gone"


class UnreadableError(TerminalError):
    """The stored context of a message cannot be read."""

    code = "message-unreadable"


class AnswerError(TerminalError):
    """What came of a delivery, such as the partner's answer, cannot be published."""

    code = "answer-not-published"


class UnawaitedError(TerminalError):
    """Nobody waits for the response any more."""

    code = "nobody-waits"


class InstanceEndedError(TerminalError):
    """The running instance ended without taking the message."""

    code = "instance-ended"


# Orchestrations


class OrchestrationError(TerminalError):
    """The code of an orchestration cannot go on. `line` is the author's line, if one is known."""

    code = "orchestration-failed"

    def __init__(self, reason: str = "", *, line: str = "") -> None:
        self.line = line
        super().__init__(reason)


class DeliveryFailed(OrchestrationError):  # noqa: N818 - the word authors catch
    """The port gave up on a request. Its delivery has ended and cannot be resumed."""

    code = "request-failed"


class Timeout(OrchestrationError):  # noqa: N818 - the word authors catch
    """The time of a request or of a scope is over."""

    code = "time-over"


class AtomicError(OrchestrationError):
    """An atomic function raised an error whose class is not found here, or cannot be made of its arguments."""

    code = "atomic-failed"


class MisuseError(OrchestrationError):
    """The code of an orchestration asks for what cannot be done."""

    code = "orchestration-misused"


class HistoryError(OrchestrationError):
    """A record of the history of an instance cannot be read, or says what cannot have happened."""

    code = "history-unreadable"


class Mismatch(OrchestrationError):  # noqa: N818 - a difference that was found, named by what it is
    """In a replay the code does something else than its history says. Nobody guesses: the instance is suspended."""

    code = "history-mismatch"

    def __init__(self, reason: str, *, step: int, line: str, expected: str, found: str) -> None:
        self.step = step
        self.expected = expected
        self.found = found
        super().__init__(reason, line=line)


# Between our own parts


class Signal(Exception):  # noqa: N818 - it tells one of our parts something; nothing is wrong
    """Never leaves Crossdock."""


class UndoneError(Signal):
    """The code of an orchestration failed after atomic work: the transaction of both is rolled back."""


class ClientGoneError(Signal):
    """Nobody is there to take the answer."""


class RefusedError(Signal):
    """The web request ends here, with this status, reason and headers."""

    def __init__(self, status: int, reason: str, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.reason = reason
        self.headers = headers
        super().__init__(reason)


class ProblemError(Signal):
    """A request at the console ends here, with this status, code and sentence: see `docs/reference/api.md`."""

    def __init__(self, status: int, code: str, detail: str, headers: Mapping[str, str] | None = None) -> None:
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = dict(headers or {})
        super().__init__(detail)


class UnusableRowError(Signal):
    """A row that cannot be received; the others can."""


class UnansweredError(Signal):
    """The call of a receive adapter goes on. `late`: it takes longer than any call should."""

    def __init__(self, seconds: float, *, late: bool) -> None:
        super().__init__(f"it does not answer; the call has taken {seconds:.0f} seconds so far")
        self.late = late


class EpochMovedError(Signal):
    """Subscriptions, or receive locations, changed while a batch was being published: nothing was done."""


class InterruptedDemoError(Signal):
    """Somebody pressed Ctrl-C, or the run has ended for a reason of its own."""


class ForeignError(Signal):
    """What foreign code raised and is not an Exception. The text names its type."""


class Interruption(BaseException):
    """Raised by us inside foreign code, to end it. Not an Exception: the code must not catch it by accident."""


class OutOfTimeError(Interruption):
    """The time is over."""


class CancelledError(Interruption):
    """Somebody cancelled the instance. Raised where its code waits, so that its scopes compensate."""


class ScopeOverError(Interruption):
    """The time of a scope is over. Raised where its code waits; the scope makes a Timeout of it."""


class DroppedError(Interruption):
    """The code is being left where it waits. Whatever it calls now is refused."""


def brief(reason: str) -> str:
    """A reason that may quote anything, cut where it would fill the store and drown whoever reads it."""
    return reason if len(reason) <= _REASON_LIMIT else f"{reason[:_REASON_LIMIT]}..."
