"""What vLLM's workers are asked besides; runs in their processes."""


class Extension:
    """Becomes a base class of the worker."""

    def stores_pending(self):
        """Returns how many requests still have blocks to be stored."""
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        group = get_kv_transfer_group()
        threads = [c.connector_worker.kv_send_thread for c in getattr(group, "_connectors", [group])]
        return sum(thread.request_queue.unfinished_tasks for thread in threads)
