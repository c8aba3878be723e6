"""Steps an engine with several requests, and measures the steps. Runs in vLLM's environment."""

import itertools
import random
import time

FLOOD_PROMPTS = 40  # more than an engine with few blocks has itself
FLOOD_LENGTHS = 64, 200  # tokens of a prompt, least and most
FLOOD_TOKENS = 32  # that are generated for each
IN_FLIGHT = 3
VOCABULARY = 3, 1000

STREAM_TOKENS = 3000  # of a stream at most

# Of requests that are aborted: the part of all, and the steps after which they are.
ABORTED, ABORT_STEPS = 0.6, 12
ABORT_TOKENS, ABORT_IN_FLIGHT = 16, 6

WARMUP = 20  # steps of a request that decodes, before any is measured


def described(output):
    """Returns what is compared of an output."""
    (first,) = output.outputs
    return {"cached": output.num_cached_tokens, "finish": first.finish_reason, "tokens": list(first.token_ids)}


def flood_prompt(at):
    """Returns one of the prompts of a flood."""
    drawn = random.Random(at)
    return [drawn.randrange(*VOCABULARY) for _ in range(drawn.randint(*FLOOD_LENGTHS))]


class Load:
    def __init__(self, llm):
        self.engine = llm.llm_engine
        self.numbers = itertools.count()

    def fill(self):
        """Computes all prompts of a flood."""
        for at in range(FLOOD_PROMPTS):
            self.add(flood_prompt(at), 1)
        self.end([])

    def flood(self, seconds, seed):
        """Keeps requests in flight, each of one of a few prompts. Returns how many have finished, the outputs by
        prompt, how many differed from an earlier one, and the longest step in seconds."""
        numbers = random.Random(seed)
        pending, finished, outputs, differ, longest = {}, 0, {}, 0, 0.0
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            while len(pending) < IN_FLIGHT:
                at = numbers.randrange(FLOOD_PROMPTS)
                pending[self.add(flood_prompt(at), FLOOD_TOKENS)] = at
            taken, stepped = self.step()
            longest = max(longest, taken)
            for output in stepped:
                if output.finished:
                    finished += 1
                    at, tokens = pending.pop(output.request_id), list(output.outputs[0].token_ids)
                    differ += outputs.setdefault(at, tokens) != tokens
        self.end(pending)
        return {"finished": finished, "outputs": outputs, "differ": differ, "longest": longest}

    def decode(self, running, waiting, steps):
        """Decodes a request, beside which another one waits for room unless it has no tokens. Returns
        the steps in seconds, without the one that looks up first."""
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
        return taken[1:]

    def stream(self, streams, arrivals, gap):
        """Decodes requests, beside which others arrive one after the other, so many steps after the first token of
        the one before. Returns the seconds between tokens of the streams, without those that taking a request in
        lasts; and for each arrival those until its first token, and its cached tokens."""
        last = dict.fromkeys((self.add(prompt, STREAM_TOKENS) for prompt in streams), 0.0)
        gaps, firsts, cached = [], [], []

        def step():
            outputs, now = self.engine.step(), time.monotonic()
            for output in outputs:
                if output.request_id in last:
                    gaps.append(now - last[output.request_id])
                    last[output.request_id] = now
            return outputs

        while not all(last.values()):
            step()
        for _ in range(WARMUP):
            step()
        gaps.clear()
        for prompt in arrivals:
            for _ in range(gap):
                step()
            started = time.monotonic()
            name = self.add(prompt, 1)
            taken_in = time.monotonic() - started
            last = {stream: at + taken_in for stream, at in last.items()}
            done = []
            while not done:
                done = [output for output in step() if output.request_id == name]
            firsts.append(time.monotonic() - started)
            cached.append(done[0].num_cached_tokens)
        self.end(last)
        return {"gaps": gaps, "firsts": firsts, "cached": cached}

    def abort(self, prompts, seed):
        """Computes prompts, of which some are aborted after a few steps. Returns the outputs of the others."""
        numbers = random.Random(seed)
        waiting, pending, outputs = list(enumerate(prompts)), {}, {}
        while waiting or pending:
            while waiting and len(pending) < ABORT_IN_FLIGHT:
                at, prompt = waiting.pop(0)
                left = numbers.randrange(ABORT_STEPS) if numbers.random() < ABORTED else None
                pending[self.add(prompt, ABORT_TOKENS)] = at, left
            for output in self.engine.step():
                if output.finished and output.request_id in pending:
                    outputs[pending.pop(output.request_id)[0]] = described(output)
            aborted = [name for name, (_, left) in pending.items() if left == 0]
            self.engine.abort_request(aborted)
            pending = {n: (at, left and left - 1) for n, (at, left) in pending.items() if n not in aborted}
        self.add(prompts[0][:5], 1)  # with its step the connector is told that the last one has ended
        self.end([])
        return [{"at": at, "lookups": [], **outputs[at]} for at in sorted(outputs)]

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
