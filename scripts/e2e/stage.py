"""A store, hitline beside it, and engines, for a row or for what it is compared with."""

import contextlib
import json
import os
import shutil
import subprocess
import tempfile

import install
import interrupts
import model
import processes

MAX_MODEL_LEN = 4096
# Tokens by which the longest prompt is shorter than the cache of a row that has few blocks.
MARGIN = 1024
ADAPTERS = "first-lora", "second-lora"
EAGLE = {"method": "eagle", "num_speculative_tokens": 2}
ALONE = "alone"  # the name of an engine without a store


def block_size(release):
    """Returns the tokens of a block. vLLM on CPU takes 32 and its multiples from 0.30.0 on."""
    return 16 if release == "0.28.0" else 32


class Stage:
    """Engines with the names that are given, over a store of their own. With plugin they ask
    hitline, without it vLLM's own server."""

    def __init__(self, folder, row, plugin, engines):
        self.folder, self.row, self.plugin, self.names = folder, row, plugin, engines
        self.stack = contextlib.ExitStack()
        self.engines = {}
        self.hitline = None

    def __enter__(self):
        try:
            self.start()
        except BaseException:
            self.stack.close()
            raise
        return self

    def __exit__(self, *exc):
        self.stack.close()

    def start(self):
        """Starts all processes; does not wait for the engines."""
        os.makedirs(self.folder)
        # Not in self.folder: paths of unix sockets must be short.
        self.temporary = self.stack.enter_context(tempfile.TemporaryDirectory(prefix="e2e-"))
        self.model = os.path.join(self.temporary, self.row.model)
        model.write(self.model, self.row.model)
        self.adapters = [(name, i, os.path.join(self.temporary, name)) for i, name in enumerate(ADAPTERS, 1)]
        for _, seed, folder in self.adapters:
            model.write_adapter(folder, seed)
        self.eagle = os.path.join(self.temporary, "eagle")
        model.write_eagle(self.eagle, seed=3)
        self.master = self.start_master()
        if self.plugin and not self.row.own_server:
            self.start_hitline()
        for name in self.names:
            self.engines[name] = self.start_engine(name)

    def started(self):
        """Waits for the engines, and returns what they are by their names."""
        return {name: engine.reply(processes.ENGINE_START_TIMEOUT) for name, engine in self.engines.items()}

    def start_master(self, **options):
        log = os.path.join(self.folder, "master.log")
        master = self.running(lambda: processes.Master(log, lease=self.row.lease, **options))
        master.wait_ready()
        return master

    def start_master_again(self):
        """Starts the master that was killed, with an empty store."""
        self.master = self.start_master(rpc=self.master.rpc, admin=self.master.admin)

    def start_hitline(self):
        log = os.path.join(self.folder, "hitline.log")
        address = f"ipc://{self.temporary}/hitline.sock"
        self.hitline = self.running(lambda: processes.Hitline(address, self.hitline_environ(), log))
        self.hitline.wait_ready()

    def hitline_environ(self):
        """Returns the variables of hitline, as a server and for commands over the same store."""
        return {
            **processes.clean_environ(),
            "HITLINE_BACKEND_MOONCAKE_MASTERS": self.master.address,
            "HITLINE_BACKEND_MOONCAKE_ADMIN": f"127.0.0.1:{self.master.admin}",
            "HITLINE_BACKEND_MOONCAKE_TIMEOUT": f"{self.row.store_timeout}s",
            "HITLINE_BACKEND_MOONCAKE_LEASE": self.row.lease,
            "HITLINE_BACKEND_MOONCAKE_REMEMBER": "0",  # keys are removed by force, and vLLM finds that at once
        }

    def start_engine(self, name):
        own = os.path.join(self.temporary, name)
        os.makedirs(own)
        settings = {"master": self.master.address, "llm": self.llm()}
        if name == ALONE:
            del settings["llm"]["kv_transfer_config"]
        elif name in self.row.roles:
            settings["llm"]["kv_transfer_config"]["kv_role"] = self.row.roles[name]
        log = os.path.join(self.folder, f"engine-{name}.log")
        return self.running(lambda: processes.Engine(f"engine {name}", self.environ(own), log, json.dumps(settings)))

    def running(self, start):
        """Starts a process, and has it stopped at the end."""
        with interrupts.deferred():
            process = start()
            self.stack.callback(process.stop)
        return process

    def llm(self):
        """Returns the arguments of vLLM's LLM."""
        row = self.row
        size = block_size(row.release)
        transfer = {
            "kv_connector": "MooncakeStoreConnector",
            "kv_role": "kv_both",
            "kv_connector_extra_config": row.extra,
            **row.transfer,
        }
        return {
            "model": self.model,
            "skip_tokenizer_init": True,
            "enforce_eager": True,
            "dtype": "float32",
            "block_size": size,
            "max_model_len": row.cache - MARGIN if row.cache else MAX_MODEL_LEN,
            "tensor_parallel_size": row.tp,
            "kv_transfer_config": multi(transfer) if row.multi else transfer,
            **({"num_gpu_blocks_override": row.cache // size} if row.cache else {}),
            **row.llm,
            **({"speculative_config": {**EAGLE, "model": self.eagle}} if row.eagle else {}),
        }

    def environ(self, own):
        """Returns the variables of an engine that may write into the folder own."""
        store = os.path.join(own, "mooncake.json")
        with open(store, "w") as file:
            json.dump(self.store_config(), file)
        environ = {**engine_environ(self.row.release, own), "MOONCAKE_CONFIG_PATH": store}
        if self.row.tp > 1 or self.row.llm.get("pipeline_parallel_size"):
            environ["VLLM_CPU_OMP_THREADS_BIND"] = "nobind"
            environ["VLLM_USE_AOT_COMPILE"] = "0"  # else an engine that is not eager ends, as nothing can be compiled
        if self.plugin:
            environ.update(self.plugin_environ())
            environ["PYTHONPATH"] += os.pathsep + self.plugin
        return environ

    def store_config(self):
        return {**store_config(self.master), "global_segment_size": self.row.store}

    def plugin_environ(self):
        environ = {"HITLINE_LOOKUP": self.row.lookup}
        if self.row.timeout:
            environ["HITLINE_TIMEOUT"] = str(self.row.timeout)
        if not self.row.own_server:
            return {**environ, "HITLINE_ADDRESS": self.hitline.address}
        folders = os.path.dirname(processes.HITLINE), os.environ.get("PATH", os.defpath)
        timeout = f"{self.row.store_timeout}s"
        return {
            **environ,
            "HITLINE_ADDRESS": "auto",
            "HITLINE_BACKEND_MOONCAKE_TIMEOUT": timeout,
            "PATH": os.pathsep.join(folders),
        }


def multi(config):
    """Returns the configuration of two connectors with keys of their own."""
    children = [
        {**config, "kv_connector_extra_config": {"cache_prefix": name, "lookup_rpc_port": port}}
        for port, name in enumerate(("first", "second"))
    ]
    return {**config, "kv_connector": "MultiConnector", "kv_connector_extra_config": {"connectors": children}}


def engine_environ(release, own, *path):
    """Returns the variables of an engine that may write into the folder own. path has more
    folders of modules."""
    return {
        **processes.clean_environ(),
        "TMPDIR": own,
        "XDG_CACHE_HOME": own,
        "XDG_CONFIG_HOME": own,
        "VLLM_RPC_BASE_PATH": own,
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_CPU_KVCACHE_SPACE": "1",  # GiB
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # the scheduler is in engine/main.py
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "TORCHDYNAMO_DISABLE": "1",  # nothing is compiled, which needs a compiler and takes minutes
        # Up to 0.28 engines share no block without it.
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join([processes.ENGINE, install.release_folder(release), *path]),
    }


def store_config(master):
    return {
        "metadata_server": "P2PHANDSHAKE",
        "master_server_address": master.address,
        "protocol": "tcp",
        "device_name": "",
        "mode": "embedded",
        "global_segment_size": "256MB",
        "local_buffer_size": "64MB",
    }


def install_plugin(target):
    """Installs clients/python as a package, for vLLM to find its entry point."""
    source = os.path.join(processes.ROOT, "clients", "python")
    with tempfile.TemporaryDirectory(prefix="e2e-plugin-") as folder:
        # A copy, since building writes into the folder.
        copy, temporary = os.path.join(folder, "copy"), os.path.join(folder, "tmp")
        shutil.copytree(os.path.join(source, "hitline"), os.path.join(copy, "hitline"))
        for name in ("pyproject.toml", "hatch_build.py", "README.md"):
            shutil.copy(os.path.join(source, name), copy)
        os.mkdir(temporary)  # of pip, which leaves files there if it is interrupted
        command = [install.python(), "-m", "pip", "-q", "install", "--no-deps", "--no-index", "--no-build-isolation"]
        done = subprocess.run(
            [*command, "--target", target, copy], env={**os.environ, "TMPDIR": temporary},
            capture_output=True, text=True, timeout=processes.START_TIMEOUT * 4, check=False,
        )  # fmt: skip
    if done.returncode:
        raise processes.Failed(f"clients/python cannot be installed: {done.stderr.strip()[-500:]}")
