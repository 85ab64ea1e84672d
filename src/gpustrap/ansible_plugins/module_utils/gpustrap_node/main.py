"""One request in, one response out. What ran, ran to its end; what failed says so by a code and a sentence."""

from __future__ import annotations

from .host import BUDGET, Host, NodeError

OF_SINGLE_BOX = ("reboot-here", "leave-note")
VERBS = (
    *("facts", "observe", "drift", "ledger-open", "ledger-release", "ledger-close", "ledger-read"),
    "removal",
    "environments",
    *OF_SINGLE_BOX,
)


def main(request: dict[str, object]) -> dict[str, object]:
    """Answer a request of the controller.

    Args:
        request: ``{"verb": one of VERBS, "args": {...}, "root": "/", "budget": seconds}``.

    Returns:
        ``{"ok": True, "data": {...}}`` or ``{"ok": False, "error": {"code": ..., "message": ...}}``.
    """
    try:
        return {"ok": True, "data": tidy(_answer(request))}
    except NodeError as error:
        return _failed(error.code, str(error))
    except Exception as error:  # noqa: BLE001 - whatever it was, the controller gets an answer
        trace, where = error.__traceback__, ""
        while trace:
            where = "%s:%d" % (trace.tb_frame.f_code.co_name, trace.tb_lineno)
            trace = trace.tb_next
        return _failed("probe-failed", "%s in %s: %s" % (type(error).__name__, where, error))


def _failed(code: str, message: str) -> dict[str, object]:
    return {"ok": False, "error": {"code": code, "message": tidy(message)}}


def _answer(request: dict[str, object]) -> dict[str, object]:
    """Only the verb's own files are imported: the drift of a thousand nodes pays for each of them."""
    verb, args, root = request.get("verb"), request.get("args", {}), request.get("root", "/")
    budget = request.get("budget", BUDGET)
    if verb not in VERBS or not isinstance(args, dict) or not isinstance(root, str):
        raise NodeError("bad-request", "verb is one of %s, args an object, root a path" % ", ".join(VERBS))
    if not isinstance(budget, (int, float)):
        raise NodeError("bad-request", "budget is a number of seconds")
    host = Host(root, float(budget))
    if verb == "facts":
        from .facts import collect, collect_boot  # noqa: PLC0415

        return collect_boot(host) if args.get("only") == "boot" else collect(host, args)
    if verb == "observe":
        from .observe import observe  # noqa: PLC0415

        return observe(host, args)
    if verb in OF_SINGLE_BOX:
        from .resume import VERBS as OF_RESUME  # noqa: PLC0415

        return OF_RESUME[verb](host, args)
    if verb == "removal":
        from .removal import removal  # noqa: PLC0415

        return removal(host, args)
    if verb == "environments":
        from .environments import environments  # noqa: PLC0415

        return environments(host, args)
    from .ledger import VERBS as OF_LEDGER  # noqa: PLC0415

    return OF_LEDGER[str(verb)](host, args)


def tidy(value: object) -> object:
    """Make a value fit for the wire: valid Unicode, and no text longer than the controller's schema takes."""
    if isinstance(value, str):
        text = value.encode("utf-8", "replace").decode("utf-8")
        return text if len(text) <= 4096 else text[:4090] + " …"
    if isinstance(value, dict):
        return {str(tidy(str(key))): tidy(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [tidy(item) for item in value]
    return value
