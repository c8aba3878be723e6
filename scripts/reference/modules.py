"""Imports the modules of a release, with everything that they do not need stubbed.

One process can hold one release: the modules keep their names.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys
import types

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE = "vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store"


class AnyMeta(type):
    """The type of stub classes: every attribute exists and is a stub class."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = stub_class(name)
        setattr(cls, name, value)
        return value

    def __gt__(cls, other):  # max(1, envs.X) is 1
        return False

    __lt__ = __gt__


class Stub(metaclass=AnyMeta):
    """Stands for any class or value. Calls and operations give stubs."""

    def __init__(self, *args, **kwargs):
        pass

    def __init_subclass__(cls, **kwargs):
        pass

    def __class_getitem__(cls, item):
        return cls

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Stub()

    def __call__(self, *args, **kwargs):
        # As a decorator, a stub leaves what it decorates.
        return args[0] if len(args) == 1 and not kwargs and callable(args[0]) else Stub()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        return None


def stub_class(name):
    return AnyMeta(name, (Stub,), {})


class StubModule(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        value = stub_class(name)
        setattr(self, name, value)
        return value


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds fetched modules of vLLM below a directory, and stubs for all other modules.

    Only the standard library, this program and the packages named as real are left to
    Python's own finders, so that what a machine has installed changes nothing.
    """

    def __init__(self, directory, real=()):
        self.directory, self.real = directory, real

    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if top in self.real or top in sys.stdlib_module_names or os.path.exists(os.path.join(HERE, top + ".py")):
            return None
        base = os.path.join(self.directory, *name.split("."))
        if os.path.isfile(base + ".py"):
            return importlib.util.spec_from_file_location(name, base + ".py")
        # Packages are empty: what their __init__.py imports is not wanted.
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        module = StubModule(spec.name)
        module.__path__ = []
        if spec.name == "typing_extensions":
            import typing

            module.__dict__.update({n: getattr(typing, n) for n in typing.__all__})
        return module

    def exec_module(self, module):
        pass


class Reference:
    """The modules of one release."""

    def __init__(self, release, directory, real=()):
        finder = Finder(directory, real)
        sys.meta_path.insert(0, finder)
        sys.dont_write_bytecode = True
        try:
            self.coordinator = importlib.import_module(PACKAGE + ".coordinator")
            self.data = importlib.import_module(PACKAGE + ".data")
            self.protocol = importlib.import_module(PACKAGE + ".protocol")
            self.worker = importlib.import_module(PACKAGE + ".worker")
            self.specs = importlib.import_module("vllm.v1.kv_cache_interface")
            self.kv_cache_utils = importlib.import_module("vllm.v1.core.kv_cache_utils")
            self.mooncake = importlib.import_module("mooncake.store")  # a stub
            self.managers = importlib.import_module("vllm.v1.core.single_type_kv_cache_manager")
        except Exception as error:
            raise ImportError(f"the modules of vLLM {release} do not import: {error!r}") from error
        self.release = release
        self.version = tuple(int(part) for part in release.split(".")[:3])
        self.directory = directory
