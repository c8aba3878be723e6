"""Prints what rows found."""

import json

HEADER = "vLLM row model TP mode prompts lookups hits equal outputs doctor wait time".split()
COLUMNS = "{:8}{:15}{:8}{:>3}  {:13}{:>8}{:>8}{:>8}{:>10}{:>10}{:>11}{:>7}{:>7}  {}"
LEGEND = """prompts: that the engine with the plug-in computed and were compared; of who has what, of both engines.
lookups, hits: of these prompts, and the tokens found; of latency the tokens that arrivals had from the store. Loads
and rows with modes count theirs below the table. equal: lookups whose answer was that of the engine's client, of
vLLM's own server, and of hitline asked directly; if lookups are local, those whose answer was at least that of a whole
one; of who has what, answers about the two engines; of masters, what they do as pinned. outputs: tokens, cached tokens
and finish_reason are those without the plug-in; under faults and load, and if lookups are local, all but cached tokens.
doctor: it found no problem, and the hit that the engine then got; of who has what, what the third engine loaded. 0/0:
the row has no such thing. wait: the longest for a lookup. time: of the row with the engines' starts. ok: every answer
was as expected, n/n."""


def line(row, found, seconds):
    return COLUMNS.format(
        row.release, row.name, row.model, row.tp, row.mode or "-",
        found.prompts, found.lookups, found.hit_tokens,
        f"{found.asked_equal}/{found.asked}", f"{found.outputs_equal}/{found.outputs}",
        f"{found.agreed}/{found.examined}", f"{found.longest_wait:.2f}s", f"{seconds:.0f}s",
        "ok" if found.ok() else "DIFFERS",
    )  # fmt: skip


def show(results):
    print(COLUMNS.format(*HEADER, "").rstrip())
    for row, found, seconds in results:
        print(line(row, found, seconds))
    print(LEGEND)
    for row, found, _ in results:
        for measured in found.rows:
            print(f"{row.title}: {', '.join(f'{name} {value}' for name, value in measured.items())}")
        for note in found.notes:
            print(f"{row.title}: {note}")
        for kind, text in found.problems:
            print(f"{row.title}: {kind}: {text}")


def write_json(path, results):
    """Writes a line of JSON for each row, an object."""
    with open(path, "w") as file:
        for row, found, seconds in results:
            content = {
                "vllm": row.release, "row": row.name, "model": row.model, "tp": row.tp, "mode": row.mode,
                "seconds": round(seconds, 1), "ok": found.ok(), **vars(found),
            }  # fmt: skip
            file.write(json.dumps(content) + "\n")
