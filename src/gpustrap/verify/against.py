"""Two certificates of a node: what differs, and what of it is for the worse."""

from __future__ import annotations

from collections.abc import Iterator

from gpustrap.model.certificate import Certificate, Change, Gpu, Hardware
from gpustrap.model.check import Check, Measure, Verdict

BEYOND = 0.05  # of the measure before: what is less is the ordinary spread of one run to the next
MEMORY = 0.02  # of the memory before: firmware and kernel keep more or less of it for themselves
NOT_THERE = "not there"
# A check that is no longer made proves no longer what it did.
BEST_FIRST = (Verdict.PASS, Verdict.WARN, Verdict.SKIP, Verdict.FAIL)

MeasureKey = tuple[str, str, str, str]


def changes(before: Certificate, after: Certificate) -> tuple[Change, ...]:
    """What differs, checks first.

    Args:
        before: The older one.
        after: The newer one, of the same node.
    """
    found = (*_checks(before, after), *_measures(before, after), *_stack(before, after), *_machine(before, after))
    return tuple(found)


def _checks(before: Certificate, after: Certificate) -> Iterator[Change]:
    old, new = ({check.id: check for check in one.checks} for one in (before, after))
    for name in dict.fromkeys((*new, *old)):
        first, second = old.get(name), new.get(name)
        was, now = _verdict(first), _verdict(second)
        if was == now or (before.level != after.level and NOT_THERE in {was, now}):
            continue
        either = second or first
        title = either.title if either else name
        told = f"{now}: {second.reason}" if second and second.reason else now
        yield Change(node=after.node, what="check", subject=title, before=was, after=told, worse=_worse(first, second))


def _verdict(check: Check | None) -> str:
    return check.verdict.value if check else NOT_THERE


def _worse(before: Check | None, after: Check | None) -> bool:
    if before is None:
        return after is not None and after.verdict in {Verdict.FAIL, Verdict.WARN}
    now = after.verdict if after else Verdict.SKIP
    return BEST_FIRST.index(now) > BEST_FIRST.index(before.verdict)


def _measures(before: Certificate, after: Certificate) -> Iterator[Change]:
    old, new = _by_key(before), _by_key(after)
    for key, was in old.items():
        if was.better == "neither":
            continue
        now = new.get(key)
        if now is None and before.level != after.level:
            continue
        difference = 1.0 if now is None else abs(now.value - was.value) / abs(was.value or 1)
        if difference <= BEYOND:
            continue
        yield Change(
            node=after.node,
            what="measure",
            subject=f"{was.name} of {' to '.join(before.called(end) for end in (was.subject, was.peer) if end)}",
            before=f"{was.value:.4g} {was.unit}".strip(),
            after=f"{now.value:.4g} {now.unit}".strip() if now else "not measured",
            worse=now is None or (now.value < was.value) == (was.better == "more"),
        )


def _by_key(certificate: Certificate) -> dict[MeasureKey, Measure]:
    return {(c.id, m.name, m.subject, m.peer): m for c in certificate.checks for m in c.measures}


def _stack(before: Certificate, after: Certificate) -> Iterator[Change]:
    old, new = ({choice.item: choice.value for choice in one.stack} for one in (before, after))
    for item in dict.fromkeys((*new, *old)):
        was, now = old.get(item, NOT_THERE), new.get(item, NOT_THERE)
        if was != now:
            yield Change(node=after.node, what="stack", subject=item, before=was, after=now, worse=False)


def _machine(before: Certificate, after: Certificate) -> Iterator[Change]:
    old, new = before.hardware, after.hardware
    if old is None or new is None:
        return
    was, now = ("a stand-in" if one.simulated else "the machine" for one in (before, after))
    rows: list[Row] = [
        ("what it rests on", was, now, after.simulated),
        ("operating system", old.os, new.os, False),
        ("kernel", old.kernel, new.kernel, False),
        ("loaded driver", old.driver or "none", new.driver or "none", bool(old.driver and not new.driver)),
        ("processor", old.cpu, new.cpu, False),
        ("threads", str(old.threads), str(new.threads), new.threads < old.threads),
        ("NVSwitches", str(len(old.switches)), str(len(new.switches)), len(new.switches) < len(old.switches)),
        *_memory(old, new),
        *_gpus(old, new),
    ]
    for subject, first, second, worse in rows:
        if first != second:
            yield Change(node=after.node, what="hardware", subject=subject, before=first, after=second, worse=worse)


Row = tuple[str, str, str, bool]


def _memory(old: Hardware, new: Hardware) -> Iterator[Row]:
    if abs(new.memory - old.memory) > MEMORY * old.memory:
        yield "memory", f"{old.memory / 1e9:.1f} GB", f"{new.memory / 1e9:.1f} GB", new.memory < old.memory


def _gpus(old: Hardware, new: Hardware) -> Iterator[Row]:
    """By their addresses: what is in which slot."""
    was, now = ({gpu.address: gpu for gpu in one.gpus} for one in (old, new))
    for address in sorted({*was, *now}):
        first, second = was.get(address), now.get(address)
        unknown = bool(first and second and not (first.uuid and second.uuid))  # no driver told which card it is
        yield f"GPU {address}", _card(first, unknown=unknown), _card(second, unknown=unknown), second is None
        if first and second:
            width, before = second.link_width or 0, first.link_width or 0
            yield f"link of GPU {address}", f"x{before}", f"x{width}", width < before


def _card(gpu: Gpu | None, *, unknown: bool) -> str:
    """The model, and which card of it."""
    return f"{gpu.name} {'' if unknown else gpu.uuid}".strip() if gpu else NOT_THERE
