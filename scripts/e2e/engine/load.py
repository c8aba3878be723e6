"""Steps an engine with several requests, and measures the steps. Runs in vLLM's environment."""

import itertools
import random
import statistics
import time

FLOOD_LENGTHS = 64, 200  # tokens of a prompt, least and most
FLOOD_TOKENS = 32  # that are generated for each
IN_FLIGHT = 3
VOCABULARY = 3, 1000

WARMUP = 20  # steps of a request that decodes, before any is measured


class Load:
    def __init__(self, llm):
        self.engine = llm.llm_engine
        self.numbers = itertools.count()

    def flood(self, seconds, seed):
        """Keeps requests in flight, each of a prompt of its own. Returns how many have finished, and
        the longest step in seconds."""
        numbers = random.Random(seed)
        pending, finished, longest = set(), 0, 0.0
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            while len(pending) < IN_FLIGHT:
                prompt = [numbers.randrange(*VOCABULARY) for _ in range(numbers.randint(*FLOOD_LENGTHS))]
                pending.add(self.add(prompt, FLOOD_TOKENS))
            taken, outputs = self.step()
            longest = max(longest, taken)
            done = {output.request_id for output in outputs if output.finished}
            finished += len(done)
            pending -= done
        self.end(pending)
        return {"finished": finished, "longest": longest}

    def decode(self, running, waiting, steps):
        """Decodes a request, beside which another one waits for room unless it has no tokens. Returns
        the median of the steps in seconds, without the one that looks up first."""
        pending = {self.add(running, steps + WARMUP + 10)}
        generated = 0
        while generated < WARMUP:
            generated = max([generated, *(len(output.outputs[0].token_ids) for output in self.step()[1])])
        waits = self.add(waiting, 1) if waiting else None
        if waits:
            pending.add(waits)
        taken = []
        for _ in range(steps):
            seconds, outputs = self.step()
            taken.append(seconds)
            if waits in [output.request_id for output in outputs]:
                raise RuntimeError("the request that was to wait had room")
        self.end(pending)
        return statistics.median(taken[1:])

    def add(self, prompt, tokens):
        """Adds a request, and returns its name."""
        from vllm import SamplingParams

        name = f"load-{next(self.numbers)}"
        parameters = SamplingParams(max_tokens=tokens, temperature=0, ignore_eos=True, detokenize=False)
        self.engine.add_request(name, {"prompt_token_ids": prompt}, parameters)
        return name

    def step(self):
        """Returns the seconds of a step, and its outputs."""
        started = time.monotonic()
        outputs = self.engine.step()
        return time.monotonic() - started, outputs

    def end(self, names):
        """Aborts requests, and waits until none is left."""
        self.engine.abort_request(list(names))
        while self.engine.has_unfinished_requests():
            self.engine.step()
