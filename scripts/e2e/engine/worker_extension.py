"""What vLLM's workers are asked besides; runs in their processes."""


class Extension:
    """Becomes a base class of the worker."""

    def stores_pending(self):
        """Returns how many requests still have blocks to be stored."""
        from vllm.distributed.kv_transfer import get_kv_transfer_group

        thread = get_kv_transfer_group().connector_worker.kv_send_thread
        return thread.request_queue.unfinished_tasks
