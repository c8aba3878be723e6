"""What SGLang's store tells routers of its keys, and how much of a prompt it finds by them, see kinds.py.

A case says what a server has registered, and has the layout that it tells, the hashes of a prompt's pages, the keys that
the store has and the pages that the server would load; -1 if the layout does not tell how to ask.
"""

import importlib
import sys
import types

from modules import Finder

NAME = "hicache"
PACKAGE = "./router/hicache"
RECORDED = 40  # 11 KiB, compressed
FOLDERS = {"sglang": "sglang-store"}
STORE = "sglang.srt.mem_cache.storage.mooncake_store.mooncake_store"
PAGE_PACKED = ("indexer", "deepseek_v4_c4", "deepseek_v4_c128", "deepseek_v4_c4_indexer")
STATES = ("deepseek_v4_c4_state", "deepseek_v4_c128_state")


def load(engine, release, directory):
    sys.meta_path.insert(0, Finder(directory))
    sys.dont_write_bytecode = True
    try:
        return Reference(importlib.import_module(STORE), importlib.import_module("sglang.srt.mem_cache.hicache_storage"))
    except (ImportError, AttributeError) as error:
        raise ImportError(f"the modules of {engine} {release} do not import: {error!r}") from error


def signature(reference):
    """The layouts of some servers."""
    plain = {"prefix": None, "page_size": 64, "pp_size": 1, "mla": True, "kv": True, "pools": [], "sidecars": [], "window": None}
    servers = [{}, {"prefix": "tag_model", "pp_size": 2}, {"pools": ["swa", "indexer"], "window": 2}, {"mla": False}]
    return "\n".join(repr(reference.layout(plain | server)) for server in servers)


def draw(reference, random, name):
    server = {
        "prefix": random.choice((None, "org-model", "tag é_org-model")), "page_size": random.choice((1, 16, 64)),
        "pp_size": random.choice((1, 1, 1, 2)), "mla": random.random() < 0.95, "kv": random.random() < 0.8,
        "pools": random.sample(PAGE_PACKED, random.randrange(3)), "sidecars": [], "window": None,
    }  # fmt: skip
    if random.random() < 0.6:
        server["pools"].append("swa")
        server["window"] = random.choice((1, 1, 2, 3, 5, 0))
        for state in random.sample(STATES, random.randrange(3)):
            server["pools"].append(state)
            server["sidecars"].append([state, "swa", "trailing_pages"])
    if random.random() < 0.05:
        server["pools"].append("mamba")
    if random.random() < 0.05 and server["pools"]:
        server["sidecars"].append([server["pools"][0], "kv", "block_groups"])
    pages = [random.randbytes(32).hex() for _ in range(random.randrange(10))]
    likely, present, absent = random.choice((0.7, 0.9, 0.97, 1)), set(), set()

    def exists(keys):
        for key in keys:
            if key not in present | absent:
                (present if random.random() < likely else absent).add(key)
        return [int(key in present) for key in keys]

    hit = reference.hit(server, pages, exists)
    case = {"id": name, "server": server, "layout": reference.layout(server), "pages": pages}
    return case | {"present": sorted(present), "hit": hit}


def differs(reference, case):
    layout = reference.layout(case["server"])
    hit = reference.hit(case["server"], case["pages"], lambda keys: [int(key in case["present"]) for key in keys])
    if (layout, hit) == (case["layout"], case["hit"]):
        return None
    return f"the release tells {layout} and finds {hit} pages, recorded are {case['layout']} and {case['hit']}"


class Reference:
    """The modules of one release."""

    def __init__(self, store, storage):
        self.store, self.storage = store, storage
        store.torch = types.SimpleNamespace(arange=lambda n, **_: range(n), int64=None)

    def server(self, server, pp_rank):
        """Returns the store of a scheduler, without its memory."""
        s = object.__new__(self.store.MooncakeStore)
        host = types.SimpleNamespace(page_size=server["page_size"], kv_buffer=object() if server["kv"] else None)
        host.get_page_buffer_meta = lambda indices: ([0], [1])
        s.mem_pool_host, s.config_prefix, s.is_mla_backend = host, server["prefix"], server["mla"]
        s.pp_rank, s.pp_size, s.dcp_size = pp_rank, server["pp_size"], 1
        s.mla_suffix = str(pp_rank) if server["pp_size"] > 1 else ""
        s.mha_suffix, s.should_split_heads = "0", False
        s.registered_pools = {self.storage.PoolName(name): types.SimpleNamespace() for name in server["pools"]}
        return s

    def specs(self, server):
        names, policy = self.storage.PoolName, self.storage.PoolHitPolicy
        return [self.storage.SidecarPoolSpec(names(n), names(source), policy(p)) for n, source, p in server["sidecars"]]

    def layout(self, server):
        ranks = [self.server(server, rank) for rank in range(server["pp_size"])]
        fields = {"sidecar_pool_specs": self.specs(server), "swa_trailing_pages": server["window"]}
        return self.storage.merge_l3_layouts(
            [rank.describe_l3_object_layout(page_size=server["page_size"], **fields) for rank in ranks]
        )

    def hit(self, server, pages, exists):
        """Returns how many pages all stages can load, -1 if routers are not told."""
        pools = self.layout(server)["hicache_object_layout"]["pools"]
        known = all(p["hit_policy"] in ("all_pages", "trailing_pages") for p in pools)
        if not self.layout(server)["enabled"] or not known:
            return -1
        common = set(range(len(pages) + 1))
        for rank in range(server["pp_size"]):
            s = self.server(server, rank)
            s._batch_exist = exists
            windows = {p["pool"]: p.get("trailing_pages", 0) for p in pools}
            policy = {p["pool"]: self.storage.PoolHitPolicy(p["hit_policy"]) for p in pools}
            transfers = [
                self.storage.PoolTransfer(name=n, hit_policy=policy[n], keys=[""] * windows[n]) for n in s.registered_pools
            ]
            common &= {0, *s.batch_exists_v2(pages, transfers).restorable_prefix_pages}
        return max(common)
