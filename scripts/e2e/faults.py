"""What an engine does while the master, or hitline, is gone or hangs."""

import signal
import time

import compare
import processes
import prompts
import scenarios

BACK_TIMEOUT = 60  # seconds until there are hits again
SETTLE_TIMEOUT = 2  # seconds
WAIT_MARGIN = 1.0  # seconds that a lookup may take longer than its timeout, on a slow machine


def all_of(run, found, reference):
    """Breaks one after the other. reference has the steps of scenarios.few without faults."""
    stage = run.stage
    full_hits = reference[-len(prompts.FEW) :]
    reference = [outputs[0] for outputs in full_hits]
    for name, broken, mended in (
        ("hitline killed", stage.hitline.kill, stage.start_hitline),
        ("hitline stopped", lambda: stage.hitline.signal(signal.SIGSTOP), lambda: stage.hitline.signal(signal.SIGCONT)),
        ("master killed", stage.master.kill, lambda: start_master_again(stage)),
    ):
        broken()
        waited = without_hits(run, found, reference, name)
        mended()
        seconds, tries = until_hits(run, found, reference, name)
        found.notes.append(
            f"{name}: hits of 0, a request waited {waited:.2f} s at most; hits {seconds:.1f} s after it was back (try {tries})"
        )
    run.reset()
    for text in prompts.FEW:
        run.examine(text)
    compare.outputs(found, full_hits, run.steps[-len(prompts.FEW) :])


def start_master_again(stage):
    stage.master = stage.start_master(rpc=stage.master.rpc, admin=stage.master.admin)


def without_hits(run, found, reference, name):
    """Computes prompts, whose hits must be 0. Returns the longest time that one waited."""
    outputs, waited = compute(run, found, reference, name)
    for hit in (record["engine"][0] for output in outputs for record in output["lookups"]):
        if hit:
            found.problem("hits", f"{name}: a lookup hit {hit} tokens, expected are 0")
    return waited


def until_hits(run, found, reference, name):
    """Computes prompts until they hit as they did at first. Returns the seconds, and how often."""
    started, tries = time.monotonic(), 0
    while True:
        tries += 1
        outputs, _ = compute(run, found, reference, f"{name}, and back")
        seconds = time.monotonic() - started
        if [o["cached"] for o in outputs] == [o["cached"] for o in reference]:
            return seconds, tries
        if seconds > BACK_TIMEOUT:
            found.problem("back", f"{name}: no hits {BACK_TIMEOUT} s after it was back")
            return seconds, tries
        time.sleep(0.2)


def compute(run, found, reference, name):
    """Computes the prompts one by one. Returns outputs, and the longest time that lookups of
    one took, which must not be longer than the timeout."""
    engine, most, outputs = run.engine("a"), run.stage.row.timeout, []
    run.reset()
    waits = []
    for text, want in zip(prompts.FEW, reference):
        output = engine.call("generate", [text], scenarios.MAX_TOKENS, False, seconds=scenarios.GENERATE_TIMEOUT)[0]
        outputs.append(output)
        waits.append(sum(sum(r["waits"]) for r in output["lookups"]))
        found.outputs += 1
        if output["tokens"] == want["tokens"] and output["finish"] == want["finish"]:
            found.outputs_equal += 1
        else:
            found.problem("outputs", f"{name}: {output['finish']} {output['tokens']}, without faults {want['tokens']}")
    # Not all can be stored while the master is gone.
    engine.call("settle", SETTLE_TIMEOUT, seconds=SETTLE_TIMEOUT + scenarios.REPLY_TIME)
    compare.count(found, [outputs])
    if max(waits) > most + WAIT_MARGIN:
        found.problem("wait", f"{name}: a request waited {max(waits):.2f} s for its lookups, the timeout is {most:g} s")
    return outputs, max(waits)
