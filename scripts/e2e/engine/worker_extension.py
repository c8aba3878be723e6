"""What vLLM's workers are asked besides; runs in their processes."""


class Extension:
    """Becomes a base class of the worker."""

    def stores_pending(self):
        """Returns how many requests still have blocks to be stored."""
        threads = [worker.kv_send_thread for worker in workers()]
        return sum(thread.request_queue.unfinished_tasks for thread in threads if thread)  # a consumer has none

    def record_loads(self, loads):
        """Records keys that are loaded, with the store's results. With several ranks they stay in their processes."""
        for worker in workers():
            for thread in worker.kv_recv_threads:
                thread.store = Loads(thread.store, loads)

    def fail_puts(self, rank):
        """Has all puts of a rank fail, or of none if it is None."""
        for worker in workers():
            thread = worker.kv_send_thread
            if isinstance(thread.store, FailingPuts):
                thread.store = thread.store.store
            if self.rank == rank:
                thread.store = FailingPuts(thread.store)


class FailingPuts:
    """A store into which nothing can be put."""

    def __init__(self, store):
        self.store = store

    def __getattr__(self, name):
        return getattr(self.store, name)

    def batch_put_from_multi_buffers(self, keys, *_):
        return [-1] * len(keys)


class Loads:
    """A store whose loads are recorded."""

    def __init__(self, store, loads):
        self.store, self.loads = store, loads

    def __getattr__(self, name):
        return getattr(self.store, name)

    def batch_get_into_multi_buffers(self, keys, *buffers):
        results = self.store.batch_get_into_multi_buffers(keys, *buffers)
        self.loads.extend(zip(keys, results))
        return results


def workers():
    """Returns the connectors' sides in the worker."""
    from vllm.distributed.kv_transfer import get_kv_transfer_group, has_kv_transfer_group

    group = get_kv_transfer_group() if has_kv_transfer_group() else None
    connectors = getattr(group, "_connectors", [group])
    return [connector.connector_worker for connector in connectors if connector]
