"""A vLLM engine that publishes KV events and does what it is told, like internal/storetest/engine.py.

Runs in vLLM's environment: events.py MODEL BLOCK_SIZE SETTINGS, where SETTINGS is the JSON object
of storetest's EngineConfig. Each line of standard input is a command, a JSON array of its name and
arguments; each is answered by a line on standard output. What vLLM prints goes to standard error.
"""

import json
import os
import random
import sys

import recorder

VOCABULARY = range(3, 1000)  # those before are special tokens
BLOCKS = 20  # of the longest prompt
AT_ONCE = 4  # prompts of a step


class Engine:
    def __init__(self, model, block_size, settings):
        os.environ["VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES"] = str(int(settings["integers"]))
        from vllm import LLM
        from vllm.config import KVEventsConfig
        from vllm.distributed import kv_events
        from vllm.v1.core import kv_cache_utils

        self.settings, self.block_size = settings, block_size
        self.random = random.Random(settings["seed"])
        self.earlier = []  # prompts
        self.llm = LLM(
            model=model,
            skip_tokenizer_init=True,
            enforce_eager=True,
            dtype="float32",
            block_size=block_size,
            max_model_len=(BLOCKS + 4) * block_size,
            max_num_seqs=AT_ONCE,
            num_gpu_blocks_override=settings["blocks"],
            kv_events_config=KVEventsConfig(
                enable_kv_cache_events=True,
                publisher="zmq",
                endpoint=settings["endpoint"],
                replay_endpoint=settings["replay"],
                buffer_steps=settings["buffer"],
            ),
        )
        scheduler = self.llm.llm_engine.engine_core.engine_core.scheduler
        pool = scheduler.kv_cache_manager.block_pool
        self.recorder = recorder.Recorder(scheduler.kv_event_publisher, pool, kv_cache_utils, kv_events)

    def run(self, steps, lost=False):
        """Computes some prompts in each step. If lost, the sends of their batches fail."""
        self.recorder.lose(lost)
        for _ in range(steps):
            self.generate([self.prompt() for _ in range(self.random.randint(1, AT_ONCE))])
        return self.recorder.take()

    def generate(self, prompts):
        from vllm import SamplingParams

        mode = "full" if self.random.random() < self.settings["full"] else "incremental"
        parameters = SamplingParams(
            max_tokens=self.random.choice([1, 1, 1, 20]),
            temperature=0,
            ignore_eos=True,
            detokenize=False,
            extra_args={"kv_cache_report_mode": mode},
        )
        self.llm.generate([{"prompt_token_ids": p} for p in prompts], parameters, use_tqdm=False)

    def prompt(self):
        """Returns a prompt that is new, or an earlier one, or shares a prefix with one."""
        chance, size = self.random.random(), self.block_size
        if self.earlier and chance < 0.7:
            tokens = self.random.choice(self.earlier[-40:])
            if chance < 0.4:
                tokens = tokens[: self.random.randint(1, len(tokens))] + self.tokens(self.random.randint(1, 3 * size))
        else:
            tokens = self.tokens(self.random.randint(self.settings["least"], BLOCKS * size))
            if self.random.random() < 0.5:
                # A block that is computed again is copied: the last one of such a prompt.
                tokens = tokens[: max(self.settings["least"], len(tokens) // size * size)]
        tokens = (tokens + self.tokens(max(0, self.settings["least"] - len(tokens))))[: BLOCKS * size]
        self.earlier.append(tokens)
        return tokens

    def tokens(self, count):
        return self.random.choices(VOCABULARY, k=count)

    def prompts(self):
        """Returns how many prompts it has computed."""
        return len(self.earlier)

    def reset(self):
        """Clears the cache. An engine says so with the batch of its next step."""
        if not self.llm.reset_prefix_cache():
            raise RuntimeError("the prefix cache was not reset")
        return self.run(1)


def main():
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    engine = Engine(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]))
    print(json.dumps("ready"), file=replies, flush=True)
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        print(json.dumps(getattr(engine, command)(*arguments)), file=replies, flush=True)
    os._exit(0)  # as an engine that is killed


if __name__ == "__main__":
    main()
