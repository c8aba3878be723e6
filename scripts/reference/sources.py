"""Compares the sources of the functions that hitline reproduces between two releases."""

import ast
import fnmatch
import os

from wheel import STORE

# What hitline reproduces: files, and patterns of qualified names in them.
MIRRORED = {
    STORE + "coordinator.py": ["*"],
    STORE + "protocol.py": ["*"],
    STORE + "data.py": [
        "PoolKey*", "KeyMetadata*", "*.lookup_key_prefixes", "*.shared_namespace", "chunk_hashes_for_block_size",
        "BlobBlockHashes*", "_CompactChunkHashList*", "MooncakeLookupResult*", "TailKeyBoundary*",
    ],
    STORE + "worker.py": [
        "MooncakeStoreWorker.lookup", "MooncakeStoreWorker._tail_key_boundaries",
        "MooncakeStoreWorker._init_lookup_key_prefixes", "MooncakeStoreWorker._select_store_layout",
        "MooncakeStoreWorker._supports_tp_sharded_store_layout", "MooncakeStoreWorker._*replication_factor*",
        "MooncakeStoreWorker._build_token_databases", "resolve_store_tp_size", "LookupKeyServer.*",
        "LookupKeyClient.*", "get_zmq_rpc_path_lookup",
    ],
    "vllm/v1/core/single_type_kv_cache_manager.py": [
        "*.find_longest_cache_hit", "*.reachable_block_mask", "register_all_kvcache_specs",
    ],
    "vllm/v1/core/kv_cache_coordinator.py": ["replay_boundaries"],
    "vllm/v1/core/kv_cache_utils.py": [
        "resolve_kv_cache_block_sizes", "resolve_dcp_kv_*", "eagle_proof_margin", "partial_hash_hits_enabled",
        "resolve_block_hashes", "BlockHashListWithBlockSize*",
    ],
    "vllm/v1/kv_cache_interface.py": [
        "*Spec fields", "*Specs fields", "*.prefix_cacheable", "KVCacheConfig.prefix_cacheable_*",
        "KVCacheConfig.transfer_group*",
    ],
}  # fmt: skip


class Normalize(ast.NodeTransformer):
    """Removes what changes no behaviour: docstrings and annotations of functions."""

    def visit_FunctionDef(self, node):
        self.generic_visit(node)
        node.returns = None
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
        return node

    def visit_arg(self, node):
        node.annotation = None
        return node


def functions(tree, prefix=""):
    """Yields the qualified names and nodes of functions, and the fields of classes."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            yield prefix + node.name, ast.dump(Normalize().visit(node))
        elif isinstance(node, ast.ClassDef):
            fields = [ast.dump(f) for f in node.body if isinstance(f, (ast.AnnAssign, ast.Assign))]
            bases = [ast.dump(base) for base in node.bases]
            yield f"{prefix}{node.name} fields", repr((bases, fields))
            yield from functions(node, f"{prefix}{node.name}.")


def mirrored(directory):
    """Returns the normalized sources of what is reproduced, by (file, name)."""
    found = {}
    for path, patterns in MIRRORED.items():
        name = os.path.join(directory, path)
        if not os.path.exists(name):
            continue
        with open(name) as file:
            tree = ast.parse(file.read())
        for function, dump in functions(tree):
            if any(fnmatch.fnmatchcase(function, pattern) for pattern in patterns):
                found[path, function] = dump
    return found


def compare(directory, other):
    """Returns the number of functions, and lines of those that differ from another release's."""
    ours, theirs = mirrored(directory), mirrored(other)
    lines = []
    for key in sorted(ours.keys() | theirs.keys()):
        if ours.get(key) != theirs.get(key):
            state = "new" if key not in theirs else "gone" if key not in ours else "changed"
            lines.append(f"{state:8}{os.path.basename(key[0])}: {key[1]}")
    return len(ours), lines
