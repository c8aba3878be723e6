"""Two engines with KV events that share a store, hitline, which says who has what of a prompt and how much of it the
store can load, and a third engine that loads it."""

import collections
import json
import os
import sys
import urllib.error
import urllib.request

import processes
import stage

sys.path.append(os.path.join(processes.ROOT, "clients", "python"))
from hitline import HoldersClient  # noqa: E402

ENGINES = ("a", "b")
FRESH = "fresh"  # the third engine
# Batches that can be replayed: fewer than an engine sends, so that a server that starts late needs a dump.
BUFFER = 100
WINDOW = 128  # tokens of a sliding window of model gemma3
PROMPT_BLOCKS = 20  # of the longest prompt
HTTP_TIMEOUT = 20  # seconds


# The KV cache groups of the models, without their block sizes.
SLIDING, FULL = {"kind": "sliding_window", "sliding_window": WINDOW}, {"kind": "full_attention"}
GROUPS = {"llama": [FULL], "gemma3": [SLIDING, SLIDING, FULL]}
SPECS = {"sliding_window": "SlidingWindowSpec", "full_attention": "FullAttentionSpec"}  # vLLM's classes
GPU_BLOCKS = {"llama": 150, "gemma3": 400}  # few, so that blocks are evicted


class Engine(processes.Engine):
    """See engine/holder.py."""

    program = "holder.py"


class Hitline(processes.Process):
    """A hitline serve with a router of two engines, and the pool whose store they share."""

    def __init__(self, config, log):
        self.url = f"http://{config['router']['listen']}"
        self.environ = processes.clean_environ()
        path = log.removesuffix(".log") + ".yaml"
        with open(path, "w") as file:
            json.dump(config, file, indent=1)  # JSON is YAML
        super().__init__("hitline", [processes.HITLINE, "serve", "--config", path], log, self.environ)
        self.client = HoldersClient(self.url, timeout=HTTP_TIMEOUT)

    def stop(self):
        self.client.close()
        super().stop()

    def answers(self):
        """Whether it is ready."""
        try:
            with urllib.request.urlopen(self.url + "/ready", timeout=HTTP_TIMEOUT):
                return True
        except OSError:
            return False

    def get(self, path):
        return self.http(urllib.request.Request(self.url + path))

    def post(self, path, body):
        headers = {"Content-Type": "application/json"}
        return self.http(urllib.request.Request(self.url + path, json.dumps(body).encode(), headers))

    def http(self, request):
        try:
            with urllib.request.urlopen(request, timeout=HTTP_TIMEOUT) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")[:500]
            raise processes.Failed(f"{request.full_url} is answered by {error.code}: {text}") from None
        except OSError as error:
            raise processes.Failed(f"{request.full_url}: {error}; the log is {self.log}") from error

    def command(self, *arguments, stdin):
        """Runs hitline holders, and returns the answer."""
        done = processes.run_hitline(
            self.environ, "holders", "--connect", self.url, "--json", *arguments, stdin=stdin
        )  # fmt: skip
        if done.returncode:
            raise processes.Failed(f"hitline holders ended with {done.returncode}: {done.stderr.strip()[-500:]}")
        return json.loads(done.stdout)

    def sources(self):
        """Returns the state of the source of each engine."""
        return {source["instance_id"]: source for source in self.get("/services")["sources"]}


class Stage(stage.Stage):
    """A store, the engines, and hitline."""

    def __init__(self, folder, row):
        super().__init__(folder, row, None, (*ENGINES, FRESH))
        self.block_size = stage.block_size(row.release)
        self.starts = collections.Counter()  # of each engine

    def start(self):
        super().start()
        self.hitline = self.start_server("hitline")

    def start_server(self, name, peers=()):
        """Starts a hitline, from the dump of one of its peers if there are any."""
        log = os.path.join(self.folder, f"{name}.log")
        server = self.running(lambda: Hitline(self.config(name, peers), log))
        server.wait_ready()
        return server

    def start_engine(self, name):
        self.starts[name] += 1
        own = os.path.join(self.temporary, f"{name}-{self.starts[name]}")
        os.makedirs(own)
        settings = {
            "master": self.master.address, "llm": self.llm(), "integers": self.row.integers, "events": None,
        }  # fmt: skip
        if name == FRESH:
            settings["llm"]["kv_transfer_config"]["kv_role"] = "kv_consumer"  # it changes nothing in the store
        else:
            settings["events"] = {**self.endpoints(name), "buffer_steps": BUFFER}
            settings["llm"]["num_gpu_blocks_override"] = GPU_BLOCKS[self.row.model]
        environ = self.environ(own)
        log = os.path.join(self.folder, f"engine-{name}-{self.starts[name]}.log")
        return self.running(lambda: Engine(f"engine {name}", environ, log, json.dumps(settings)))

    def endpoints(self, name):
        """Returns where an engine publishes its events, and replays them."""
        path = os.path.join(self.temporary, name)
        return {"endpoint": f"ipc://{path}-pub", "replay_endpoint": f"ipc://{path}-replay"}

    def restart(self, name):
        """Kills an engine and starts another one, whose sequence begins at 0."""
        self.engines[name].kill()
        self.engines[name] = self.start_engine(name)
        self.engines[name].reply(processes.ENGINE_START_TIMEOUT)

    def llm(self):
        return {**super().llm(), "max_model_len": (PROMPT_BLOCKS + 4) * self.block_size}

    def config(self, name, peers):
        """Returns the configuration of a hitline."""
        groups = [{**group, "block_size": self.block_size} for group in GROUPS[self.row.model]]
        hashing = {"type": "vllm", "release": self.row.release, "algorithm": "sha256", "seed": "0"}
        return {
            "listen": [f"ipc://{self.temporary}/{name}.sock"],
            "pool": {
                "vllm": self.row.release, "model_name": self.row.model,
                "hash_block_size": self.block_size, "groups": groups,
            },
            "backend": {"mooncake": {"masters": [self.master.address], "timeout": f"{self.row.store_timeout}s"}},
            "router": {
                "listen": f"127.0.0.1:{processes.free_port()}",
                "models": [{"name": self.row.model, "hash": hashing}],
                "sources": [
                    {
                        "model": self.row.model, "instance_id": i, **self.endpoints(i),
                        "exact_copies": True,  # no request asks for full reports
                    }
                    for i in ENGINES
                ],
                "peers": [peer.url for peer in peers],
            },
        }  # fmt: skip
